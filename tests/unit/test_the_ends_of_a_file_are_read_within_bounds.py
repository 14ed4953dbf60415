"""Both ends of a file and a count over all of it, in bounded memory, whatever lies there."""

import os
import threading
import tracemalloc

import pytest

from adapter.ends import HEAD_BYTES, TAIL_BYTES, Count, read_ends
from adapter.errors import InvalidModel, VolumeFailed
from adapter.workers import Stop, Stopped

MIB, CHUNK = 1024 * 1024, 256 * 1024
WORD, ESCAPES = b"learner_model_param", (b"\\u005", b"\\u006")


def never() -> None:
    """Nobody ends the reading."""


@pytest.mark.parametrize("size", [0, 1, HEAD_BYTES, TAIL_BYTES, TAIL_BYTES + 1, MIB + 7])
def test_a_file_is_read_at_both_ends(tmp_path, size):
    """A short one is whole in its tail."""
    content = os.urandom(size)
    (tmp_path / "m").write_bytes(content)

    found = read_ends(tmp_path / "m", None, never)

    assert (found.head, found.tail, found.size_bytes) == (content[:HEAD_BYTES], content[max(0, size - TAIL_BYTES) :], size)


@pytest.mark.parametrize("offset", [*range(CHUNK - 21, CHUNK + 3), 0, 2 * CHUNK - 10])
def test_a_word_across_two_reads_is_counted_once(tmp_path, offset):
    """And what could disguise it."""
    for text, counts in ((WORD, (1, 0)), (ESCAPES[0], (0, 1)), (ESCAPES[1], (0, 1)), (WORD + ESCAPES[0], (1, 1)), (WORD[:-1], (0, 0))):
        (tmp_path / "m").write_bytes(bytes(offset) + text + bytes(CHUNK))

        found = read_ends(tmp_path / "m", Count(WORD, ESCAPES), never)

        assert (found.mentions, found.others) == counts


def test_a_word_of_a_line_may_begin_the_file(tmp_path):
    """Its newline is what is before the file, once."""
    (tmp_path / "m").write_bytes(b"num_class=1\nnum_class=2\n xnum_class=3")

    assert read_ends(tmp_path / "m", Count(b"\nnum_class="), never).mentions == 2


@pytest.mark.parametrize("offset", [0, 1, CHUNK - 19, CHUNK - 3, CHUNK, 2 * CHUNK - 5])
def test_the_counting_may_end_before_the_file(tmp_path, offset):
    """At the first place that ends it, also across two reads; a word that reaches into it does not count."""
    (tmp_path / "m").write_bytes(bytes(offset) + WORD + b"\nTree=0\n" + WORD + ESCAPES[0] + bytes(CHUNK) + b"\nTree=1" + WORD)

    found = read_ends(tmp_path / "m", Count(WORD, ESCAPES, until=b"\nTree="), never)

    assert (found.mentions, found.others) == (1, 0)


def test_a_large_file_takes_little_memory(tmp_path):
    """Sixty-four megabytes, of which no more is kept than its ends."""
    with (tmp_path / "m").open("wb") as file:
        file.truncate(64 * MIB)
        file.seek(0, os.SEEK_END)
        file.write(WORD)
    tracemalloc.start()
    try:
        assert read_ends(tmp_path / "m", Count(WORD, ESCAPES), never).mentions == 1
        assert tracemalloc.get_traced_memory()[1] < 4 * MIB
    finally:
        tracemalloc.stop()


def test_a_pipe_is_no_model(tmp_path):
    """And opening it does not wait for a writer."""
    os.mkfifo(tmp_path / "m")
    with pytest.raises(InvalidModel, match="the model's file m is not a regular file"):
        read_ends(tmp_path / "m", Count(WORD), never)


def test_a_file_that_has_gone_is_named(tmp_path):
    with pytest.raises(VolumeFailed, match="the model's file m cannot be read on the volume: No such file or directory"):
        read_ends(tmp_path / "m", Count(WORD), never)


def test_the_reading_ends_soon_after_the_stop(tmp_path):
    """It is asked before each read; a file that never ends would go on for ever."""
    with (tmp_path / "m").open("wb") as file:
        file.truncate(1024 * 1024 * MIB)
    stop = Stop()
    reads = threading.Semaphore(0)

    def check() -> None:
        reads.release()
        stop.check()

    ended = []

    def read() -> None:
        with pytest.raises(Stopped):
            read_ends(tmp_path / "m", Count(WORD), check)
        ended.append(True)

    thread = threading.Thread(target=read)
    thread.start()
    for _ in range(5):
        assert reads.acquire(timeout=30)
    stop.set()
    thread.join(30)

    assert ended == [True]
