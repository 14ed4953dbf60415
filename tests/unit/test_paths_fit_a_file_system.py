"""Paths below a model: what a file system can hold, and how much of it one model may take."""

from __future__ import annotations

import tracemalloc

import pytest

from adapter import paths
from adapter.paths import TreeTooLarge, directories_of, path_problem

GOOD = ["a", "a/b", "ü 日", "n" * 255, "ü" * 127, "/".join(["d"] * 500), "/".join(["n" * 255] * 12), "..a", "a\\b", "a\nb"]
BAD = {
    "": "has an empty segment",
    "/a": "is absolute",
    "a//b": "has an empty segment",
    "a/": "has an empty segment",
    "../a": "has a '..' in it",
    "a/.": "has a '.' in it",
    "n" * 256: "has a segment of more than 255 bytes",
    "a/" + "ü" * 128: "has a segment of more than 255 bytes",
    "/".join(["d"] * 501): "has more than 500 levels",
    "d/" * 2_000_000: "has more than 500 levels",
    "/".join(["n" * 255] * 13): "has more than 3072 bytes",
    "/".join(["ü" * 127] * 13): "has more than 3072 bytes",
    "a\0b": "contains a NUL byte",
}


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path[:20])
def test_a_path_that_fits_has_no_problem(path: str) -> None:
    """The bounds themselves are allowed."""
    assert path_problem(path) is None


@pytest.mark.parametrize("path", BAD, ids=lambda path: path[:20] or "empty")
def test_a_path_that_does_not_fit_says_why(path: str) -> None:
    """In words that follow `it`."""
    assert path_problem(path) == BAD[path]


def test_directories_are_those_above_the_files() -> None:
    """At any depth, each once."""
    assert directories_of(["a/b/c", "a/d", "e"]) == {"a", "a/b"}
    assert directories_of([]) == set()


def test_files_in_a_deep_folder_cost_no_more_than_the_folder() -> None:
    """100,000 files, 400 levels: what is held are 399 names, whatever the files."""
    deep = "/".join(["d"] * 400)
    tracemalloc.start()
    try:
        assert len(directories_of(f"{deep}/{number}" for number in range(100_000))) == 400
        assert tracemalloc.get_traced_memory()[1] < 2 * 1024 * 1024
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("letter", ["d", "日", "🌍"])
def test_folders_of_their_own_end_at_a_bound(letter: str) -> None:
    """100,000 files that need 400 folders each would be 40 million of them: the paths have a bound, in whatever alphabet."""
    deep = "/".join([letter] * 400)
    tracemalloc.start()
    try:
        with pytest.raises(TreeTooLarge, match=r"^has paths of more than 32 MiB, all of them together$"):
            directories_of(f"{number}/{deep}/f" for number in range(100_000))
        assert tracemalloc.get_traced_memory()[1] < 48 * 1024 * 1024
    finally:
        tracemalloc.stop()


def test_short_folders_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is an inode."""
    monkeypatch.setattr(paths, "MAX_DIRECTORIES", 1000)
    assert len(directories_of(f"{number}/f" for number in range(1000))) == 1000
    with pytest.raises(TreeTooLarge, match=r"^needs more than 1000 directories$"):
        directories_of(f"{number}/f" for number in range(1001))
