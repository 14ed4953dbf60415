"""GCS and Azure: the version of an answer counts, and bytes are taken as they are stored."""

from __future__ import annotations

import gzip

import pytest

from adapter.errors import SourceUnavailable
from adapter.workers import Stop
from tests.fakes.hell import Hell, bomb, honest
from tests.security.clouds import CONTENT, KEY, PAGES, bucket_of, cloud, listed, page, read

KINDS = ("gcs", "azure")


@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_without_a_version_is_refused(kind):
    """It might be of any version."""
    words = rf"answered without the (ETag|generation) of '{KEY}' that was listed"
    with Hell(cloud(kind, reading=honest(CONTENT))) as server, pytest.raises(SourceUnavailable, match=words):
        read(bucket_of(kind, server.url), 5, 10)


@pytest.mark.parametrize(("kind", "more"), [("gcs", {"x-goog-stored-content-encoding": "gzip"}), ("azure", {})])
def test_an_object_that_is_stored_packed_stays_packed(kind, more):
    """The bytes as they are stored: also where the store says what they are."""
    packed = gzip.compress(CONTENT)
    listing = page(kind, PAGES[kind].replace(str(len(CONTENT)), str(len(packed))))
    versions = {"x-goog-generation": "7", "ETag": '"0x8D4BCC2E4835CD0"', "Content-Encoding": "gzip"}
    with Hell(cloud(kind, listing=listing, reading=honest(packed, {**versions, **more}))) as server:
        bucket, got = bucket_of(kind, server.url), bytearray()
        bucket.read(listed(bucket).objects[0], 0, len(packed), got.extend, Stop())
    assert bytes(got) == packed


@pytest.mark.parametrize("kind", KINDS)
def test_a_packed_listing_is_refused_unread(kind):
    """1 KiB of it makes 1 MiB."""
    with Hell(cloud(kind, listing=bomb(8, 200, {"Content-Type": "application/json"}))) as server:
        with pytest.raises(SourceUnavailable, match="has a Content-Encoding that was not asked for"):
            listed(bucket_of(kind, server.url))
        assert server.requests[0].headers["accept-encoding"] == "identity"
