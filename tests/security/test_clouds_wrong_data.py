"""GCS and Azure: an answer that is not what was asked for gives no byte, takes no memory, and is said to be the server's fault."""

from __future__ import annotations

import gzip
import json

import pytest

from adapter.errors import SourceUnavailable
from adapter.workers import Stop
from tests.fakes.hell import Hell, bomb, honest
from tests.security.clouds import CONTENT, ETAG, KEY, PAGES, ROW, VERSIONS, bucket_of, cloud, listed, page, read, values

KINDS = ("gcs", "azure")


@pytest.mark.parametrize("kind", KINDS)
def test_the_honest_cloud_is_listed_and_read(kind):
    """The measure for all that follow."""
    with Hell(cloud(kind)) as server:
        bucket = bucket_of(values(kind, server.url))
        assert [row.key for row in listed(bucket).objects] == [KEY]
        assert read(bucket) == CONTENT
        assert read(bucket, 5, 10) == CONTENT[5:15]
        assert len(server.requests) == 3


@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_without_a_version_is_refused(kind):
    """It might be of any version."""
    words = r"answered without the (ETag|generation) of 'm/file' that was listed"
    with Hell(cloud(kind, reading=honest(CONTENT))) as server, pytest.raises(SourceUnavailable, match=words):
        read(bucket_of(values(kind, server.url)), 5, 10)


def test_an_object_that_is_stored_packed_stays_packed():
    """The bytes as they are stored: also where the store says what they are."""
    packed = gzip.compress(CONTENT)
    for kind, more in (("gcs", {"x-goog-stored-content-encoding": "gzip"}), ("azure", {})):
        row = json.dumps({"items": [{**ROW, "size": str(len(packed))}]}).encode()
        body = row if kind == "gcs" else PAGES[kind].replace(str(len(CONTENT)).encode(), str(len(packed)).encode())
        answer = honest(packed, {**VERSIONS[kind], **more, "Content-Encoding": "gzip"})
        with Hell(cloud(kind, listing=page(kind, body), reading=answer)) as server:
            bucket, got = bucket_of(values(kind, server.url)), bytearray()
            stored = listed(bucket).objects[0]
            bucket.read(stored, 0, len(packed), got.extend, Stop())
            assert bytes(got) == packed


@pytest.mark.parametrize("kind", KINDS)
def test_a_packed_listing_is_refused_unread(kind):
    """1 KiB of it makes 1 MiB."""
    with Hell(cloud(kind, listing=bomb(8, 200, {"Content-Type": "application/json"}))) as server:
        with pytest.raises(SourceUnavailable, match="has a Content-Encoding that was not asked for"):
            listed(bucket_of(values(kind, server.url)))
        assert server.requests[0].headers["accept-encoding"] == "identity"


def xml(rows: str, marker: str = "") -> bytes:
    return f"<EnumerationResults><Blobs>{rows}</Blobs><NextMarker>{marker}</NextMarker></EnumerationResults>".encode()


def blob(name: str = KEY, size: str = "1", etag: str = ETAG) -> str:
    properties = f"<Etag>{etag}</Etag><Content-Length>{size}</Content-Length><BlobType>BlockBlob</BlobType>"
    return f"<Blob><Name>{name}</Name><Properties>{properties}</Properties></Blob>"


def items(**fields: object) -> bytes:
    return json.dumps({"items": [{**ROW, **fields}]}).encode()


NONSENSE = {
    "gcs": {
        "nothing": b"",
        "a text": b'"items"',
        "a list": b"[]",
        "a number": b"5",
        "null": b"null",
        "half": PAGES["gcs"][:-3],
        "deep": b"[" * 5_000,
        "deep objects": b'{"a":' * 5_000,
        "many lists": b"[" + b"[]," * 100_000 + b"[]]",
        "many strings": b"[" + b'"a",' * 100_000 + b'"a"]',
        "many numbers": b"[" + b"1.5," * 100_000 + b"1]",
        "a long number": b'{"items": ' + b"9" * 5_000 + b"}",
        "items that are a number": b'{"items": 5}',
        "items that are an object": b'{"items": {"a": 1}}',
        "items that are texts": b'{"items": ["a"]}',
        "a name that is a number": items(name=5),
        "no name": json.dumps({"items": [{"size": "1", "generation": "7"}]}).encode(),
        "an empty name": items(name=""),
        "a size that is a text": items(size="many"),
        "a size that is a list": items(size=[1]),
        "a size below nothing": items(size="-1"),
        "a size beyond all": items(size=str(10**30)),
        "a generation that is a text": items(generation="x"),
        "no generation": json.dumps({"items": [{"name": KEY, "size": "1"}]}).encode(),
        "more rows than asked for": json.dumps({"items": [ROW] * 1001}).encode(),
        "folders that are numbers": b'{"prefixes": [1, 2]}',
        "folders that are a number": b'{"prefixes": 1}',
        "a token that is a number": b'{"nextPageToken": 5}',
        "not a text": b"\xff\xfe\x00",
    },
    "azure": {
        "nothing": b"",
        "a text": b"hello",
        "half": PAGES["azure"][:-9],
        "deep": b"<a>" * 5_000,
        "a declaration": b'<!DOCTYPE x [<!ENTITY a "b">]><x>&a;</x>',
        "many elements": b"<x>" + b"<a/>" * 200_000 + b"</x>",
        "many attributes": b"<x " + b" ".join(b'a%d=""' % number for number in range(150_000)) + b"/>",
        "no name": xml(blob().replace(f"<Name>{KEY}</Name>", "")),
        "a size that is a text": xml(blob(size="many")),
        "a size below nothing": xml(blob(size="-1")),
        "a size beyond all": xml(blob(size=str(10**30))),
        "a long size": xml(blob(size="9" * 5_000)),
        "no version": xml(blob(etag="")),
        "more rows than asked for": xml(blob() * 1001),
        "not a text": b"\xff\xfe\x00",
    },
}
CASES = [(kind, name) for kind, bodies in NONSENSE.items() for name in bodies]


@pytest.mark.parametrize("by_folder", [False, True])
@pytest.mark.parametrize(("kind", "name"), CASES)
def test_a_listing_that_is_none_is_the_servers_fault(kind, name, by_folder):
    """Never an error of ours, and never a row that is none."""
    with Hell(cloud(kind, listing=page(kind, NONSENSE[kind][name]))) as server:
        bucket = bucket_of(values(kind, server.url))
        with pytest.raises(SourceUnavailable, match=rf"gave an answer that is not ({'Google' if kind == 'gcs' else 'Azure'})'s"):
            bucket.list_page("m/", Stop(), by_folder=by_folder)


def test_a_page_of_the_longest_names_is_a_page():
    """1,000 names of 1,024 bytes, full of what JSON and XML must escape."""
    names = [f"{number:04}" + '[{"<&,\\' * 146 for number in range(1000)]
    body = json.dumps({"items": [{**ROW, "name": name} for name in names]}).encode()
    with Hell(cloud("gcs", listing=page("gcs", body))) as server:
        assert [row.key for row in listed(bucket_of(values("gcs", server.url))).objects] == names
    rows = "".join(blob(name.replace("&", "&amp;").replace("<", "&lt;")) for name in names)
    with Hell(cloud("azure", listing=page("azure", xml(rows)))) as server:
        assert [row.key for row in listed(bucket_of(values("azure", server.url))).objects] == names
