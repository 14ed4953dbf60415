"""CRCs of parts make that of the whole, and what a store tells is read or left, whatever it is."""

from __future__ import annotations

import base64
import hashlib
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapter.storage import checksums
from adapter.storage.checksums import combined, read, running

POLYNOMIALS = {"crc32": (32, 0xEDB88320), "crc32c": (32, 0x82F63B78), "crc64nvme": (64, 0x9A6C9329AC4BC9B5)}
CHECKED = {"crc32": 0xCBF43926, "crc32c": 0xE3069283, "crc64nvme": 0xAE8B14860A799888}
"""Of `123456789`. Source: the catalogue of parametrised CRC algorithms (CRC-32/ISO-HDLC, CRC-32/ISCSI, CRC-64/NVME)."""
ABSENT = "the compiled code that computes it is not installed"


def crc(algorithm: str, content: bytes) -> bytes:
    """Bit by bit, as the definition says."""
    bits, polynomial = POLYNOMIALS[algorithm]
    ones = value = (1 << bits) - 1
    for byte in content:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ polynomial if value & 1 else value >> 1
    return (value ^ ones).to_bytes(bits // 8, "big")


@pytest.mark.parametrize("algorithm", POLYNOMIALS)
def test_the_definition_is_the_one_that_all_have(algorithm):
    assert int.from_bytes(crc(algorithm, b"123456789"), "big") == CHECKED[algorithm]


@pytest.mark.parametrize("algorithm", POLYNOMIALS)
@settings(deadline=None)
@given(parts=st.lists(st.binary(max_size=60), min_size=1, max_size=6))
def test_parts_make_the_whole(algorithm, parts):
    """Empty ones among them."""
    if running(algorithm) is None:
        pytest.skip(ABSENT)
    found = crc(algorithm, parts[0])
    for part in parts[1:]:
        found = combined(algorithm, found, crc(algorithm, part), len(part))

    assert found == crc(algorithm, b"".join(parts))


def test_parts_may_be_longer_than_memory():
    """That number of zeros: by halves, and a quarter behind three."""
    if running("crc64nvme") is None:
        pytest.skip(ABSENT)
    zeros = {length: crc("crc64nvme", bytes(length)) for length in (1, 3)}
    for length in (1 << n for n in range(41)):
        zeros[2 * length] = combined("crc64nvme", zeros[length], zeros[length], length)
    for length in (1 << n for n in range(38)):
        zeros[3 * length] = combined("crc64nvme", zeros[2 * length], zeros[length], length)
        assert zeros[4 * length] == combined("crc64nvme", zeros[3 * length], zeros[length], length)


@pytest.mark.parametrize("algorithm", checksums.ALGORITHMS)
@settings(deadline=None)
@given(chunks=st.lists(st.binary(max_size=300), max_size=5))
def test_chunks_make_the_checksum_of_all_bytes(algorithm, chunks):
    """By the libraries, from views as well as from bytes."""
    growing, content = running(algorithm), b"".join(chunks)
    if growing is None:
        pytest.skip(ABSENT)
    for number, chunk in enumerate(chunks):
        growing.update(memoryview(bytearray(chunk)) if number % 2 else chunk)

    expected = crc(algorithm, content) if algorithm in POLYNOMIALS else hashlib.new(algorithm, content).digest()
    assert growing.digest() == expected


def test_what_is_not_installed_is_not_computed(monkeypatch):
    """And said once, in the log."""
    monkeypatch.setitem(sys.modules, "anycrc", None)
    checksums._model.cache_clear()
    try:
        assert [running(algorithm) for algorithm in POLYNOMIALS] == [None, None, None]
        assert running("md5") is not None
    finally:
        checksums._model.cache_clear()


@pytest.mark.parametrize(
    ("algorithm", "text"),
    [
        ("crc32", None), ("crc32", ""), ("crc32", "AAAAAA"), ("crc32", "AAAAAA==-3"), ("crc32", "AAAAAA==, AAAAAA=="),
        ("crc32", "AAAAAAA="), ("crc32", "AAAA AA=="), ("crc32", "ÄÄÄÄÄÄ=="), ("crc32", "3610a686"), ("crc32", "-_AAAA=="),
        ("crc64nvme", "AAAAAA=="), ("sha256", "AAAAAA=="), ("md5", "d41d8cd98f00b204e9800998ecf8427e"), ("crc16", "AAA="),
        ("xxhash3", "AAAAAAAAAAA="), ("", "AAAAAA=="), ("crc32", "A" * 10_000_000),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_no_checksum(algorithm, text):
    """Not base64, of another length, of parts, two, of an unknown kind, absurd."""
    assert read(algorithm, text) is None


@settings(deadline=None)
@given(st.sampled_from(["crc32", "CRC64NVME", "sha1", "x"]), st.text(max_size=100))
def test_no_text_is_a_failure(algorithm, text):
    found = read(algorithm, text)
    assert found is None or (found.value and base64.b64encode(found.value).decode() == text.strip())
