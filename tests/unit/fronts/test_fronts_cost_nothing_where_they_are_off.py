"""A pod without a front has none of their libraries in memory, and the process that parses none of a server."""

from __future__ import annotations

import subprocess
import sys

import pytest

LIBRARIES = ("aiohttp", "orjson", "numpy", "adapter.fronts", "adapter.triton.inference")


@pytest.mark.parametrize(("module", "libraries"), [("adapter.app", LIBRARIES), ("adapter.fronts.parser", ("aiohttp",))])
def test_what_is_not_needed_is_not_imported(module: str, libraries: tuple[str, ...]) -> None:
    text = f"import sys, {module}\nprint(sorted(set({libraries!r}) & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True).stdout == "[]\n"
