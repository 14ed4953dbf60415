"""The table of artifacts: its counts are those of a table that is counted anew, and no answer looks at other models' artifacts."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping

import pytest

from adapter.storage.cache.shelf import Entry, Shelf

SIZES = {inode: 10**inode for inode in range(8)}
"""No two sums of these are equal."""


def counted_anew(entries: list[Entry]) -> tuple[int, int]:
    """Bytes of what has users, and of what only the others have."""
    placed = {inode for entry in entries if entry.users for inode in entry.inodes}
    idle = {inode for entry in entries for inode in entry.inodes} - placed
    records = [sum(entry.record_bytes for entry in entries if bool(entry.users) is is_placed) for is_placed in (True, False)]
    return sum(SIZES[inode] for inode in placed) + records[0], sum(SIZES[inode] for inode in idle) + records[1]


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_the_bytes_are_those_of_a_table_that_is_counted_anew(seed: int) -> None:
    chance = random.Random(seed)
    shelf = Shelf(keeps_idle=bool(seed % 2))
    held: list[Entry] = []
    known: dict[str, Entry] = {}
    dropped: list[Entry] = []
    for number in range(400):
        step = chance.randrange(7)
        if step == 0:
            inodes = {inode: SIZES[inode] for inode in chance.sample(sorted(SIZES), chance.randrange(4))}
            name = f"{number}"
            entry = Entry(
                name=name, key=chance.choice((name, None)), origin=f"o{number % 3}", inodes=inodes, record_bytes=chance.randrange(9)
            )
            shelf.add(entry, 1)
            held.append(entry)
            known[name] = entry
        elif step == 1 and known:
            entry = chance.choice(list(known.values()))
            if shelf.hold(entry.name) is entry:
                held.append(entry)
        elif step in (2, 3) and held:
            entry = held.pop(chance.randrange(len(held)))
            if shelf.let_go(entry.name) is entry:
                del known[entry.name]
            if not entry.users and entry in dropped:
                dropped.remove(entry)
        elif step == 4 and known:
            entry = chance.choice(list(known.values()))
            assert shelf.drop(entry)
            del known[entry.name]
            if entry.users:
                dropped.append(entry)
        elif step == 5:
            before = sum(counted_anew([*known.values(), *dropped]))
            gone, freed = shelf.give_up(chance.randrange(10_000))
            for entry in gone:
                assert not entry.users
                del known[entry.name]
            assert freed == before - sum(counted_anew([*known.values(), *dropped]))
        elif known:
            shelf.recorded(chance.choice(list(known.values())), chance.randrange(99))
        assert (shelf.placed_bytes(), shelf.idle_bytes()) == counted_anew([*known.values(), *dropped])
    for entry in known.values():
        assert shelf.has(entry.name)
        found = shelf.of_origin(entry.origin)
        assert (entry in found) is (entry.key is not None)
        assert found == sorted(found, key=lambda each: -each.last_use)


def test_what_went_unused_for_longest_goes_first() -> None:
    shelf = Shelf(keeps_idle=True)
    entries = [Entry(name=name, key=name, origin="o", inodes={number: SIZES[number]}) for number, name in enumerate("abc")]
    for entry in entries:
        shelf.add(entry, 1)
    for name in "bac":
        shelf.let_go(name)
    assert shelf.hold("b") is not None
    shelf.let_go("b")
    assert [entry.name for entry in shelf.give_up(1)[0]] == ["a"]
    assert [entry.name for entry in shelf.give_up(10**9)[0]] == ["c", "b"]


def test_a_record_that_is_written_is_no_use() -> None:
    shelf = Shelf(keeps_idle=True)
    entries = [Entry(name=name, key=name, origin="o", inodes={number: SIZES[number]}) for number, name in enumerate("ab")]
    for entry in entries:
        shelf.add(entry, 0)

    shelf.recorded(entries[0], 9)

    assert [entry.name for entry in shelf.give_up(1)[0]] == ["a"]


def test_the_record_of_a_dropped_artifact_leaves_its_namesake_idle() -> None:
    shelf = Shelf(keeps_idle=True)
    dropped, namesake = (Entry(name="a", key="a", origin="o", inodes={number: SIZES[number]}) for number in range(2))
    shelf.add(dropped, 1)
    shelf.drop(dropped)
    shelf.add(namesake, 0)

    shelf.recorded(dropped, 9)

    assert shelf.give_up(1)[0] == [namesake]
    assert (shelf.placed_bytes(), shelf.idle_bytes()) == (SIZES[0] + 9, 0)


class Untouchable(Mapping[int, int]):
    """Files of an artifact that nobody may ask for any more."""

    def __init__(self, inodes: Mapping[int, int]) -> None:
        self._inodes = inodes
        self.is_closed = False

    def _open(self) -> Mapping[int, int]:
        assert not self.is_closed, "the artifact of another model was looked at"
        return self._inodes

    def __getitem__(self, inode: int) -> int:
        return self._open()[inode]

    def __iter__(self) -> Iterator[int]:
        return iter(self._open())

    def __len__(self) -> int:
        return len(self._open())


class UntouchableReaders(dict[str, float]):
    """Likewise."""

    is_closed = False

    def __contains__(self, reader: object) -> bool:
        assert not self.is_closed, "the readers of another model were looked at"
        return super().__contains__(reader)


def test_a_load_looks_at_no_artifact_of_another_model() -> None:
    shelf = Shelf(keeps_idle=True)
    others = []
    for number in range(50):
        inodes, readers = Untouchable({number: 1}), UntouchableReaders({f"r{number}": 1.0})
        shelf.add(Entry(name=f"a{number}", key=f"a{number}", origin=f"o{number}", inodes=inodes, readers=readers), 1)
        if number % 2:
            shelf.let_go(f"a{number}")
        others.append((inodes, readers))
    for inodes, readers in others:
        inodes.is_closed = readers.is_closed = True
    ours = Entry(name="ours", key="ours", origin="o", inodes={99: 7}, readers={"r": 1.0})
    shelf.add(ours, 1)
    assert shelf.last_of("r") is ours
    assert shelf.of_origin("o", "r") == [ours]
    assert shelf.hold("ours") is ours
    assert not shelf.confirm(ours, "r", 2.0, 64)
    assert shelf.confirm(ours, "another", 2.0, 64)
    assert (shelf.placed_bytes(), shelf.idle_bytes()) == (25 + 7, 25)
    shelf.let_go("ours")
    shelf.let_go("ours")
    assert shelf.idle_bytes() == 25 + 7
    assert shelf.forget("another") == [ours]
    assert shelf.drop(ours)
    assert shelf.last_of("r") is None
    assert shelf.of_origin("o") == []
