"""The exact value of a secret that was read is found in any text, whatever it looks like."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote

import pytest

from adapter.telemetry.redaction import KEPT_CHARACTERS, KEPT_VALUES, PIECE, Remembered


@pytest.fixture
def known() -> Remembered:
    return Remembered()


def test_white_space_around_a_value_does_not_hide_it(known: Remembered) -> None:
    """A secret from a file often ends with a newline; the library sends it without."""
    known.add(" open sesame\n")

    assert known.masked("sent 'open sesame'") == "sent '***'"


@pytest.mark.parametrize("value", ["", "true", "admin", "12345"])
def test_short_values_are_not_remembered(known: Remembered, value: str) -> None:
    """They are parts of ordinary words."""
    known.add(value)

    assert known.masked("it is true that admin has 12345") == "it is true that admin has 12345"


def test_values_that_overlap_are_masked_as_one(known: Remembered) -> None:
    """Also when one is a part of the other."""
    for value in ("abcdefgh", "efghijkl", "abcdefghijkl-long", "cdefgh"):
        known.add(value)

    assert known.masked("abcdefghijkl abcdefghijkl-long abcdef") == "*** *** abcdef"


def test_the_value_that_was_remembered_longest_ago_goes_first(known: Remembered) -> None:
    """A value that is read again stays."""
    values = [f"many-{number:04}-values" for number in range(KEPT_VALUES)]
    for value in (*values, values[0], "one more value"):
        known.add(value)

    assert known.masked(" ".join(values[:3])) == f"*** {values[1]} ***"
    assert known.masked("one more value") == "***"


def test_what_is_kept_has_a_bound_whatever_the_values_are(known: Remembered) -> None:
    """Forms of a value have up to twelve times its characters. The newest values are found, the oldest are not."""
    values = [f"{number:04}" + "\u00e9" * 60_000 for number in range(40)]
    for value in values:
        known.add(value)

    assert known.masked(values[-1]) == "***"
    assert known.masked(values[0]) == values[0]
    for number in range(KEPT_VALUES):
        known.add(f"short-{number:04}")
    assert known.masked(values[-1]) == values[-1]
    assert 40 * 60_000 * 12 > KEPT_CHARACTERS > PIECE * KEPT_VALUES


def test_many_values_of_one_issuer_are_all_found(known: Remembered) -> None:
    """They begin and end alike; what differs is inside."""
    values = [f"?sv=2022-11-02&sr=c&x={number:08}{number:08}{number:08}&end=of-the-token" for number in range(100)]
    for value in values:
        known.add(value)

    assert known.masked(" ".join(values)) == " ".join(["***"] * len(values))


def test_threads_may_read_and_remember_at_once(known: Remembered) -> None:
    """While each new value drives out an older one."""
    for number in range(KEPT_VALUES):
        known.add(f"older-{number:04}-secret")

    def work(number: int) -> str:
        value = f"newer-{number:04}-secret"
        known.add(value)
        return known.masked(f"<{value}>")

    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(work, range(KEPT_VALUES))) == {"<***>"}


def test_a_value_that_looks_like_another_one_in_a_url_outlives_it(known: Remembered) -> None:
    known.add("two words here")
    known.add(quote("two words here"))
    for number in range(KEPT_VALUES - 1):
        known.add(f"another value {number}")

    assert known.masked("two words here") == "two words here"
    assert known.masked(quote("two words here")) == "***"
