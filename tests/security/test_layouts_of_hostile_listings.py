"""A listing may hold anything: each ends in a layout or in words, in a thread, and takes a bounded part of the memory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.security import unmeasured
from tests.security.chosen import long_but
from tests.security.layout_child import CASES

MOST_GROWTH_MIB = 256
"""The longest listings of all, with keys of 800 characters, take 160 MiB on their way."""
LONGEST_TEXT = 3000


HERE = ("a_config_that_is_too_long", "half_a_surrogate_pair", "a_schema_of_nothing_but_brackets", "control_characters_and_long_names")


@pytest.mark.parametrize("name", long_but(CASES, *HERE))
def test_it_ends_in_a_layout_or_in_words(name: str, tmp_path: Path) -> None:
    """One line, of the right class, that no control character is in."""
    _, ends, _ = CASES[name]

    ran = unmeasured.run("-m", "tests.security.layout_child", name, str(tmp_path))

    assert ran.returncode == 0, ran.stderr[-2000:]
    told = json.loads(ran.stdout)
    assert ends in told["words"]
    assert told.get("class") in ((None,) if ends == "layout" else ("InvalidModel", "InvalidRequest"))
    assert told["words"].isprintable() and len(told["words"]) <= LONGEST_TEXT
    assert told["grown"] <= MOST_GROWTH_MIB
    assert not told["on_loop"]
