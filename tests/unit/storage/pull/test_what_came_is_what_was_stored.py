"""A checksum that the store tells of a whole object, and the bytes that come in spans, in pieces, again and again."""

from __future__ import annotations

import base64
import random
import zlib
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapter.errors import SourceUnavailable
from adapter.storage.bucket import StoredObject
from adapter.storage.checksums import MOST_HASHED_BYTES, Checksum
from adapter.storage.pull.verified import Content, Run, Whole

CONTENT = random.Random(4).randbytes(5000)
STORED = StoredObject("m/weights.bin", len(CONTENT), "v1")
PROMISE = Checksum("crc32")


def crc32(content: bytes) -> Checksum:
    return Checksum("crc32", zlib.crc32(content).to_bytes(4, "big"))


def ran(run: Run, content: bytes) -> None:
    run.add(content)
    run.end()


@given(cuts=st.sets(st.integers(1, len(CONTENT) - 1), max_size=6), seed=st.integers(), is_damaged=st.booleans())
@settings(max_examples=60, deadline=None)
def test_spans_end_in_any_order(cuts, seed, is_damaged):
    """The last one to end tells whether all bytes are right, and none before it."""
    chance, marks = random.Random(seed), [0, *sorted(cuts), len(CONTENT)]
    came = bytearray(CONTENT)
    came[chance.randrange(len(came))] ^= 1 << chance.randrange(8) if is_damaged else 0
    whole = Whole(STORED, "s3://b")
    spans = list(pairwise(marks))
    chance.shuffle(spans)
    for number, (start, end) in enumerate(spans):
        run = Run(whole, start, end - start)
        run.expect([crc32(CONTENT)])
        run.add(bytes(came[start:end]))
        if is_damaged and number == len(spans) - 1:
            with pytest.raises(SourceUnavailable, match="are not those that were stored: their CRC32 is "):
                run.end()
        else:
            run.end()


def test_the_words_name_both():
    whole = Whole(STORED, "s3://b")
    run = Run(whole, 0, len(CONTENT))
    run.expect([Checksum("crc32", b"\1\2\3\4")])
    with pytest.raises(SourceUnavailable) as failed:
        ran(run, CONTENT)

    found = base64.b64encode(crc32(CONTENT).value or b"").decode()
    text = f"the bytes of 'm/weights.bin' from s3://b are not those that were stored: their CRC32 is {found}, and the store tells AQIDBA=="
    assert failed.value.text == text


def test_a_span_that_goes_on_is_told_again_and_counted_once():
    """A promise, a value, the same value with the answer to the rest."""
    whole = Whole(STORED, "s3://b")
    run = Run(whole, 0, 3000)
    run.expect([PROMISE])
    assert run.is_computed and run.is_asking
    run.expect([crc32(CONTENT)])
    assert not run.is_asking
    run.add(CONTENT[:1000])
    run.expect([PROMISE])
    ran(run, CONTENT[1000:3000])
    rest = Run(whole, 3000, 2000)
    rest.expect([PROMISE])
    assert not rest.is_asking
    ran(rest, CONTENT[3000:])


def test_the_value_may_come_after_the_bytes():
    """The lanes begin together, and one of them asks."""
    whole = Whole(STORED, "s3://b")
    first, second = Run(whole, 0, 1000), Run(whole, 1000, 4000)
    second.expect([PROMISE])
    ran(second, CONTENT[1000:])
    first.expect([PROMISE])
    first.expect([crc32(b"other")])
    with pytest.raises(SourceUnavailable):
        ran(first, CONTENT[:1000])


def test_one_span_asks_and_no_file_of_one_get():
    whole = Whole(STORED, "s3://b")
    asking = []
    for start, length in ((0, 1000), (1000, 4000)):
        run = Run(whole, start, length)
        assert not run.is_asking
        run.expect([PROMISE])
        asking.append(run.is_asking)
    only = Run(Whole(STORED, "s3://b"), 0, len(CONTENT))
    only.expect([PROMISE])

    assert asking == [True, False]
    assert not only.is_asking


@pytest.mark.parametrize("told", [(), (PROMISE,), (Checksum("sha256", bytes(32)),)], ids=["nothing", "no value", "a hash"])
def test_parts_of_which_no_value_can_be_made_are_as_they_came(told):
    whole = Whole(STORED, "s3://b")
    for start, end in ((0, 2000), (2000, 5000)):
        run = Run(whole, start, end - start)
        run.expect(told)
        ran(run, CONTENT[start:end])


def test_bytes_that_nobody_has_seen_are_not_verified():
    """The first answer told nothing, and was spliced until it broke off; the second tells."""
    run = Run(Whole(STORED, "s3://b"), 0, len(CONTENT))
    run.pass_by(1000)
    run.expect([crc32(b"other")])
    assert not run.is_computed
    ran(run, CONTENT[1000:])


def test_a_store_that_contradicts_itself_is_not_believed():
    """Of one version two values: one of them is wrong."""
    whole = Whole(STORED, "gs://b")
    for start, end, told in ((0, 2000, CONTENT), (2000, 5000, b"other")):
        run = Run(whole, start, end - start)
        run.expect([crc32(told)])
        run.add(CONTENT[start:end])
        if end == 5000:
            with pytest.raises(SourceUnavailable):
                run.end()
        else:
            run.end()


def test_answers_with_other_algorithms_prove_nothing():
    """Parts of different checksums make none."""
    whole = Whole(STORED, "s3://b")
    for start, end, told in ((0, 2000, crc32(CONTENT)), (2000, 5000, Checksum("md5", bytes(16)))):
        run = Run(whole, start, end - start)
        run.expect([told])
        ran(run, CONTENT[start:end])


def test_what_is_large_is_not_hashed():
    """Hashes cost ten times as much as CRCs."""
    for size, is_hashed in ((MOST_HASHED_BYTES, True), (MOST_HASHED_BYTES + 1, False)):
        run = Run(Whole(StoredObject("k", size, "v"), "s3://b"), 0, size)
        run.expect([Checksum("sha256", bytes(32))])
        assert run.is_computed == is_hashed


def test_a_content_in_memory_is_verified_when_it_is_whole():
    """A first byte alone is read to prove that credentials are good."""
    for length, is_verified in ((len(CONTENT), True), (1, False)):
        content = Content(STORED, length, "s3://b")
        content.expect([crc32(b"other")])
        content(CONTENT[:length])
        if is_verified:
            with pytest.raises(SourceUnavailable):
                content.end()
        else:
            assert content.end() == CONTENT[:1]
    right = Content(STORED, len(CONTENT), "s3://b")
    right.expect([crc32(CONTENT)])
    right(CONTENT)
    assert right.end() == CONTENT
