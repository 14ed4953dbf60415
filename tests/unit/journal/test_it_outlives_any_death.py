"""kill -9 at any moment: what is read afterwards was noted, and is never older than what `written` had confirmed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from adapter.journal.file import NoJournal
from tests.unit.journal.journals import Rig, a_record

TOP = Path(__file__).parents[3]
KILLS = 12


def start(rig: Rig, seed: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-B", "-m", "tests.unit.journal.child", str(rig.path), str(seed)], cwd=TOP, stdout=subprocess.PIPE
    )


def possible(known: dict[str, int], told: Iterable[bytes]) -> dict[str, list[int | None]]:
    """Of each id what may be read: the state that was confirmed last, and all later ones."""
    states: dict[str, list[int | None]] = {model_id: [size] for model_id, size in known.items()}
    for line in told:
        what, model_id, number = line.decode().split()
        if what == "w":
            states = {name: each[-1:] for name, each in states.items()}
        else:
            states.setdefault(model_id, [None]).append(int(number) if what == "n" else None)
    return states


async def test_a_file_that_is_deleted_or_replaced_meanwhile_is_written_anew(rig: Rig, tmp_path: Path) -> None:
    journal = rig.start()
    journal.note(a_record("a"))
    await journal.written()
    rig.path.unlink()
    with pytest.raises(NoJournal):
        rig.found()
    journal.note(a_record("b"))
    await journal.written()
    assert set(rig.found().records) == {"a", "b"}

    rig.path.rename(tmp_path / "moved")
    rig.path.symlink_to(tmp_path / "moved")
    journal.note(a_record("c"))
    await journal.written()
    assert set(rig.found().records) == {"a", "b", "c"} and not rig.path.is_symlink()

    with rig.path.open("a") as file:
        file.write('{"id": "intruder"')
    journal.note(a_record("d"))
    await journal.written()
    assert set(rig.found().records) == {"a", "b", "c", "d"}

    rig.path.unlink()
    (rig.path.with_name("journal.jsonl.new")).mkdir()
    journal.note(a_record("e"))
    await journal.written()
    assert set(rig.found().records) == {"a", "b", "c", "d", "e"}
