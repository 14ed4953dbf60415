"""What a store says of all bytes of an object reaches the file before they do; nonsense in its place is nothing."""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import pytest

from adapter.errors import SourceUnavailable
from adapter.storage.bucket import Bucket, StoredObject
from adapter.storage.checksums import Checksum
from adapter.storage.pull.staged import Run, Whole
from adapter.workers import Stop
from tests.contract.bucket.conftest import bucket_of
from tests.fakes.hell import Behaviour, Hell, Peer, answering, honest
from tests.fakes.http_proxy import VARIABLES
from tests.security.stores import CONTENT, ETAG, KEY, STORES, XML

SIZE = len(CONTENT)
CRC32 = base64.b64encode(zlib.crc32(CONTENT).to_bytes(4, "big")).decode()
MD5 = base64.b64encode(hashlib.md5(CONTENT, usedforsecurity=False).digest()).decode()
SHA256 = base64.b64encode(hashlib.sha256(CONTENT).digest()).decode()
VERSION = {"ETag": f'"{ETAG}"', "X-Goog-Generation": "7"}
TOLD: dict[str, tuple[dict[str, str], str]] = {
    "s3": ({"x-amz-checksum-crc32": CRC32, "x-amz-checksum-type": "FULL_OBJECT"}, "crc32"),
    "gcs": ({"X-Goog-Hash": f"md5={MD5}"}, "md5"),
    "azure": ({"x-ms-blob-content-md5": MD5, "x-ms-blob-type": "BlockBlob"}, "md5"),
    "http": ({"Repr-Digest": f"sha-512=:nonsense:, sha-256=:{SHA256}:"}, "sha256"),
}
NONSENSE = ["", "=", "crc32", "AAAAAA==-3", "AAAAAA==, AAAAAA==", "\x80\xff", "A" * 9000, "0", "::", "sha-256=::", "crc32c=AAAAAA"]
ROW = f'<Contents><Key>{KEY}</Key><ETag>"{ETAG}"</ETag><Size>{SIZE}</Size>%s</Contents>'
PROMISE = "<ChecksumAlgorithm>CRC32</ChecksumAlgorithm><ChecksumType>FULL_OBJECT</ChecksumType>"


class Told(Run):
    """A file that keeps what it was told."""

    def __init__(self, stored: StoredObject, start: int, length: int) -> None:
        super().__init__(Whole(stored, "there"), start, length)
        self.told: list[Checksum] = []
        self.written_bytes = length

    @property
    def sees_bytes(self) -> bool:
        return self._running is not None

    def expect(self, told: Sequence[Checksum]) -> bool:
        assert not self.content
        self.told += told
        return super().expect(told)

    def end(self) -> None:
        """The test says when."""


class Rig:
    """A store whose answers to reads a test chooses."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.reading: Behaviour = STORES[kind].reading
        self.listing: Behaviour = STORES[kind].listing

    def begin(self, server: Hell) -> None:
        """This one has the answers."""
        self.server = server
        self.bucket: Bucket = bucket_of(STORES[self.kind].config(server.url))

    def answer(self, peer: Peer) -> None:
        (self.listing if STORES[self.kind].is_listing(peer) else self.reading)(peer)

    def promise(self, text: str) -> None:
        """The rows of S3's listing have this."""
        top = '<?xml version="1.0"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><IsTruncated>false</IsTruncated>'
        body = f"{top}{ROW % text}</ListBucketResult>".encode()
        self.listing = answering(200, {**XML, "Content-Length": len(body)}, body)

    def told(self, headers: Mapping[str, str], start: int = 0, length: int = SIZE, content: bytes = CONTENT) -> Told:
        """Of a read that succeeds, with these headers in its answer."""
        self.reading = honest(content, {**VERSION, **headers})
        return self.read(start, length)

    def read(self, start: int = 0, length: int = SIZE) -> Told:
        """The listed object, or a part."""
        stored = self.listed()
        sink = Told(stored, start, length)
        self.bucket.read(stored, start, length, sink, Stop())
        assert len(sink.content) == length
        return sink

    def listed(self) -> StoredObject:
        """As it is listed now."""
        return self.bucket.list_page(KEY, Stop()).objects[0]

    def methods(self) -> list[str]:
        """Of all requests that are no listings."""
        return [request.method for request in self.server.requests if "list-type=2" not in request.target]


@contextmanager
def rig_of(kind: str) -> Iterator[Rig]:
    with pytest.MonkeyPatch.context() as patched:
        for name in VARIABLES:
            patched.delenv(name, raising=False)
        made = Rig(kind)
        with Hell(made.answer) as server:
            made.begin(server)
            yield made


@pytest.fixture(params=list(STORES))
def rig(request):
    """Of each kind of store."""
    with rig_of(request.param) as made:
        yield made


@pytest.fixture
def s3():
    """Of S3, whose listing promises a checksum."""
    with rig_of("s3") as made:
        made.promise(PROMISE)
        yield made


def test_the_answer_with_the_object_tells_it(rig):
    """Without a request more; the bytes are those of the checksum."""
    headers, algorithm = TOLD[rig.kind]
    sink = rig.told(headers)

    assert [each.algorithm for each in sink.told] == [algorithm]
    Run.end(sink)
    wrong = rig.told(headers, content=CONTENT[:-1] + b"?")
    with pytest.raises(SourceUnavailable, match="not those that were stored"):
        Run.end(wrong)


@pytest.mark.parametrize("nonsense", NONSENSE, ids=[repr(text[:20]) for text in NONSENSE])
def test_nonsense_is_nothing(rig, nonsense):
    """Neither a failure nor a proof."""
    headers, _ = TOLD[rig.kind]
    first = next(iter(headers))
    sink = rig.told({**headers, first: nonsense})

    assert sink.told == []
    assert not sink.sees_bytes
    Run.end(sink)


def test_parts_checksums_are_none_of_the_whole(s3):
    """Amazon's composite ones, with and without their count."""
    for value in (CRC32, f"{CRC32}-2"):
        assert s3.told({"x-amz-checksum-crc32": value, "x-amz-checksum-type": "COMPOSITE"}).told == []
    assert s3.told({"x-amz-checksum-crc32": f"{CRC32}-2"}).told == []
    assert s3.told({"x-amz-checksum-crc32": CRC32}).told != []  # of servers that know one type alone


def test_blobs_whose_writes_do_not_renew_the_property_tell_nothing():
    with rig_of("azure") as rig:
        for kind in ("PageBlob", "AppendBlob", ""):
            assert rig.told({**TOLD["azure"][0], "x-ms-blob-type": kind}).told == []


def test_one_part_asks_s3_once(s3):
    """The part with the first byte, for the listed version. What is promised is computed of all."""
    answers = honest(CONTENT, {**VERSION, **TOLD["s3"][0]})
    s3.reading = answers
    first, second = s3.read(0, 1000), s3.read(1000, SIZE - 1000)

    assert s3.methods() == ["HEAD", "GET", "GET"]
    assert s3.server.connections == 2, "one lists, one takes bytes"
    head, get, _ = (request for request in s3.server.requests if "list-type=2" not in request.target)
    assert head.headers["if-match"] == f'"{ETAG}"'
    assert head.headers["x-amz-checksum-mode"] == "ENABLED"
    assert "x-amz-checksum-mode" in head.headers["authorization"], "it is signed"
    assert "x-amz-checksum-mode" not in get.headers
    assert [each.value for each in first.told] == [None, zlib.crc32(CONTENT).to_bytes(4, "big")]
    assert [each.value for each in second.told] == [None]


@pytest.mark.parametrize("status", [400, 403, 404, 405, 412, 501])
def test_a_refusal_leaves_the_object_as_it_comes(s3, status):
    """Whatever is wrong, the GET tells it."""
    get = honest(CONTENT, VERSION)
    s3.reading = lambda peer: (answering(status, {"Content-Length": 0}) if peer.method == "HEAD" else get)(peer)

    assert [each.value for each in s3.read(0, 1000).told] == [None]
