"""Models in folders beside many others, in stores that list in all kinds of orders: each file is found, in one listing where it can be."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from adapter.storage.bucket import Page
from adapter.storage.pull import siblings
from adapter.storage.pull.listing import find_model
from adapter.storage.pull.siblings import FEW, Siblings
from adapter.workers import Stop
from tests.fakes.memory_bucket import MemoryBucket
from tests.unit.storage.beds import make_search


def walk(*, files: int, folders: int) -> Callable[[str], Any]:
    """Folder by folder; in each, by kind and name."""
    return lambda key: [(folders, part) for part in key.split("/")[:-1]] + [(files, key.rpartition("/")[2])]


ORDERS: dict[str, Callable[[str], Any]] = {
    "bytes": str.encode,
    "UTF-16": lambda key: key.encode("utf-16-be"),
    "without case": lambda key: (key.lower(), key),
    "numbers as numbers": lambda key: [(bool(n % 2), int(part) if n % 2 else part) for n, part in enumerate(re.split(r"([0-9]+)", key))],
    "path segments": walk(files=0, folders=0),
    "files first": walk(files=0, folders=1),
    "folders first": walk(files=1, folders=0),
    "folders last first": lambda key: [[-ord(letter) for letter in part] for part in key.split("/")],
    "level by level": lambda key: (key.count("/"), key),
    "letters, then punctuation": lambda key: ("".join(filter(str.isalnum, key)).lower(), key),
    "letters with case, then punctuation": lambda key: ("".join(filter(str.isalnum, key)), key),
    "last things first": lambda key: [-ord(letter) for letter in key],
    "none": lambda key: random.Random(key).random(),
}
FOLDERS = ["m", "m0", "m1", "m10", "m-", "m.v2", "m 1", "m!", "mb", "M", "1", "2", "é", "\U0001f4a3", "\ue000", "a", "z"]
FILES = ["config.pbtxt", "model.onnx", "0.bin", "-", " x", ".hidden", "x\U0001f4a3", "~", "Z"]
places = st.sampled_from(["", "p/", "p/m/"])
paths = st.builds(lambda folders, file: "/".join([*folders, file]), st.lists(st.sampled_from(FOLDERS), max_size=3), st.sampled_from(FILES))
names = st.sampled_from(["m{}", "m{:03}", "m-{}", "ma{}", "m.{}", "m{}.bin", "m/{}", "m/f{}.bin", "m/1/{}", "mb-{:03}"])
blocks = st.builds(
    lambda name, files, count: [
        name.format(number) + (f"/{file}" if not name.endswith(".bin") else "") for number in range(count) for file in files
    ],
    names,
    st.lists(paths, min_size=1, max_size=3),
    st.integers(0, 40),
)


class Ordered(MemoryBucket):
    """A store that lists in this order, in pages of so many rows."""

    def __init__(self, keys: set[str], order: str, rows: int) -> None:
        super().__init__(dict.fromkeys(keys, b"x"))
        self._order, self._rows = ORDERS[order], rows

    def list_page(self, prefix: str, stop: Stop, *, token: str | None = None, **_: Any) -> Page:
        self.calls.append(prefix)
        keys = sorted((key for key in self._objects if key.startswith(prefix)), key=self._order)
        start = int(token or 0)
        end = start + self._rows
        return Page(objects=tuple(map(self.stored, keys[start:end])), next_token=str(end) if end < len(keys) else None)


def found(bucket: MemoryBucket, path: str) -> set[str]:
    return {file.path for file in find_model(bucket, make_search(path), Stop()).listing.files}


@pytest.mark.parametrize("order", ORDERS)
@settings(deadline=None)
@given(rows=st.integers(FEW, 40), place=places, lists=st.lists(blocks, min_size=1, max_size=5), own=st.lists(paths, min_size=1, max_size=4))
def test_every_file_is_found(order: str, rows: int, place: str, lists: list[list[str]], own: list[str]) -> None:
    keys = {f"{place}{key}" for key in [*(key for block in lists for key in block), *(f"m/{path}" for path in own)]}
    bucket = Ordered(keys, order, rows)
    expected = {key.removeprefix(f"{place}m/") for key in keys if key.startswith(f"{place}m/")}
    assert found(bucket, f"{place}m") == expected
    pages = -(-sum(key.startswith(f"{place}m") for key in keys) // rows)
    event(f"the folder listed by itself: {f'{place}m/' in bucket.calls}, listings left before the end: {len(bucket.calls) < pages}")


def models(names: list[str], *files: str) -> set[str]:
    return {f"{name}/{file}" for name in names for file in files}


SPLIT = {
    "level by level": models(["m", *(f"m1{n:03}" for n in range(60))], "config.pbtxt", "1/model.onnx"),
    "letters, then punctuation": models([f"mb{n:03}" for n in range(60)], "1/x", "c") | {"m/a/x", "m/c"},
}


@pytest.mark.parametrize("order", SPLIT)
def test_an_order_that_splits_folders_is_seen_through(order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A first page of it ascends by bytes, too, begins in the folder, and has come to keys beyond it."""
    bucket = Ordered(SPLIT[order], order, 25)
    expected = {key[2:] for key in SPLIT[order] if key.startswith("m/")}
    assert found(bucket, "m") == expected
    assert bucket.calls == ["m", "m/"]
    monkeypatch.setattr(siblings, "_SPLITTING", ())
    assert found(bucket, "m") < expected, "this is what the suspicion is for"


SMALL = [*(f"m0{n:02}/{file}" for n in range(12) for file in ("1/x", "c"))]
PROOFS = {
    "all of it": (["m/1/x", "m/c", *SMALL], True),
    "no row of the folder": (SMALL, False),
    "a marker alone of the folder": (["m/", *SMALL], False),
    "nothing beyond the folder": ([*(f"m-{n:02}" for n in range(30)), "m/1/x", "m/c"], False),
    "a marker alone beyond the folder": ([*(f"m-{n:02}/{file}" for n in range(30) for file in ("1/x", "c")), "m/1/x", "m/c", "m0/"], False),
    "keys that nobody asked for beyond it": (["m/1/x", "m/c", *(f"n0{n:02}/{file}" for n in range(12) for file in ("1/x", "c"))], False),
    "the folder after what lies beyond it": (["m0/x", "m/1/x", "m/c", *(f"m-{n:02}" for n in range(30))], False),
    "one row out of order": (["m/1/x", "m/c", *SMALL, "m00/x"], False),
    "one row twice": (["m/1/x", "m/c", *SMALL, SMALL[-1]], False),
    "19 rows": (["m/1/x", "m/c", *SMALL[:17]], False),
    "20 rows": (["m/1/x", "m/c", *SMALL[:18]], True),
    "files of one level alone": (["m/c", *(key for key in SMALL if key.endswith("c"))], False),
}


@pytest.mark.parametrize("name", PROOFS)
def test_a_proof_needs_all_of_its_parts(name: str) -> None:
    """Whatever the rows are cut into."""
    keys, is_proof = PROOFS[name]
    rows = tuple(MemoryBucket(dict.fromkeys(keys, b"x")).stored(key) for key in keys)
    for size in (1, 7, len(rows)):
        seen = Siblings("m")
        for start in range(0, len(rows), size):
            seen.see(Page(objects=rows[start : start + size]))
        assert seen.prove_the_folder_whole is is_proof
