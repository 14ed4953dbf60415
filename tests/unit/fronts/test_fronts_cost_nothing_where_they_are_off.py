"""A pod without a front has none of their libraries in memory."""

from __future__ import annotations

import subprocess
import sys

LIBRARIES = ("aiohttp", "orjson", "numpy", "adapter.fronts", "adapter.triton.inference")


def test_the_adapter_imports_no_library_of_the_fronts() -> None:
    text = f"import sys, adapter.app\nprint(sorted(set({LIBRARIES!r}) & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True).stdout == "[]\n"
