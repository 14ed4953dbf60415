"""
Each value of the chart set to something odd: Helm refuses it in words, or the objects are valid and the pod is sound.

Nothing in between: no error of a template, no object that an API server refuses, no pod in which something does not start.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
import yaml

from tests.chart import controller, render, soundness, valid
from tests.chart.matrix import CLAIM, leaves
from tests.chart.soundness import PodView

pytestmark = pytest.mark.long

ODD: tuple[object, ...] = ("on", 0, 1.5, "a: b #c", "{{ .Values.x }}", "two\nlines", "", [1], {"a": 1}, "$(HOME) `id`", True, "9" * 30, -1)
EACH = 1
TEMPLATES = ("nil pointer", "error calling", "executing", "wrong type", "YAML", "JSON")
"""Words of Helm's that speak of the chart's insides."""


def cases() -> Iterator[tuple[str, object]]:
    """Null takes a default away: every value gets it, and in turn some of the others."""
    turns = itertools.cycle(ODD)
    for path in leaves(yaml.safe_load((render.CHART / "values.yaml").read_text())):
        yield path, None
        yield from ((path, next(turns)) for _ in range(EACH))


@pytest.mark.parametrize(("path", "value"), list(cases()), ids=repr)
def test_an_odd_value(path: str, value: object) -> None:
    try:
        objects = render.render(sets={path: value})
    except render.RenderError as refusal:
        assert not any(word in str(refusal) for word in TEMPLATES)
        return

    assert [problem for found in objects for problem in valid.problems(found)] == []
    runtimes = [found for found in objects if found["kind"].endswith("ServingRuntime")]
    assert len(runtimes) == (0 if (path, value) == ("runtime.create", False) else 1)
    for runtime in runtimes:
        pod = PodView(controller.assemble(runtime, claims=(CLAIM,)), {}, {})
        assert (controller.validate(runtime), soundness.problems(pod)) == ([], [])
