"""
What the plan of a very large model costs: 100,000 files side by side, 400 levels, or both.

Prints milliseconds of CPU, and the ratio to sorting the same paths once. Asserts nothing about time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from adapter.errors import InvalidModel
from adapter.layout import rules
from adapter.model import Layout, Listing, SourceFile
from tests.builders import a_spec

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(600)]
MANY, DEPTH = 100_000, 400

SHAPES: dict[str, tuple[str, Callable[[], list[str]]]] = {
    "one version": ("python", lambda: ["1/model.py", *(f"1/f{number}" for number in range(MANY))]),
    "native": ("python", lambda: ["1/model.py", "config.pbtxt", *(f"1/f{number}" for number in range(MANY))]),
    "flat": ("", lambda: [f"f{number}" for number in range(MANY)]),
    "refused": ("onnx", lambda: [f"f{number}" for number in range(MANY)]),
    "directories": ("", lambda: [f"d{number}/x" for number in range(MANY)]),
    "versions": ("python", lambda: [f"{number}/model.py" for number in range(MANY)]),
    "400 levels": ("onnx", lambda: ["a/" * DEPTH + "model.onnx"]),
    "20,000 files below 400 levels": ("onnx", lambda: [f"{'a/' * DEPTH}f{number}" for number in range(MANY // 5)]),
}


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Milliseconds of CPU, and what came out."""
    started = time.process_time()
    found = work()
    return (time.process_time() - started) * 1000, found


@pytest.mark.parametrize("shape", SHAPES)
def test_the_plan_of_a_large_model(shape: str, capsys: pytest.CaptureFixture[str]) -> None:
    model_type, paths = SHAPES[shape]
    files = tuple(SourceFile(path, 10, f"e-{path}") for path in sorted(paths()))
    listing = Listing("memory://m", "m", False, files)
    spec = a_spec("m", model_id="m", model_type=model_type)

    def planned(contents: dict[SourceFile, bytes]) -> Layout | str:
        try:
            return rules.plan(spec, listing, contents)
        except InvalidModel as error:
            return error.text

    sorting, _ = timed(lambda: sorted({file.path: file for file in reversed(files)}))
    looking, wanted = timed(lambda: rules.wanted(listing))
    planning, layout = timed(lambda: planned(dict.fromkeys(wanted, b'backend: "python"')))
    adding = timed(lambda: layout.size_bytes)[0] if isinstance(layout, Layout) else 0.0
    with capsys.disabled():
        figures = f"wanted {looking:.1f} ms, plan {planning:.1f} ms, files and size {adding:.1f} ms"
        print(f"  {shape:32} {figures}; {(looking + planning + adding) / max(sorting, 0.001):.0f} × sorting the paths")
