"""The reporter's file is anybody's: reading it is bounded, and a line that is not as it must be says nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from adapter.memory.report import MAX_FILE_BYTES, Report, Stub, parsed, read


def test_a_report_is_read() -> None:
    text = b"memory 23225.92 466427904 1073741824 2\nstub 17 2048 digits\nstub 18 1 a model~inner~b c\nlater /proc/19 /proc/20 \n"
    stubs = {17: Stub("digits", 2048 * 1024), 18: Stub("a model~inner~b c", 1024)}
    assert parsed(text) == Report(23225.92, 466427904, 1073741824, 2, stubs, frozenset({19, 20}))


@pytest.mark.parametrize("limit", [b"max", b"9223372036854771712", b"18446744073709551615", b"0"])
def test_no_limit_is_none(limit: bytes) -> None:
    told = parsed(b"memory 1.5 10 " + limit + b" 0\n")
    assert told is not None and told.limit_bytes is None


@pytest.mark.parametrize(
    "line",
    [
        b"stub 1 1",
        b"stub 1 1 ",
        b"stub -1 1 a",
        b"stub 1 1 a/b",
        b"stub 1 1 ..",
        b"stub 1 1 _adapter",
        b"stub 1 1 \xff",
        b"stub 1 99999999999999999 a",
        b"stub 1 9999999999999999 a",
        b"stub 1 1 " + b"a" * 256,
        b"rubbish",
        b"memory 1 1 1 1",
        b"stub 1 1 a\0",
    ],
)
def test_a_bad_line_says_nothing(line: bytes) -> None:
    told = parsed(b"memory 1 2 3 4\n" + line + b"\nstub 5 6 good\n")
    assert told is not None
    assert told.stubs == {5: Stub("good", 6144)}


@pytest.mark.parametrize(
    "first", [b"", b"stub 1 1 a", b"memory 1 2 3", b"memory 1 -2 3 4", b"memory nan 2 3 4", b"memory 1 99999999999999999999 3 4"]
)
def test_without_a_whole_first_line_nothing_is_told(first: bytes) -> None:
    assert parsed(first + b"\nstub 5 6 good\n") is None


@given(st.binary(max_size=400))
@example(b"memory " + b"1" * 300)
def test_any_bytes_are_read_without_an_error(content: bytes) -> None:
    parsed(content)
    told = parsed(b"memory 1 2 3 4\n" + content)
    assert told is None or told.used_bytes == 2


def test_what_is_no_plain_file_is_not_opened(tmp_path: Path) -> None:
    """A pipe would hang, a link would lead anywhere, a long file would fill the memory."""
    file = tmp_path / "report"
    with pytest.raises(FileNotFoundError):
        read(file)
    os.mkfifo(file)
    with pytest.raises(OSError, match="not a regular file"):
        read(file)
    file.unlink()
    (tmp_path / "other").write_text("memory 1 2 3 4\n")
    file.symlink_to(tmp_path / "other")
    with pytest.raises(OSError, match=r"."):
        read(file)
    file.unlink()
    file.write_bytes(b"memory 1 2 3 4\n" + b"x" * MAX_FILE_BYTES)
    with pytest.raises(OSError, match="larger"):
        read(file)
