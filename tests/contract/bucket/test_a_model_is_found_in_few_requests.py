"""How many requests it takes to find a model, counted at the socket of each store: a table that is kept."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from adapter.errors import SourceNotFound
from adapter.storage.bucket import PAGE_OBJECTS
from adapter.storage.pull.listing import find_model
from adapter.storage.stores.table import BUCKETS
from tests.real.blocking import blocking, run
from tests.unit.storage.rigs import make_search

PAGE = 25
"""Rows of a page here, so that a few objects make several."""
LISTING = [pytest.param(kind, marks=[pytest.mark.long] if kind == "azure" else []) for kind in BUCKETS if kind != "http"]
"""The emulator of Azure takes half a minute for these objects."""


class Paged:
    """A bucket that is asked for small pages."""

    def __init__(self, bucket):
        self._bucket = bucket

    def __getattr__(self, name):
        return getattr(self._bucket, name)

    async def list_page(self, prefix, *, limit=PAGE_OBJECTS, **options):
        return await self._bucket.list_page(prefix, limit=min(limit, PAGE), **options)


def many(start, count):
    return [f"{start}{number:03}" for number in range(count)]


def models(names, *files):
    return [f"{name}/{file}" for name in names for file in files]


@dataclass(frozen=True)
class Case:
    """What lies where the model `m` is looked for, and what that costs."""

    keys: list[str]
    requests: int
    finds: list[str] | None
    """Paths of files; None: there is no model."""
    schema: str | None = None
    in_file_system: bool = True
    """False: for stores that hold an object and a folder of one name."""


CASES = {
    "a folder": Case(["m/1/model.onnx", "m/config.pbtxt"], 1, ["1/model.onnx", "config.pbtxt"]),
    "a folder and a schema in it": Case(["m/model", "m/_schema.json"], 1, ["_schema.json", "model"], schema="m/_schema.json"),
    "a folder and a schema elsewhere": Case(["m/model", "s/_schema.json"], 2, ["model"], schema="s/_schema.json"),
    "a folder of three pages": Case(many("m/f", 60), 3, many("f", 60)),
    "a folder among a few siblings": Case(["m-v2/x", "m.txt", "m/x", "m0/x"], 1, ["x"]),
    "a folder behind pages of siblings": Case([*many("m-", 60), "m/x"], 2, ["x"]),
    "a folder before pages of siblings": Case([*many("m0", 60), "m/x"], 2, ["x"]),
    "a folder of two pages before pages of siblings": Case([*many("m0", 60), *many("m/f", 40)], 4, many("f", 40)),
    "a model beside pages of models": Case(models(["m", *many("m1", 60)], "1/x", "c"), 2, ["1/x", "c"]),
    "a model of one level beside pages of such": Case(models(["m", *many("m1", 60)], "x"), 2, ["x"]),
    "an object": Case(["m"], 1, ["m"]),
    "an object and a schema": Case(["m", "s/_schema.json"], 2, ["m"], schema="s/_schema.json"),
    "an object before pages of siblings": Case(["m", *many("m-", 60)], 1, ["m"]),
    "an object and a folder": Case(["m", *many("m/f", 60)], 1, ["m"], in_file_system=False),
    "nothing": Case(["other/x"], 2, None),
    "nothing but pages of siblings": Case(many("m-", 60), 3, None),
}


def found(bucket, place, schema):
    """Paths of the model's files; None: there is none."""
    search = make_search(f"{place}/m", schema_path=schema and f"{place}/{schema}")
    try:
        return [file.path for file in run(find_model(bucket, search, blocking())).listing.files]
    except SourceNotFound:
        return None


def asked_in(spoiled, cases, shown):
    """Of each case, the requests that arrived and what was found."""
    answers = {}
    for number, (title, case) in enumerate(cases.items()):
        for key in case.keys:
            spoiled.stock.put(f"case-{number}/{key}", b"x")
        spoiled.proxy.requests.clear()
        finds = found(Paged(spoiled.bucket.bucket), f"case-{number}", case.schema)
        answers[title] = (len(spoiled.proxy.requests), finds)
        shown("Requests to find a model", store=spoiled.bucket.kind, case=title, requests=answers[title][0])
    return answers


@pytest.mark.parametrize("spoiled", LISTING, indirect=True)
def test_one_listing_finds_a_model(spoiled, shown):
    """One for each page of the model; one more where siblings fill the first page; one for a schema, and one for hints."""
    is_file_system = spoiled.bucket.kind == "s3"  # the S3 server of the tests keeps its objects in one
    cases = {title: case for title, case in CASES.items() if case.in_file_system or not is_file_system}
    assert asked_in(spoiled, cases, shown) == {title: (case.requests, case.finds) for title, case in cases.items()}


WEB = {
    "an object": Case(["m"], 1, ["m"]),
    "an object and a schema": Case(["m", "s/_schema.json"], 2, ["m"], schema="s/_schema.json"),
    "nothing": Case(["other"], 1, None),
}


@pytest.mark.parametrize("spoiled", ["http"], indirect=True)
def test_one_request_finds_a_file_of_a_web_server(spoiled, shown):
    """Which has no listings: the first byte of the exact key."""
    assert asked_in(spoiled, WEB, shown) == {title: (case.requests, case.finds) for title, case in WEB.items()}
