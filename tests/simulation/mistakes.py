"""The mistakes of `mistakes.toml`, to be planted in the adapter."""

from __future__ import annotations

import sys
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from typing import cast

from tests.prove.net.mistakes import read

MISTAKES = {mistake.name: mistake for mistake in read(Path(__file__).with_suffix(".toml"))}


def plant(name: str) -> None:
    """Import the module of the adapter with the mistake in it. Nothing else may have imported it before."""
    mistake = MISTAKES[name]
    package, _, module = mistake.file.removesuffix(".py").replace("/", ".").rpartition(".")
    assert f"{package}.{module}" not in sys.modules
    spec = find_spec(f"{package}.{module}")
    assert spec is not None
    planted = sys.modules[spec.name] = module_from_spec(spec)
    setattr(sys.modules[package], module, planted)
    path = Path(cast("str", spec.origin))
    exec(compile(mistake.applied(path.read_text()), path, "exec"), planted.__dict__)
