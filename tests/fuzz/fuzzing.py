"""What every fuzz test is made with, what may be said of hostile input, and strategies for texts that hurt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapter.errors import AdapterError
from adapter.spi import codec

PROFILE = "fuzz"
SECONDS_OF_AN_EXAMPLE = 0.25
"""At most, on a busy machine: for the test's own time limit."""
SECRET = "Zq7-vault-9x4K2m"
LONGEST_TEXT = 70_000
"""Of an error, before it is cut for the wire: what quotes a request's own names."""


def fuzzed(**strategies: st.SearchStrategy[Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """As hypothesis' `given`, with as many examples as `--fuzz` says."""
    profile = settings.get_profile(PROFILE)

    def made(test: Callable[..., Any]) -> Callable[..., Any]:
        limit = pytest.mark.timeout(120 + profile.max_examples * SECONDS_OF_AN_EXAMPLE)
        return limit(settings(profile)(given(**strategies)(test)))

    return made


def check_words(error: AdapterError) -> None:
    """An error for people: one line on the wire, of bounded length, without the secret; and a class that has a code."""
    check_text(codec.text_of(error))
    assert 0 < len(error.text) <= LONGEST_TEXT, f"{len(error.text)} characters"
    assert SECRET not in error.text, error.text
    assert codec.code_of(error)


def check_text(text: str | None) -> None:
    """A text as it leaves the process."""
    assert text
    assert len(text.splitlines()) == 1, text
    assert text.isprintable() or not any(ord(character) < 0x20 for character in text), text
    assert sum(1 if 0x20 <= byte <= 0x7E and byte != 0x25 else 3 for byte in text.encode()) <= codec.MAX_WIRE_BYTES
    assert SECRET not in text, text


NASTY = [
    "", " ", ".", "..", "/", "//", "../../etc/passwd", "/etc/passwd", "a/../b", "a//b", "a\\b", "~", "~inner~", "m~inner~x", "m~inner",
    "\0", "a\0b", "\n", "a\nb", "\r", "\x1b[31m", "\u202e", "\ufeff", "é", "日本", "💥", "%", "%00", "%2e%2e", "${HOME}", "$(id)",
    "'", '"', "`", "{}", "{0}", "%s", "null", "true", "0", "-1", "1e999", "NaN", "_adapter", "_triton_models", "default", "..data",
    "x" * 255, "x" * 256, "é" * 128, "x" * 5000, "a/" * 600, "http://[", "http://user:pw@h/?q", "s3://b/k", "file:///etc/passwd",
    "\x7f", "\x85", "\u2028",
]  # fmt: skip
NASTY_BEYOND_UTF8 = ["\ud800", "a\udfffb"]
"""Nothing that protobuf can carry; JSON can, by escapes."""

wire_texts = st.one_of(st.sampled_from(NASTY), st.text(max_size=30), st.lists(st.sampled_from(NASTY), max_size=3).map("/".join))
texts = st.one_of(wire_texts, st.sampled_from(NASTY_BEYOND_UTF8), st.text(st.characters(), max_size=30))
numbers = st.one_of(
    st.integers(-(2**70), 2**70), st.sampled_from([0, -1, 2**31, 2**53, 2**63 - 1, 2**63, 10**30]), st.floats(allow_nan=False)
)
scalars = st.one_of(st.none(), st.booleans(), numbers, texts)
trees = st.recursive(scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4), max_leaves=12)


@st.composite
def mutated(draw: st.DrawFn, honest: st.SearchStrategy[bytes], most: int = 3) -> bytes:
    """Honest bytes with some changes: flipped, cut, doubled, moved, filled."""
    content = bytearray(draw(honest))
    for _ in range(draw(st.integers(0, most))):
        if not content:
            break
        start = draw(st.integers(0, len(content) - 1))
        length = draw(st.integers(1, 60))
        part = bytes(content[start : start + length])
        kind = draw(st.sampled_from(["flip", "drop", "double", "noise", "fill", "cut", "digits", "swap"]))
        if kind == "flip":
            content[start] ^= 1 << draw(st.integers(0, 7))
        elif kind == "drop":
            content[start : start + length] = b""
        elif kind == "double":
            content[start:start] = part * draw(st.sampled_from([1, 2, 30]))
        elif kind == "noise":
            content[start : start + length] = draw(st.binary(max_size=40))
        elif kind == "fill":
            content[start : start + length] = draw(st.sampled_from([b"\0", b"\xff", b"9", b"7", b"[", b"<", b'"'])) * len(part)
        elif kind == "cut":
            del content[start:]
        elif kind == "digits":
            content[start : start + 1] = draw(st.sampled_from([b"-1", b"9" * 25, b"1e400", b"0x10", b"1_0", b"\xd9\xa3"]))
        else:
            other = draw(st.integers(0, len(content) - 1))
            content[start], content[other] = content[other], content[start]
    return bytes(content)
