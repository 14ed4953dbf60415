"""
A GET over TLS, through a tunnel and over plain http, to memory and to a file: same bytes, same errors.

A tunnel leaves the answer as the server sent it, so what is spoiled arrives spoiled.
"""

from __future__ import annotations

import gc
import os
import ssl
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from adapter.errors import AdapterError, InvalidRequest, SourceUnavailable
from adapter.storage.bucket import Bucket, Read, StoredObject
from adapter.workers import Stop
from tests.contract.bucket.conftest import bucket_of
from tests.fakes.hell import Behaviour, Hell, Peer, answering, endless_headers, honest, redirecting, resetting
from tests.fakes.http_proxy import VARIABLES, HttpProxy
from tests.real.certificates import Certificates
from tests.security.clouds import server_tls
from tests.security.stores import CONTENT, KEY, STORES

START, LENGTH = 5, 1_500_000
"""More than one buffer."""
SIZE = len(CONTENT)
PART = CONTENT[START : START + LENGTH]
ETAG = '"0x8D4BCC2E4835CD0"'
VERSION: dict[str, str | int] = {"ETag": ETAG, "X-Goog-Generation": "7", "x-ms-blob-type": "BlockBlob"}
SPAN = f"bytes {START}-{START + LENGTH - 1}/{SIZE}"
RANGE: dict[str, str | int] = {**VERSION, "Content-Range": SPAN}


LAST_CHUNK = b"0\r\n\r\n"


def chunked(*chunks: bytes, end: bytes = LAST_CHUNK) -> Behaviour:
    """With another end it hangs up. Whoever hangs up behind a whole answer races with the next request on that connection."""

    def answer(peer: Peer) -> None:
        peer.head(206, {**RANGE, "Transfer-Encoding": "chunked"})
        for chunk in chunks:
            peer.send(b"%x\r\n%b\r\n" % (len(chunk), chunk))
        peer.send(end)
        if end != LAST_CHUNK:
            peer.hang_up()

    return answer


def ending_early(sent: int) -> Behaviour:
    def answer(peer: Peer) -> None:
        peer.head(206, {**RANGE, "Content-Length": LENGTH})
        peer.send(PART[:sent])
        peer.hang_up()

    return answer


def raw(text: bytes, *, hangs_up: bool = True) -> Behaviour:
    def answer(peer: Peer) -> None:
        peer.send(text)
        if hangs_up:
            peer.hang_up()

    return answer


def refusing(status: int, body: bytes = b"", headers: Mapping[str, str | int] | None = None) -> Behaviour:
    return answering(status, {"Content-Length": len(body), "Content-Type": "application/xml", **(headers or {})}, body)


def document(code: str) -> bytes:
    return f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>no</Message></Error>'.encode()


ANSWERS: dict[str, Behaviour] = {
    "honest": honest(CONTENT, VERSION),
    "in chunks": chunked(PART[:1000], PART[1000:]),
    "until the connection ends": answering(206, RANGE, PART),
    "early hints before": raw(
        b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 206 OK\r\n"
        + "".join(f"{name}: {value}\r\n" for name, value in {**RANGE, "Content-Length": LENGTH}.items()).encode()
        + b"\r\n"
        + PART,
        hangs_up=False,
    ),
    "a body that ends early": ending_early(700_000),
    "a body that ends at once": ending_early(0),
    "a longer body": answering(206, {**RANGE, "Content-Length": LENGTH + 1}, PART + b"x"),
    "a longer body in chunks": chunked(PART, b"x"),
    "a longer body until the connection ends": answering(206, RANGE, PART + b"x"),
    "a shorter body until the connection ends": answering(206, RANGE, PART[:-1]),
    "chunks that end early": chunked(PART[:1000], end=b""),
    "chunks that end inside of one": chunked(PART[:1000], end=b"ff\r\n" + PART[1000:1002]),
    "chunks of no size": chunked(PART[:1000], end=b"zz\r\n"),
    "the whole": answering(200, {**VERSION, "Content-Length": SIZE}, CONTENT),
    "another range": answering(206, {**RANGE, "Content-Length": LENGTH, "Content-Range": f"bytes 6-{LENGTH + 5}/{SIZE}"}, PART),
    "no range": answering(206, {**VERSION, "Content-Length": LENGTH}, PART),
    "another size": answering(206, {**RANGE, "Content-Length": LENGTH, "Content-Range": SPAN.replace(str(SIZE), "9999999")}, PART),
    "another version": honest(CONTENT, {"ETag": '"other"', "X-Goog-Generation": "8"}),
    "no version": honest(CONTENT),
    "two lengths": raw(b"HTTP/1.1 206 OK\r\nContent-Length: 7\r\nContent-Length: 8\r\n\r\n1234567"),
    "a length that is no number": raw(f"HTTP/1.1 206 OK\r\nContent-Length: many\r\nContent-Range: {SPAN}\r\n\r\n".encode() + PART),
    "an encoding": answering(206, {**RANGE, "Content-Length": LENGTH, "Content-Encoding": "gzip"}, PART),
    "nothing": refusing(204, headers=VERSION),
    "not modified": refusing(304),
    "refused": refusing(403, document("AccessDenied")),
    "not known": refusing(401, document("AuthenticationFailed"), {"WWW-Authenticate": "Bearer"}),
    "gone": refusing(404, document("NoSuchKey")),
    "the container is gone": refusing(404, document("ContainerNotFound"), {"x-ms-error-code": "ContainerNotFound"}),
    "a code in a header alone": refusing(409, headers={"x-ms-error-code": "PublicAccessNotPermitted"}),
    "replaced": refusing(412, document("ConditionNotMet")),
    "beyond the end": refusing(416, headers={"Content-Range": f"bytes */{SIZE}"}),
    "busy": refusing(503, document("SlowDown"), {"Retry-After": "7"}),
    "too many": refusing(429, b"not today", {"Retry-After": "7"}),
    "broken": refusing(500, document("InternalError")),
    "wrong": refusing(400, document("InvalidArgument")),
    "a refusal that ends early": raw(b"HTTP/1.1 403 No\r\nContent-Length: 90\r\n\r\nnot"),
    "a refusal that is encoded": refusing(403, b"\x1f\x8b", {"Content-Encoding": "gzip"}),
    "headers without end": endless_headers(),
    "no HTTP": raw(b"SSH-2.0-OpenSSH_9.6\r\n"),
    "nothing at all": raw(b""),
    "a reset": resetting(),
}
ENDS_WITH_THE_CONNECTION = "until the connection ends"
"""Over TLS a connection that just ends may have been cut by anybody."""
TO_THE_PROXY = " (on the way to the proxy)"
"""What the words end with where the tunnel broke."""


@dataclass(frozen=True)
class Outcome:
    """What a read came to, besides the bytes that it gave."""

    is_whole: bool
    error: type[AdapterError] | None
    words: str
    can_pass: object
    retry_after: object


class Kept(Read):
    """A file."""

    def __init__(self, stored: StoredObject, file: int) -> None:
        super().__init__(stored, START, LENGTH)
        self.file = file
        self.written_bytes = LENGTH

    def keep(self, chunk: bytes | memoryview) -> None:
        os.pwrite(self.file, chunk, self.taken)


class Ways:
    """One store behind three ways to it, whose reads are answered as a test wants."""

    def __init__(self, kind: str, tls: tuple[ssl.SSLContext, Certificates], folder: Path) -> None:
        self.kind = kind
        self._store = STORES[kind]
        self._reading: Behaviour = self._store.reading
        self._folder = folder
        self._tls = Hell(self._answer, tls=tls[0])
        self._plain = Hell(self._answer)
        self.proxy = HttpProxy()
        self._certificate = tls[1].ca_pem

    def __enter__(self) -> Ways:
        self._stack = ExitStack()
        for each in (self._tls, self._plain, self.proxy):
            self._stack.enter_context(each)
        config = {**self._store.config(f"https://localhost:{self._tls.port}"), "certificate": self._certificate}
        with self._tunnel():
            self._tunnelled = bucket_of(config)
        self._direct = bucket_of(config)
        self._plainly = bucket_of(self._store.config(self._plain.url))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def through_a_tunnel(self, reading: Behaviour) -> Outcome:
        """Of a proxy, over TLS."""
        with self._tunnel():
            found = self._outcome(self._tunnelled, reading, is_file=False)
        return replace(found, words=found.words.removesuffix(TO_THE_PROXY))

    def straight(self, reading: Behaviour, *, is_file: bool) -> Outcome:
        """Over TLS."""
        return self._outcome(self._direct, reading, is_file=is_file)

    def plain(self, reading: Behaviour) -> Outcome:
        """Over plain http, into a file."""
        return self._outcome(self._plainly, reading, is_file=True)

    def _answer(self, peer: Peer) -> None:
        self._store.spoiled("reading", self._reading)(peer)

    @contextmanager
    def _tunnel(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patched:
            patched.setenv("HTTPS_PROXY", self.proxy.url)
            yield

    def _outcome(self, bucket: Bucket, reading: Behaviour, *, is_file: bool) -> Outcome:
        """Of a listing that is honest, and a read of a part."""
        self._reading, got, error = self._store.reading, bytearray(), None
        stored = bucket.list_page(KEY, Stop()).objects[0]
        self._reading = reading
        with (self._folder / "part").open("w+b") as file:
            try:
                bucket.read(stored, START, LENGTH, Kept(stored, file.fileno()) if is_file else got.extend, Stop())
            except AdapterError as caught:
                error = caught
            content = file.read() if is_file else bytes(got)
        assert PART.startswith(content), "what reached the sink is right"
        return Outcome(
            content == PART,
            type(error) if error else None,
            error.text if error else "",
            getattr(error, "can_pass", None),
            getattr(error, "retry_after_seconds", None),
        )


@pytest.fixture(scope="module", params=list(STORES))
def ways(request, tmp_path_factory):
    """To each kind of store."""
    with pytest.MonkeyPatch.context() as patched:
        for name in (*VARIABLES, "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"):
            patched.delenv(name, raising=False)
        with Ways(request.param, server_tls(tmp_path_factory.mktemp("tls")), tmp_path_factory.mktemp("parts")) as made:
            yield made


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_has_one_meaning_whichever_way_it_came(ways, name):
    """To memory and to a file, over TLS; over plain http the words may hint at https."""
    reading = ANSWERS[name]
    expected = ways.through_a_tunnel(reading)
    assert expected.is_whole == (expected.error is None)
    assert ways.straight(reading, is_file=False) == expected
    assert ways.straight(reading, is_file=True) == expected
    plain = ways.plain(reading)
    if name == ENDS_WITH_THE_CONNECTION:
        assert (expected.error, plain.error) == (SourceUnavailable, None)
    else:
        assert replace(plain, words=expected.words) == expected


def test_a_redirect_in_a_read_has_one_meaning(ways):
    """A web server's is followed, and not to plain http; a cloud's would lead somebody else's answer into the model."""
    with Hell(honest(CONTENT, VERSION)) as elsewhere:
        reading = redirecting(f"{elsewhere.url}/x", 307)
        expected, found = ways.through_a_tunnel(reading), ways.straight(reading, is_file=True)
        assert (found.is_whole, found.error) == (expected.is_whole, expected.error) == (False, InvalidRequest)
        assert not elsewhere.requests


def test_the_ways_are_different(ways):
    """Else nothing was compared."""
    before = len(ways.proxy.requests)
    ways.straight(honest(CONTENT, VERSION), is_file=True)
    assert len(ways.proxy.requests) == before
    ways.through_a_tunnel(answering(206, {**RANGE, "Content-Length": LENGTH + 1}, PART + b"x"))
    ways.through_a_tunnel(honest(CONTENT, VERSION))
    assert {request.method for request in ways.proxy.requests} == {"CONNECT"}
    assert len(ways.proxy.requests) > before


def test_no_connection_of_all_these_reads_was_left_open(ways):
    """Of each store, after all others: one that nobody has closed is told when it is collected, and that fails this test."""
    assert ways.proxy.requests
    gc.collect()
