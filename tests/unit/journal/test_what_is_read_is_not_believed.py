"""The file is hostile input: a Triton that runs as root can write the volume."""

from __future__ import annotations

import json
import os
import socket
import stat
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from adapter.journal import MAX_ENTRIES, MAX_FILE_BYTES, MAX_LINE_BYTES, JournalProblem, line_of
from adapter.records import Crashes
from tests.unit.journal.journals import BOOT, Rig, a_record

GOOD = json.loads(line_of(a_record("m")))
CRASH = json.loads(line_of(Crashes(digest="cc", count=2, last=3.0)))


async def works_anew(rig: Rig, *words: str) -> None:
    """What is there says nothing, is out of the way, is told once, and the journal of this process works."""
    with capture_logs() as told:
        journal = rig.start()
    assert journal.records == {} and journal.crashes == {}
    assert [line["event"] for line in told] == ["journal.ignored"]
    assert all(word in told[0]["cause"] for word in words), told[0]["cause"]
    journal.note(a_record("new"))
    await journal.written()
    assert set(rig.found().records) == {"new"}
    assert len(rig.trash) == 1


async def test_another_boot_is_another_journal_with_another_salt(rig: Rig) -> None:
    first = rig.start("boot-0")
    first.note(a_record("old"))
    await first.written()
    first.close()

    with pytest.raises(JournalProblem, match="the machine has restarted"):
        rig.found()
    await works_anew(rig, "the machine has restarted")
    assert rig.start().digests.of_values({}) != first.digests.of_values({})


@pytest.mark.parametrize(
    "content",
    [
        b"", b"\n", b"\x00" * 5_000, b"{}\n", b"[]\n", b"1\n", b"null\n", b"\xff\xfe\n", b"[" * 10_000 + b"\n", b'{"format": 1}\n',
        b'{"format": true, "boot_id": "boot-1", "salt": "' + b"5a" * 32 + b'"}\n',
        b'{"format": 1, "boot_id": 7, "salt": "' + b"5a" * 32 + b'"}\n',
        b'{"format": 1, "boot_id": "boot-1", "salt": "5"}\n', b'{"format": 1, "boot_id": "boot-1", "salt": ""}\n',
        b'{"format": 1, "boot_id": "boot-1", "salt": null}\n', b'{"format": "1", "boot_id": "boot-1", "salt": "' + b"5a" * 32 + b'"}\n',
        b'{"format": 1, "boot_id": "boot-1", "salt": "' + b"5a" * 32 + b'"}',
        b'{"format": 1, "boot_id": "boot-1", "salt": "' + b"5a" * 32 + b'", "more": "' + b"x" * MAX_LINE_BYTES + b'"}\n',
    ],
)  # fmt: skip
async def test_a_file_that_does_not_begin_as_a_journal_is_none(rig: Rig, content: bytes) -> None:
    rig.path.write_bytes(content)
    await works_anew(rig, "its first line is not a journal's")


@pytest.mark.parametrize("kind", ["link", "dangling", "pipe", "socket", "folder", "device", "huge"])
async def test_what_is_no_journal_at_all_is_put_away_unopened(rig: Rig, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """None of it hangs, follows a link, or reads more than its bound."""
    elsewhere = tmp_path / "elsewhere"
    good = Rig(tmp_path)
    good.path = elsewhere
    good.write(GOOD)
    before = elsewhere.read_bytes()
    if kind in ("link", "dangling"):
        rig.path.symlink_to(elsewhere if kind == "link" else tmp_path / "nowhere")
    elif kind == "pipe":
        os.mkfifo(rig.path)
    elif kind == "socket":
        monkeypatch.chdir(tmp_path)  # its name may have 107 bytes
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(rig.path.name)
    elif kind == "folder":
        rig.path.mkdir()
        (rig.path / "file").touch()
    elif kind == "device":
        try:
            os.mknod(rig.path, 0o600 | stat.S_IFCHR, os.makedev(1, 5))  # /dev/zero
        except PermissionError:
            pytest.skip("this user cannot make devices")
    else:
        with rig.path.open("wb") as file:
            file.truncate(MAX_FILE_BYTES + 1)
    await works_anew(rig)
    assert elsewhere.read_bytes() == before


def spoiled() -> list[dict[str, Any]]:
    """Good lines with one value that cannot be."""
    wrong: list[Any] = [None, True, -1, 1.5, "", "x" * 300, "\ud800", [], {}, [1], 10**30, float("nan"), float("inf"), "../../etc/passwd"]
    free = ("type", "path", "key")
    found = [{**GOOD, name: value} for name in GOOD for value in wrong]
    keeps = [
        *({**GOOD, name: value} for name in free for value in ("", "../../etc/passwd")),
        *({**GOOD, name: None} for name in ("key", "content", "artifact", "placed")),
        *({**GOOD, name: 1.5} for name in ("since", "confirmed")),
        {**GOOD, "placed": "../../etc/passwd"},  # compared, and nothing else
    ]
    return [line for line in found if repr(line) not in {repr(keep) for keep in keeps}]


@pytest.mark.parametrize("line", spoiled(), ids=lambda line: ",".join(f"{k}={v!r:.20}" for k, v in line.items() if GOOD[k] != v))
async def test_a_line_with_a_value_that_cannot_be_is_dropped(rig: Rig, line: dict[str, Any]) -> None:
    rig.write({**GOOD, "id": "before"}, line, {**GOOD, "id": "after"})

    assert set(rig.start().records) == {"before", "after"}


@pytest.mark.parametrize(
    "line",
    [
        *({**CRASH, "crash": value} for value in ("", "/", None, 1, "a" * 200)),
        *({**CRASH, "count": value} for value in (-1, 1.0, True, "1", 10**9, None)),
        *({**CRASH, "last": value} for value in (-1, "1", None, float("inf"), 1e300)),
        {**GOOD, "content": ["a", "b"]}, {**GOOD, "content": ["a", None, None]}, {**GOOD, "content": "abc"},
        *({**GOOD, "named": value} for value in ("a", {}, ["a"], ["a", 1], ["a/b", "/x"], ["a", ""], ["\n", "/x"], ["a", "/x", 1])),
        {**GOOD, "id": "a/b"}, {**GOOD, "id": ".."}, {**GOOD, "id": "_adapter"}, {**GOOD, "id": "a~inner~b"}, {"id": "..", "gone": True},
        {}, {"gone": True}, {"id": "m", "gone": 1}, {"what": "else"},
        "nonsense", "[" * 10_000, "{" * 10_000, '{"id":' * 2_000, b"\xff\xff", b"\x00" * 100, "9" * 10_000,
        '"' + "x" * MAX_LINE_BYTES * 3 + '"',
        b"", b"  ",
    ],
    ids=lambda line: f"{line!r:.60}",
)  # fmt: skip
async def test_a_line_that_is_none_is_dropped_and_its_neighbours_are_not(rig: Rig, line: Any) -> None:
    rig.write({**GOOD, "id": "before"}, CRASH, line, {**GOOD, "id": "after"})

    journal = rig.start()

    assert set(journal.records) == {"before", "after"}
    assert journal.crashes == {"cc": Crashes(digest="cc", count=2, last=3.0)}
    assert not rig.trash


async def test_a_torn_tail_is_dropped_and_nothing_is_appended_to_it(rig: Rig) -> None:
    """At lengths that a killed process may have left, the first and the last among them."""
    tail = line_of(a_record("b"))
    for length in (1, *range(2, len(tail), 9), len(tail) - 1):
        rig.write({**GOOD, "id": "a"}, tail[:length], end=b"")
        journal = rig.start()
        assert set(journal.records) == {"a"}
        journal.note(a_record("c"))
        await journal.written()
        journal.close()
        assert set(rig.found().records) == {"a", "c"}


@pytest.mark.parametrize("kind", ["wide", "no line"])
async def test_the_largest_file_that_is_read_takes_bounded_memory(rig: Rig, kind: str) -> None:
    """Texts that Python holds four bytes a letter for, and a line without an end."""
    if kind == "wide":
        wide = "x" * 199 + "\U0001f600"
        lines = (json.dumps({**GOOD, "id": f"{number:x}", "type": wide, "path": wide, "key": wide}).encode() for number in range(25_000))
    else:
        lines = iter([])
    head = json.dumps({"format": 1, "boot_id": BOOT, "salt": "5a" * 32}).encode() + b"\n"
    with rig.path.open("wb") as file:
        file.write(head)
        for line in lines:
            if file.tell() + len(line) >= MAX_FILE_BYTES:
                break
            file.write(line + b"\n")
        if kind == "no line":
            file.truncate(MAX_FILE_BYTES)
    tracemalloc.start()
    try:
        found = rig.found()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert len(found.records) == (0 if "line" in kind else MAX_ENTRIES)
    assert peak < 160 << 20, f"{peak >> 20} MiB"
