"""kill -9 at any moment: what is read afterwards was noted, and is never older than what `written` had confirmed."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from adapter.journal.reading import NoJournal
from tests.unit.journal.beds import Bed, a_record

TOP = Path(__file__).parents[3]
KILLS = 12


def start(bed: Bed, seed: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-B", "-m", "tests.unit.journal.child", str(bed.path), str(seed)], cwd=TOP, stdout=subprocess.PIPE
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


async def test_kill_9_at_random_points_leaves_for_each_id_a_state_that_counts(bed: Bed) -> None:
    """Each process goes on with the file of the one before it."""
    source = random.Random(11)
    known: dict[str, int] = {}
    inodes = set()
    for seed in range(KILLS):
        with start(bed, seed) as child:
            assert child.stdout is not None
            told = [child.stdout.readline() for _ in range(source.randrange(1, 8_000))]
            child.kill()
            told += child.stdout.read().splitlines(keepends=True)
        assert all(line.endswith(b"\n") for line in told), "the child has ended by itself"
        found = {model_id: record.size_bytes for model_id, record in bed.found().records.items()}
        states = possible(known, told)
        wrong = {model_id: (found.get(model_id), each) for model_id, each in states.items() if found.get(model_id) not in each}
        assert not wrong, f"life {seed}: what was read, and what may be: {wrong}"
        assert found.keys() <= states.keys()
        inodes.add(bed.path.stat().st_ino)
        known = found
    assert len(inodes) > 1, "it was compacted in between"


async def test_a_reader_finds_a_whole_journal_at_any_moment(bed: Bed) -> None:
    """Another process reads while this one writes, compacts and forgets: an id that is never forgotten never vanishes."""
    journal = bed.start()
    journal.note(a_record("always"))
    await journal.written()
    with start(bed, 99) as child:  # its ids are others; it goes on with this file
        assert child.stdout is not None
        child.stdout.readline()
        seen, inodes = 0, set()
        while seen < 300 or len(inodes) < 3:
            child.stdout.readline()
            inodes.add(bed.path.stat().st_ino)
            assert "always" in bed.found().records
            seen += 1
        child.kill()
        child.stdout.read()


async def test_a_file_that_is_deleted_or_replaced_meanwhile_is_written_anew(bed: Bed, tmp_path: Path) -> None:
    journal = bed.start()
    journal.note(a_record("a"))
    await journal.written()
    bed.path.unlink()
    with pytest.raises(NoJournal):
        bed.found()
    journal.note(a_record("b"))
    await journal.written()
    assert set(bed.found().records) == {"a", "b"}

    bed.path.rename(tmp_path / "moved")
    bed.path.symlink_to(tmp_path / "moved")
    journal.note(a_record("c"))
    await journal.written()
    assert set(bed.found().records) == {"a", "b", "c"} and not bed.path.is_symlink()

    with bed.path.open("a") as file:
        file.write('{"id": "intruder"')
    journal.note(a_record("d"))
    await journal.written()
    assert set(bed.found().records) == {"a", "b", "c", "d"}

    bed.path.unlink()
    bed.path.mkdir()
    (bed.path.with_name("journal.jsonl.new")).mkdir()
    journal.note(a_record("e"))
    await journal.written()
    assert set(bed.found().records) == {"a", "b", "c", "d", "e"}
