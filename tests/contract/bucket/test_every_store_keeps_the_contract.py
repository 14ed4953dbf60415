"""The contract of `Bucket`, on every store that we have."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from adapter.errors import SourceChanged, SourceNotFound
from adapter.workers import Stop, Stopped

ODD_KEYS = ["m/a b.bin", "m/plus+sign", "m/100%.txt", "m/ünï-日本.bin", "m/amp&eq=q?", "m/#hash", "m/semi;colon", "m/'quote'", "m/~tilde"]


def test_a_page_holds_keys_sizes_and_etags_in_order(rig):
    """A listing is everything below the prefix, sorted, with sizes."""
    rig.require_listings()
    for key, size in (("m/b", 3), ("m/a/x", 0), ("m/a/y", 70_000), ("n/a", 1)):
        rig.put(key, bytes(size))
    page = rig.bucket.list_page("m/", Stop())
    assert [(row.key, row.size_bytes) for row in page.objects] == [("m/a/x", 0), ("m/a/y", 70_000), ("m/b", 3)]
    assert page.next_token is None


def test_pages_join_without_gap_or_overlap(rig):
    """Following the tokens gives every key once."""
    rig.require_listings()
    keys = [f"m/f{number:02}" for number in range(25)]
    for key in keys:
        rig.put(key, b"x")
    seen, token, pages = [], None, 0
    while True:
        page = rig.bucket.list_page("m/", Stop(), token=token, limit=10)
        seen += [row.key for row in page.objects]
        pages += 1
        token = page.next_token
        if token is None:
            break
    assert seen == keys
    assert pages == 3


def test_a_prefix_is_plain_text(rig):
    """A prefix without slash also finds what goes on behind it."""
    rig.require_listings()
    for key in ("resnet-v2/a", "resnet/a", "resnet"[:5] + "x"):
        rig.put(key, b"x")
    assert [row.key for row in rig.bucket.list_page("resnet", Stop()).objects] == ["resnet-v2/a", "resnet/a"]


def test_by_folder_shows_one_level(rig):
    """Folders instead of what lies in them."""
    rig.require_listings()
    for key in ("p/a/1", "p/a/2", "p/b/1", "p/file"):
        rig.put(key, b"x")
    page = rig.bucket.list_page("p/", Stop(), by_folder=True)
    assert page.folders == ("p/a/", "p/b/")
    assert [row.key for row in page.objects] == ["p/file"]


def test_nothing_below_a_prefix_is_an_empty_page(rig):
    """Not an error: the caller knows what it means."""
    page = rig.bucket.list_page("nothing/", Stop())
    assert page.objects == () and page.folders == () and page.next_token is None


@pytest.mark.parametrize("key", ODD_KEYS)
def test_odd_keys_survive(rig, key):
    """What may be in a key is listed and read as it is."""
    rig.put(key, b"content")
    assert rig.bucket.bytes_of(rig.stored(key)) == b"content"


@pytest.mark.parametrize(("start", "length"), [(0, 300_000), (0, 1), (299_999, 1), (1000, 270_000), (0, 0), (17, 0)])
def test_a_read_gives_exactly_the_range(rig, start, length):
    """Not a byte more or less, in order."""
    content = os.urandom(300_000)
    rig.put("m/file", content)
    assert rig.bucket.bytes_of(rig.stored("m/file"), start, length) == content[start : start + length]


def test_an_etag_is_bare_stable_and_tells_versions_apart(rig):
    """Quotes are gone; the same content listed twice is the same version; another content is another."""
    rig.put("m/file", b"one")
    first, again = rig.stored("m/file"), rig.stored("m/file")
    rig.put("m/file", b"two")
    assert first == again
    assert first.etag and not set('"W/') & set(first.etag)
    assert rig.stored("m/file").etag != first.etag


@pytest.mark.parametrize("new", [b"NEW CONTENT", b"short", b"much longer content than before"])
@pytest.mark.parametrize(("start", "length"), [(0, 11), (2, 4), (9, 2)])
def test_a_replaced_object_is_never_read(rig, new, start, length):
    """Another version than the listed one is SourceChanged, and no byte of it reaches the sink."""
    rig.put("m/file", b"old content")
    listed = rig.stored("m/file")
    rig.put("m/file", new)
    got = bytearray()
    with pytest.raises(SourceChanged, match=r"m/file.* after the listing"):
        rig.bucket.read(listed, start, length, got.extend, Stop())
    assert not got


def test_a_listed_object_that_is_gone_was_changed(rig):
    """The listing is out of date, not wrong: list again."""
    rig.put("m/file", b"content")
    listed = rig.stored("m/file")
    rig.remove("m/file")
    with pytest.raises(SourceChanged, match=r"'m/file' (has gone|was replaced) after the listing"):
        rig.bucket.bytes_of(listed)


def test_a_bucket_that_does_not_exist_is_not_found(rig):
    """Named, for the person who misspelled it."""
    rig.require_listings()
    with pytest.raises(SourceNotFound, match=r"there is no .*(absent|no-such-bucket)"):
        rig.absent.list_page("m/", Stop())


def test_a_stopped_call_does_nothing(rig):
    """Work that is no longer wanted does not start."""
    rig.put("m/file", b"content")
    listed = rig.stored("m/file")
    stop = Stop()
    stop.set()
    got = bytearray()
    with pytest.raises(Stopped):
        rig.bucket.list_page("m/", stop)
    with pytest.raises(Stopped):
        rig.bucket.read(listed, 0, 7, got.extend, stop)
    assert not got


def test_a_stop_during_a_read_ends_it(rig):
    """Nothing reaches the sink after the stop."""
    rig.put("m/file", bytes(1_000_000))
    stop, got = Stop(), []

    def sink(chunk: bytes) -> None:
        got.append(len(chunk))
        stop.set()

    with pytest.raises(Stopped):
        rig.bucket.read(rig.stored("m/file"), 0, 1_000_000, sink, stop)
    assert len(got) == 1


def test_what_the_sink_raises_goes_through(rig):
    """A full disk must not look like a store that is away."""
    rig.put("m/file", b"content")

    def sink(_: bytes) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        rig.bucket.read(rig.stored("m/file"), 0, 7, sink, Stop())


def test_a_source_is_used_from_many_threads(rig):
    """One source, many reads at once, no mixture."""
    contents = {f"m/f{number}": os.urandom(100_000) for number in range(16)}
    for key, content in contents.items():
        rig.put(key, content)

    def read(key: str) -> bytes:
        return rig.bucket.bytes_of(rig.stored(key))

    with ThreadPoolExecutor(8) as pool:
        assert dict(zip(contents, pool.map(read, contents), strict=True)) == contents
