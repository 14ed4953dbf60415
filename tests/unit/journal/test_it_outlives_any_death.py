"""A file that somebody deletes or replaces while the journal works is written anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapter.journal import NoJournal
from tests.unit.journal.journals import Rig, a_record


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
