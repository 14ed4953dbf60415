"""Answers of stores of any kind: a page that can be used, or words; and pages of any kind: a model's listing, or words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import event
from hypothesis import strategies as st

from adapter.errors import AdapterError
from adapter.paths import path_problem
from adapter.storage.bucket import PAGE_OBJECTS, Page, StoredObject
from adapter.storage.pull.listing import find_model
from adapter.workers import Stop
from tests.fakes.hell import Hell, Peer, answering
from tests.fuzz.fuzzing import SECRET, check_words, fuzzed, mutated, numbers, texts, trees, wire_texts
from tests.real.blocking import BlockingClients, blocking, run
from tests.unit.storage.rigs import make_config, make_search

_XML = '<?xml version="1.0" encoding="UTF-8"?>'
HONEST = {
    "s3": (
        f'{_XML}<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>b</Name><KeyCount>2</KeyCount>'
        "<IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken><EncodingType>url</EncodingType>"
        "<Contents><Key>m/1/a%20b</Key><ETag>&quot;v1&quot;</ETag><Size>10</Size></Contents>"
        "<Contents><Key>m/config.pbtxt</Key><ETag>&quot;v2&quot;</ETag><Size>0</Size></Contents>"
        "<CommonPrefixes><Prefix>m/2/</Prefix></CommonPrefixes></ListBucketResult>"
    ),
    "gcs": json.dumps(
        {"items": [{"name": "m/1/a", "size": "10", "generation": "7"}, {"name": "m/b", "size": "0", "generation": "8"}],
         "prefixes": ["m/2/"], "nextPageToken": "t"}
    ),
    "azure": (
        f'{_XML}<EnumerationResults ServiceEndpoint="http://x/" ContainerName="b"><Blobs>'
        "<Blob><Name>m/1/a</Name><Properties><Etag>0x8D</Etag><Content-Length>10</Content-Length><BlobType>BlockBlob</BlobType></Properties>"
        "<Metadata><hdi_isfolder>true</hdi_isfolder></Metadata></Blob><BlobPrefix><Name>m/2/</Name></BlobPrefix>"
        "</Blobs><NextMarker>t</NextMarker></EnumerationResults>"
    ),
}  # fmt: skip
CONFIGS = {
    "s3": {"access_key_id": "AKIDEXAMPLE", "secret_access_key": SECRET, "region": "us-east-1"},
    "gcs": {"anonymous": "true"},
    "azure": {"account_name": "account", "account_key": "c2VjcmV0LW9mLXRlc3Rz"},
}
CONTENT_TYPES = {"s3": "application/xml", "gcs": "application/json", "azure": "application/xml"}
ODD_JSON = st.dictionaries(st.sampled_from(["items", "prefixes", "nextPageToken", "error", "kind"]), trees | st.lists(trees, max_size=3))
ODD_ROWS = st.fixed_dictionaries({}, optional={"name": trees, "size": numbers | trees, "generation": numbers | trees, "metadata": trees})
odd_gcs = st.one_of(
    ODD_JSON, st.builds(lambda rows: {"items": rows}, st.lists(ODD_ROWS, max_size=3)), st.builds(lambda row: {"items": [row]}, trees)
).map(lambda found: json.dumps(found).encode())


class Answering:
    """A server whose next answer a test chooses."""

    def __init__(self) -> None:
        self.status, self.kind, self.body = 200, "", b""

    def __call__(self, peer: Peer) -> None:
        answering(self.status, {"Content-Type": self.kind, "Content-Length": len(self.body)}, self.body)(peer)


@dataclass
class Rig:
    clients: BlockingClients
    url: str
    answer: Answering

    def page(self, kind: str, status: int, body: bytes, by_folder: bool) -> Page:
        self.answer.status, self.answer.kind, self.answer.body = status, CONTENT_TYPES[kind], body
        place = f"{self.url}/account" if kind == "azure" else self.url
        config = make_config({"type": kind, "bucket": "b", "endpoint_url": place} | CONFIGS[kind])
        return self.clients.bucket(config).list_page("m/", Stop(), by_folder=by_folder)


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    answer, clients = Answering(), BlockingClients()
    with Hell(answer) as server:
        yield Rig(clients, server.url, answer)


def check_page(page: Page) -> None:
    assert len(page.objects) + len(page.folders) <= PAGE_OBJECTS
    for stored in page.objects:
        assert isinstance(stored.key, str) and isinstance(stored.etag, str) and 0 <= stored.size_bytes < 2**63
    assert all(isinstance(folder, str) and folder for folder in page.folders)
    assert page.next_token is None or page.next_token


@pytest.mark.parametrize("kind", sorted(HONEST))
def test_the_honest_answers_are_pages(rig: Rig, kind: str) -> None:
    """Otherwise the tests that follow prove little."""
    page = rig.page(kind, 200, HONEST[kind].encode(), by_folder=True)
    check_page(page)
    assert page.objects and page.folders == ("m/2/",) and page.next_token == "t"


answers = st.sampled_from(sorted(HONEST)).flatmap(
    lambda kind: st.tuples(st.just(kind), mutated(st.just(HONEST[kind].encode())) | (odd_gcs if kind == "gcs" else st.binary(max_size=80)))
)


@fuzzed(answer=answers, status=st.sampled_from([200] * 12 + [206, 204, 400, 403, 404, 412, 429, 500, 503]), by_folder=st.booleans())
def test_any_answer_of_a_store_is_a_page_or_words(rig: Rig, answer: tuple[str, bytes], status: int, by_folder: bool) -> None:
    kind, body = answer
    try:
        page = rig.page(kind, status, body, by_folder)
    except AdapterError as error:
        event(f"{kind}: {error.reason}")
        check_words(error)
        return
    event(f"{kind}: a page")
    check_page(page)


class Scripted:
    """A bucket that gives these pages, one after the other, whatever is asked."""

    kind, place, endpoint, words = "memory", "memory://b", "memory", "bucket 'b' in memory"

    def __init__(self, pages: list[Page]) -> None:
        self._pages = iter(pages)

    async def list_page(self, prefix: str, *, token: str | None = None, limit: int = PAGE_OBJECTS, by_folder: bool = False) -> Page:
        return next(self._pages, Page(()))


KEYS = [
    "m/",
    "m",
    "m/1/a",
    "m/1",
    "m/a/",
    "mm",
    "other",
    "m//a",
    "m/../x",
    "m/a\0b",
    "m/" + "x" * 256,
    "m/" + "d/" * 600 + "a",
    "s.json",
    "",
]
keys = st.sampled_from(KEYS) | texts.map(lambda text: f"m/{text}") | texts
objects = st.builds(StoredObject, keys, st.sampled_from([0, 1, 2**40, 2**62]), st.sampled_from(["", "v1", "v2"]))
pages = st.builds(
    Page, st.lists(objects, max_size=5).map(tuple), st.lists(keys, max_size=2).map(tuple), st.none() | st.sampled_from(["t", "u"]) | texts
)


@fuzzed(
    found=st.lists(pages, max_size=5),
    path=st.sampled_from(["m", "/m/", "m/1", "s.json"]) | wire_texts,
    schema=st.none() | st.sampled_from(["s.json", "m/s.json"]) | wire_texts,
)
def test_any_pages_are_a_listing_of_files_or_words(found: list[Page], path: str, schema: str | None) -> None:
    """Every path can lie below a model, once, and in order."""
    try:
        model = run(find_model(Scripted(found), make_search(path, schema_path=schema), blocking()))
    except AdapterError as error:
        event(error.reason)
        check_words(error)
        return
    listed = [file.path for file in model.listing.files]
    assert listed == sorted(set(listed)) and listed
    assert not any(path_problem(each) for each in listed)
    assert not any(f"{one}/" == other[: len(one) + 1] for one in listed for other in listed)
    assert all(model.stored(file).key for file in model.listing.files)
