"""An S3 server that lies: listings that are none, bombs for a parser, ranges that disagree, redirects. No wrong byte is kept."""

from __future__ import annotations

import pytest

from adapter.errors import InvalidRequest, SourceUnavailable
from adapter.storage.bucket import StoredObject
from adapter.storage.pull.listing import find_model
from adapter.workers import Stop
from tests.fakes.hell import Hell, answering, by_target, honest
from tests.real.blocking import BlockingClients, blocking, run
from tests.security.clouds import SMALL as CONTENT
from tests.security.clouds import outcome, span
from tests.security.test_listings_that_are_none import listing, row
from tests.unit.storage.rigs import make_config, make_search

MIB = 1024 * 1024
KEYS = {"access_key_id": "AKIDEXAMPLE", "secret_access_key": "a-secret-key"}
ETAG = {"ETag": '"v1"'}
SIZE = len(CONTENT)


def xml(text, status=200, **headers):
    body = text if isinstance(text, bytes) else text.encode()
    return answering(status, {"Content-Type": "application/xml", "Content-Length": len(body), **headers}, body)


def bucket_at(server, **changes):
    values = {"type": "s3", "bucket": "b", "endpoint_url": server.url, "region": "us-east-1"} | KEYS | changes
    return BlockingClients().bucket(make_config(values))


def test_an_error_in_another_language_keeps_its_status():
    """A web page with a thousand attributes, of a proxy in between: the status says enough."""
    page = "<!DOCTYPE html><html " + " ".join(f'a{n}="x"' for n in range(3000)) + ">"
    with Hell(xml(page, 503, **{"Retry-After": 11})) as server, pytest.raises(SourceUnavailable, match="HTTP 503") as caught:
        bucket_at(server).list_page("m/", Stop())
    assert caught.value.retry_after_seconds == 11


def test_a_listing_that_turns_in_a_circle_ends():
    """The same token again; and two that lead to each other."""
    circle = by_target(
        {"continuation-token=a": xml(listing(row("m/2"), more="b")), "continuation-token=b": xml(listing(row("m/3"), more="a"))},
        otherwise=xml(listing(row("m/1"), more="a")),
    )
    for behaviour in (xml(listing(row("m/1"), more="same")), circle):
        with Hell(behaviour) as server:
            with pytest.raises(SourceUnavailable, match="a listing of 'm' without an end"):
                run(find_model(bucket_at(server).bucket, make_search("m"), blocking()))
            assert len(server.requests) <= 4


def test_empty_pages_without_end_end(monkeypatch):
    """Each with a token of its own."""
    monkeypatch.setattr("adapter.storage.pull.listing.MAX_PAGES", 20)
    numbers = iter(range(10_000))

    def answer(peer):
        xml(listing(more=f"t{next(numbers)}"))(peer)

    with Hell(answer) as server:
        with pytest.raises(SourceUnavailable, match="without an end"):
            run(find_model(bucket_at(server).bucket, make_search("m"), blocking()))
        assert len(server.requests) == 21


def test_a_key_that_is_listed_twice_is_no_model():
    """One of its two sizes would be wrong."""
    with Hell(xml(listing(row("m/a", 1), row("m/a", 2)))) as server, pytest.raises(SourceUnavailable, match="twice"):
        run(find_model(bucket_at(server).bucket, make_search("m"), blocking()))


def test_names_have_a_bound_together(monkeypatch):
    """100,000 keys of 1,024 letters that each take four bytes are 400 MiB."""
    monkeypatch.setattr("adapter.storage.pull.listing.MAX_NAMES_BYTES", 100_000)
    rows = [row(f"m/\U0001f4a3{'k' * 200}{number}") for number in range(200)]
    with Hell(xml(listing(*rows))) as server, pytest.raises(InvalidRequest, match="is it really one model"):
        run(find_model(bucket_at(server).bucket, make_search("m"), blocking()))


@pytest.mark.parametrize(("size", "chunks"), [(10, [b"12345678901"]), (10, [b"1234567890", b"x"]), (10, [b"12345", b"678901234"])])
@pytest.mark.parametrize("is_part", [False, True])
def test_a_body_in_chunks_that_does_not_end_in_time_is_another_one(size, chunks, is_part):
    """Without a Content-Length its end is all that tells; no other try goes on behind the bytes that have come."""
    framed = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
    headers = {"Transfer-Encoding": "chunked", **ETAG, **(span(5, 14) if is_part else {})}
    with Hell(answering(206 if is_part else 200, headers, framed)) as server:
        got, error = outcome(bucket_at(server), *((5, 10) if is_part else (0, size)), size=len(CONTENT) if is_part else size)
    assert type(error) is SourceUnavailable and "more than was asked for" in error.text
    assert len(got) < size


def test_what_is_stored_encoded_is_taken_as_it_is_stored():
    """An object may have a Content-Encoding of its own; its bytes are the listed ones."""
    with Hell(honest(CONTENT, {**ETAG, "Content-Encoding": "gzip"})) as server:
        assert outcome(bucket_at(server)) == (CONTENT, None)
        assert outcome(bucket_at(server), 5, 10) == (CONTENT[5:15], None)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("call", ["list", "read"])
def test_a_redirect_is_an_answer_and_no_instruction(status, call):
    """No request goes to another host, with or without credentials; the region that is named is said."""
    with Hell(answering(200)) as elsewhere:
        headers = {"Location": f"{elsewhere.url}/b", "x-amz-bucket-region": "eu-north-1", "Content-Length": 0}
        with Hell(answering(status, headers)) as server:
            bucket = bucket_at(server)
            with pytest.raises(InvalidRequest, match="the bucket is in 'eu-north-1'"):
                if call == "list":
                    bucket.list_page("m/", Stop())
                bucket.read(StoredObject("m/file", SIZE, "v1"), 0, SIZE, bytearray().extend, Stop())
            assert len(server.requests) <= 2
            assert {request.headers["host"] for request in server.requests} == {f"127.0.0.1:{server.port}"}
        assert elsewhere.connections == 0


@pytest.mark.parametrize("region", ["evil.example/", "x" * 300, "a b", "-", "../x", "eu\tx"])
def test_a_region_that_an_answer_makes_up_goes_nowhere(region):
    """It would become part of a host name, or of a signature."""
    error = f"<Error><Code>AuthorizationHeaderMalformed</Code><Region>{region}</Region></Error>"
    with Hell(xml(error, 400)) as server:
        with pytest.raises((InvalidRequest, SourceUnavailable)) as caught:
            bucket_at(server).list_page("m/", Stop())
        assert len(server.requests) == 1
    assert f"'{region}'" not in caught.value.text


def test_the_bounds_of_a_page_admit_what_s3_can_send():
    """1,000 keys of 1,024 bytes, each letter encoded, with every element that a row can have."""
    inner = "<LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>&quot;d41d8cd98f00b204e9800998ecf8427e-1234&quot;</ETag>"
    inner += "<ChecksumAlgorithm>CRC64NVME</ChecksumAlgorithm><ChecksumType>FULL_OBJECT</ChecksumType><Size>5497558138880</Size>"
    inner += (
        "<StorageClass>INTELLIGENT_TIERING</StorageClass><RestoreStatus><IsRestoreInProgress>false</IsRestoreInProgress></RestoreStatus>"
    )
    rows = "".join(f"<Contents><Key>m%2F{'%C3%BC' * 500}{number:04}</Key>{inner}</Contents>" for number in range(1000))
    text = f"<ListBucketResult><EncodingType>url</EncodingType><IsTruncated>false</IsTruncated>{rows}</ListBucketResult>"
    assert len(text) > 3 * MIB
    with Hell(xml(text)) as server:
        assert len(bucket_at(server).list_page("m/", Stop()).objects) == 1000
