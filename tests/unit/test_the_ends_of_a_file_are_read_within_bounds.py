"""Both ends of a file, in bounded memory, whatever lies there."""

import os
import tracemalloc

import pytest

from adapter.errors import InvalidModel, VolumeFailed
from adapter.volume.trees import HEAD_BYTES, TAIL_BYTES, read_ends
from adapter.workers import Stop, Stopped

MIB = 1024 * 1024
WORD = b"learner_model_param"


def never() -> None:
    """Nobody ends the reading."""


@pytest.mark.parametrize("size", [0, 1, HEAD_BYTES, TAIL_BYTES, TAIL_BYTES + 1, MIB + 7])
def test_a_file_is_read_at_both_ends(tmp_path, size):
    """A short one is whole in its tail."""
    content = os.urandom(size)
    (tmp_path / "m").write_bytes(content)

    found = read_ends(tmp_path / "m", never)

    assert (found.head, found.tail, found.size_bytes) == (content[:HEAD_BYTES], content[max(0, size - TAIL_BYTES) :], size)


def test_a_large_file_takes_little_memory(tmp_path):
    """Sixty-four megabytes, of which no more is kept than its ends."""
    with (tmp_path / "m").open("wb") as file:
        file.truncate(64 * MIB)
        file.seek(0, os.SEEK_END)
        file.write(WORD)
    tracemalloc.start()
    try:
        assert read_ends(tmp_path / "m", never).tail.endswith(WORD)
        assert tracemalloc.get_traced_memory()[1] < 4 * MIB
    finally:
        tracemalloc.stop()


def test_a_pipe_is_no_model(tmp_path):
    """And opening it does not wait for a writer."""
    os.mkfifo(tmp_path / "m")
    with pytest.raises(InvalidModel, match="the model's file m is not a regular file"):
        read_ends(tmp_path / "m", never)


def test_a_file_that_has_gone_is_named(tmp_path):
    with pytest.raises(VolumeFailed, match="the model's file m cannot be read on the volume: No such file or directory"):
        read_ends(tmp_path / "m", never)


def test_the_reading_ends_at_the_stop(tmp_path):
    """It is asked before each read."""
    (tmp_path / "m").write_bytes(WORD)
    stop = Stop()
    stop.set()

    with pytest.raises(Stopped):
        read_ends(tmp_path / "m", stop.check)
