"""
The values files of `values/` and `refused/`, with what their first lines say.

`# proves:` a sentence; `# refused:` words of a refusal, one line for each;
`# secrets:` the name of a Secret that is there already; `# service name:` of the controller, where it is another one.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.chart import render
from tests.chart.controller import SERVICE, assemble
from tests.chart.soundness import PodView

CLAIM = "model-claim"
"""A claim that the storage secret names, in every assembled pod."""
SECRET = {"value": "a key"}


@dataclass(frozen=True)
class Case:
    """One values file."""

    path: Path

    @property
    def name(self) -> str:
        """Of the file."""
        return self.path.stem

    def told(self, word: str) -> list[str]:
        """What follows `# word:`, for each line of that kind."""
        start = f"# {word}:"
        return [line.removeprefix(start).strip() for line in self.path.read_text().splitlines() if line.startswith(start)]

    def objects(self) -> list[dict[str, Any]]:
        """All that the chart makes."""
        return render.render(self.path)

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        """Some of it."""
        return [found for found in self.objects() if found["kind"] == kind]

    @property
    def has_runtime(self) -> bool:
        """Whether there are pods."""
        return any(found["kind"].endswith("ServingRuntime") for found in self.objects())

    def runtime(self) -> dict[str, Any]:
        """The one that the chart makes."""
        return render.the_runtime(self.objects())

    def pod(self) -> PodView:
        """That of the runtime, with the secrets that are there."""
        there: Mapping[str, Mapping[str, str]] = dict.fromkeys(self.told("secrets"), SECRET)
        service = (self.told("service name") or [SERVICE])[0]
        return PodView(assemble(self.runtime(), claims=(CLAIM,), service=service), there)


@functools.cache
def values() -> tuple[Case, ...]:
    """Those that Helm takes."""
    return tuple(Case(path) for path in sorted(render.VALUES.glob("*.yaml")))


@functools.cache
def refused() -> tuple[Case, ...]:
    """Those that it must not take."""
    return tuple(Case(path) for path in sorted(render.REFUSED.glob("*.yaml")))


def case(name: str) -> Case:
    """The values file of that name."""
    return Case(render.VALUES / f"{name}.yaml")


def leaves(values: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """The path of each value, with dots: of each that is no map, or an empty one."""
    for name, value in values.items():
        yield from leaves(value, f"{above}{name}.") if isinstance(value, dict) and value else [f"{above}{name}"]
