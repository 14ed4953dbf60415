"""A web server that lies, or names no versions: encodings, lengths and ranges that disagree, redirects. No wrong byte is kept."""

from __future__ import annotations

import gzip
from ipaddress import ip_network

import pytest

from adapter.errors import InvalidRequest, SourceChanged, SourceUnavailable
from adapter.storage.net.messages import FREE, Guard
from adapter.workers import Stop
from tests.builders import a_spec
from tests.contract.bucket.model_rigs import make_store
from tests.fakes.hell import Hell, answering, by_target, endless_body, honest, in_turn, redirecting
from tests.real.blocking import BlockingClients
from tests.security.clouds import SMALL as CONTENT
from tests.security.clouds import outcome, span
from tests.unit.storage.rigs import make_config, opened

MIB = 1024 * 1024
SIZE = len(CONTENT)
ETAG = {"ETag": '"v1"'}
DENIED = Guard((ip_network("127.0.0.0/8"), ip_network("169.254.0.0/16")))


def bucket_at(server, guard=FREE, **changes):
    requested = changes.pop("requested", frozenset())
    config = make_config({"type": "http", "url": server.url} | changes, requested=requested)
    return BlockingClients(guard=guard).bucket(config)


def listed(bucket, key="m/file"):
    return bucket.list_page(key, Stop()).objects[0]


# ---- the question for the first byte

ODD_FIRST_ANSWERS = {
    "another range": (206, {**span(5, 5), "Content-Length": 1}, b"x", SourceUnavailable),
    "more than was asked for": (206, {**span(0, 99), "Content-Length": 100}, b"x" * 100, SourceUnavailable),
    "no range": (206, {"Content-Length": 1}, b"x", SourceUnavailable),
    "a range of no total": (206, {"Content-Range": "bytes 0-0/*", "Content-Length": 1}, b"x", InvalidRequest),
    "a total of 30 digits": (206, {"Content-Range": f"bytes 0-0/{'9' * 30}", "Content-Length": 1}, b"x", SourceUnavailable),
    "an empty part": (206, {**span(0, 0), "Content-Length": 1}, b"", SourceUnavailable),
    "no length": (200, {"Transfer-Encoding": "chunked"}, b"1\r\nx\r\n0\r\n\r\n", InvalidRequest),
    "two lengths": (200, {"Content-Length": "5, 6"}, b"x" * 5, SourceUnavailable),
    "a negative length": (200, {"Content-Length": "-5"}, b"x" * 5, SourceUnavailable),
    "a length of 30 digits": (200, {"Content-Length": "9" * 30}, b"x", InvalidRequest),
    "nothing": (204, {}, b"", InvalidRequest),
    "encoded": (200, {"Content-Length": 5, "Content-Encoding": "br"}, b"x" * 5, InvalidRequest),
    "encoded on the way": (200, {"Content-Length": 5, "Transfer-Encoding": "gzip"}, b"x" * 5, SourceUnavailable),
}


@pytest.mark.parametrize("name", ODD_FIRST_ANSWERS)
def test_an_odd_first_answer_has_a_class(name):
    """And is never an internal error, or a file of a wrong length."""
    status, headers, content, expected = ODD_FIRST_ANSWERS[name]

    def answer(peer):
        peer.head(status, headers)
        peer.send(content)
        peer.hang_up()

    with Hell(answer) as server, pytest.raises(expected) as caught:
        listed(bucket_at(server))
    assert type(caught.value) is expected


@pytest.mark.parametrize("status", [200, 206])
def test_of_an_endless_first_answer_one_byte_is_read(status):
    """The connection is closed then."""
    headers = {**span(0, 0, 11)} if status == 206 else {"Content-Length": 10**12}
    with Hell(endless_body(status, headers, is_chunked=False)) as server:
        assert listed(bucket_at(server)).size_bytes == (11 if status == 206 else 10**12)
        assert server.sent_bytes < 16 * MIB


# ---- what a body is


@pytest.mark.parametrize("encoding", ["gzip", "x-gzip"])
@pytest.mark.parametrize("key", ["m/model.tar.gz", "m/model.TGZ", "m/file.gz"])
def test_a_packed_file_that_is_called_encoded_is_taken_as_it_is_stored(encoding, key):
    """Apache's `AddEncoding x-gzip .gz .tgz` says so of a file that is not encoded: its length is that of the file."""
    packed = gzip.compress(CONTENT)
    with Hell(honest(packed, {**ETAG, "Content-Encoding": encoding})) as server:
        bucket = bucket_at(server)
        stored = listed(bucket, key)
        assert stored.size_bytes == len(packed)
        assert outcome(bucket, length=len(packed), size=len(packed), key=key) == (packed, None)


@pytest.mark.parametrize(
    ("key", "encoding"), [("m/file", "gzip"), ("m/model.tar.gz", "br"), ("m/model.tar.gz", "gzip, br"), ("m/x", "weird-1")]
)
def test_an_encoding_that_was_not_asked_for_is_refused_in_words(key, encoding):
    """Its bytes are not the file's. A word that a server makes up is not repeated."""
    words, headers = "in an encoding that was not asked for", {**ETAG, "Content-Encoding": encoding}
    with Hell(honest(CONTENT, headers)) as server, pytest.raises(InvalidRequest, match=words) as caught:
        listed(bucket_at(server), key)
    assert "weird" not in caught.value.text


@pytest.mark.parametrize("headers", [{"ETag": '"v"'}, {"ETag": '"v"', "Last-Modified": "Wed, 21 Oct 2015 07:28:00 GMT"}])
def test_a_version_that_a_server_no_longer_names_is_not_held_to(headers):
    """A farm of unequal servers, behind one name."""
    with Hell(in_turn(honest(CONTENT, headers), honest(CONTENT))) as server:
        bucket = bucket_at(server)
        stored, got = listed(bucket), bytearray()
        with pytest.raises(SourceChanged):
            bucket.read(stored, 5, 10, got.extend, Stop())
        assert got == b""


# ---- no version at all


def test_a_file_without_a_version_is_asked_for_whole():
    """Although its server gives ranges: two of them might be of two versions."""
    with Hell(honest(CONTENT)) as server:
        bucket = bucket_at(server)
        stored = listed(bucket)
        assert (stored.is_versioned, stored.is_divisible, stored.size_bytes) == (False, False, SIZE)
        assert outcome(bucket, etag="") == (CONTENT, None)
        assert "range" not in server.requests[-1].headers


@pytest.fixture
def pull(tmp_path, volume):
    """Pulls `m/file` from a server, as a load does."""
    stores = []

    async def pulled(server):
        stores.append(make_store(tmp_path, volume, {"type": "http", "url": server.url}))
        model = await opened(stores[-1], a_spec(path="m/file", storage_key="k"))
        return model.listing, (await model.fetch(model.listing.files)).root / "file"

    yield pulled
    for store in stores:
        store.close()


async def test_a_file_without_a_version_is_pulled_in_one_request(pull):
    """Several requests could mix two versions into one file."""
    with Hell(honest(CONTENT)) as server:
        listing, file = await pull(server)
        assert file.read_bytes() == CONTENT
        assert not listing.is_versioned
        assert len(server.requests) == 2


async def test_a_file_without_a_version_is_not_resumed(pull):
    """The rest might be another file's: the pull begins anew."""
    half = answering(200, {"Content-Length": SIZE}, CONTENT[: SIZE // 2])

    def broken(peer):
        half(peer)
        peer.hang_up()

    with Hell(in_turn(honest(CONTENT), broken, honest(bytes(SIZE)))) as server:
        with pytest.raises(SourceChanged, match=r"broke off, and .* names no version to go on with"):
            await pull(server)
        assert len(server.requests) == 2


# ---- redirects


def test_where_a_redirect_leads_is_guarded_although_the_config_is_free():
    """What the stored config names is its operator's choice; whereto that server sends on is not."""
    with Hell(honest(CONTENT, ETAG)) as elsewhere, Hell(redirecting(f"{elsewhere.url}/file?sig=the-secret")) as server:
        words = r"redirected to an address that may not be dialled \(REQUEST_ENDPOINTS_DENIED\)$"
        with pytest.raises(InvalidRequest, match=words) as caught:
            listed(bucket_at(server, DENIED))
        assert elsewhere.connections == 0
        assert "secret" not in caught.value.text and server.url in caught.value.text


def test_a_redirect_within_the_stored_server_is_free():
    """The same host and port."""
    with Hell(by_target({"/other": honest(CONTENT, ETAG)}, otherwise=redirecting("/other"))) as server:
        assert listed(bucket_at(server, DENIED)).size_bytes == SIZE


def test_a_refusal_says_when_to_come_back():
    """For the pause before the next try."""
    with Hell(answering(503, {"Retry-After": 9, "Content-Length": 0})) as server:
        bucket = bucket_at(server)
        with pytest.raises(SourceUnavailable) as caught:
            listed(bucket)
        assert caught.value.retry_after_seconds == 9
        assert outcome(bucket)[1].retry_after_seconds == 9
