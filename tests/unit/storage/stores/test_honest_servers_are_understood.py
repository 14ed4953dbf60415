"""Servers differ in what is no fault of theirs: their answers are taken, and their connections are used again."""

from __future__ import annotations

import socket
from ipaddress import ip_network

import pytest

from adapter.storage.bucket import PAGE_OBJECTS, StoredObject
from adapter.storage.net.messages import Guard
from adapter.workers import Stop
from tests.fakes.hell import Hell, answering, honest
from tests.real.blocking import BlockingClients
from tests.security.stores import CONTENT, ETAG, KEY, STORES
from tests.unit.storage.rigs import make_config

VERSIONS = dict.fromkeys(STORES, ETAG) | {"gcs": "7"}


def bucket_of(values):
    return BlockingClients().bucket(make_config(values))


def reads(server, kind, starts=(5,)):
    """List, and read 1000 bytes from each of these places on."""
    bucket = bucket_of(STORES[kind].config(server.url))
    assert [stored.size_bytes for stored in bucket.list_page(KEY, Stop()).objects] == [len(CONTENT)]
    for start in starts:
        assert bucket.bytes_of(StoredObject(KEY, len(CONTENT), VERSIONS[kind]), start, 1000) == CONTENT[start : start + 1000]
    return bucket


# ---- connections


@pytest.mark.parametrize("kind", STORES)
def test_a_listing_and_fifty_parts_take_one_connection(kind):
    with Hell(STORES[kind].honest) as server:
        reads(server, kind, range(0, 50_000, 1000))
        assert server.connections == 1


# ---- S3


def s3_page(row, count=PAGE_OBJECTS):
    rows = "".join(row.format(key=f"models/{number:06}") for number in range(count))
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
        f"<Name>b</Name><IsTruncated>false</IsTruncated>{rows}</ListBucketResult>"
    ).encode()


S3_ROWS = {
    "everything that Amazon has": (
        "<Contents><ChecksumAlgorithm>CRC64NVME</ChecksumAlgorithm><ChecksumAlgorithm>SHA256</ChecksumAlgorithm>"
        "<ChecksumType>FULL_OBJECT</ChecksumType><ETag>&quot;d41d8cd98f00b204e9800998ecf8427e-12&quot;</ETag><Key>{key}</Key>"
        "<LastModified>2026-01-01T00:00:00.000Z</LastModified><Owner><DisplayName>someone</DisplayName><ID>0123456789abcdef</ID></Owner>"
        "<RestoreStatus><IsRestoreInProgress>false</IsRestoreInProgress><RestoreExpiryDate>2026-01-01T00:00:00Z</RestoreExpiryDate>"
        "</RestoreStatus><Size>5</Size><StorageClass>STANDARD</StorageClass></Contents>\n"
    ),
    "owners with a type": (
        '<Contents><Key>{key}</Key><ETag>"x"</ETag><Size>5</Size><Owner xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" '
        'xsi:type="CanonicalUser"><ID>1</ID></Owner></Contents>'
    ),
    "rows that name their language": (
        '<Contents xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Key>{key}</Key><ETag>"x"</ETag><Size>5</Size></Contents>'
    ),
}


@pytest.mark.parametrize("name", S3_ROWS)
def test_a_full_page_of_s3_is_read(name):
    body = s3_page(S3_ROWS[name])
    with Hell(answering(200, {"Content-Length": len(body), "Content-Type": "application/xml"}, body)) as server:
        assert len(bucket_of(STORES["s3"].config(server.url)).list_page("m", Stop()).objects) == PAGE_OBJECTS


# ---- web servers


WEB_SERVERS = {
    "weak ETags": {"ETag": 'W/"v1"'},
    "a date alone": {"Last-Modified": "Sat, 21 Nov 2026 10:00:00 GMT"},
    "an ETag without quotes": {"ETag": "v1"},
    "an encoding that is none": {"ETag": '"v1"', "Content-Encoding": "identity"},
    "a character set for an encoding": {"ETag": '"v1"', "Content-Encoding": "UTF-8"},
    "the framing of an upload for an encoding": {"ETag": '"v1"', "Content-Encoding": "aws-chunked"},
    "many headers": {"ETag": '"v1"'} | {f"X-Amz-Meta-{number}": "v" * 20 for number in range(80)},
}


@pytest.mark.parametrize("name", WEB_SERVERS)
def test_a_web_server_has_its_ways(name):
    with Hell(honest(CONTENT, WEB_SERVERS[name])) as server:
        bucket = bucket_of({"type": "http", "url": server.url})
        found = bucket.list_page(KEY, Stop()).objects[0]
        assert (found.size_bytes, found.is_divisible) == (len(CONTENT), True)
        assert bucket.bytes_of(found, 5, 100) == CONTENT[5:105]
        assert bucket.bytes_of(found, 0, len(CONTENT)) == CONTENT
        assert server.connections == 1


@pytest.mark.parametrize("kind", STORES)
def test_servers_that_hang_up_after_each_answer_are_asked_again(kind):

    def answer(peer):
        head = peer.head
        peer.head = lambda status, own: head(status, {**own, "Connection": "close"})
        STORES[kind].honest(peer)
        peer.hang_up()

    with Hell(answer) as server:
        reads(server, kind, range(0, 5000, 1000))


@pytest.mark.parametrize("kind", STORES)
def test_servers_of_http_1_0_are_understood(kind):
    def answer(peer):
        send = peer.send
        peer.send = lambda some: send(some.replace(b"HTTP/1.1", b"HTTP/1.0", 1) if some.startswith(b"HTTP/1.1") else some)
        STORES[kind].honest(peer)
        peer.hang_up()

    with Hell(answer) as server:
        reads(server, kind)


@pytest.mark.parametrize("kind", STORES)
def test_hosts_may_be_ipv6(kind):
    with Hell(STORES[kind].honest, host="::1") as server:
        assert f"[::1]:{server.port}" in reads(server, kind).words


@pytest.mark.parametrize("kind", STORES)
def test_of_several_addresses_the_first_may_be_dead(kind, monkeypatch):
    """It refuses. Those of a guarded request are looked up by us, and libcurl is told all of them."""
    real = socket.getaddrinfo
    dead = "127.0.0.77"  # no process listens

    def looked_up(host, *rest, **kinds):
        if host != "several.test":
            return real(host, *rest, **kinds)
        if socket.AI_NUMERICHOST in rest:
            raise socket.gaierror(socket.EAI_NONAME, "a name")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in (dead, "127.0.0.1")]

    monkeypatch.setattr(socket, "getaddrinfo", looked_up)
    with Hell(STORES[kind].honest) as server:
        values = STORES[kind].config(server.url.replace("127.0.0.1", "several.test"))
        config = make_config(values, requested=frozenset({"url" if kind == "http" else "endpoint_url"}))
        bucket = BlockingClients(guard=Guard((ip_network("192.0.2.0/24"),))).bucket(config)
        assert len(bucket.list_page(KEY, Stop()).objects) == 1
        assert server.connections == 1
