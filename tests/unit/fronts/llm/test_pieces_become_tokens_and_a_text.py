"""From the pieces of a generation to its tokens, its text and why it ended."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.fronts.llm.backends import Piece, Token
from adapter.fronts.llm.generating import Collector
from tests.unit.fronts.llm.rigs import wishes

TEXTS = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\ufffd"), max_size=12)


def a_collector(prompt: str = "p", *, is_cumulative: bool = False, repeats_prompt: bool = False, **parameters: Any) -> Collector:
    return Collector(prompt, wishes(**parameters), is_cumulative=is_cumulative, repeats_prompt=repeats_prompt, keeps_tokens=True)


def collected(collector: Collector, pieces: Sequence[Piece]) -> tuple[list[str | None], Collector]:
    """The texts that a caller sees as they come, and the end."""
    seen = []
    for number, piece in enumerate(pieces):
        seen += [token.text for token in collector.take(piece, is_final=number == len(pieces) - 1)]
    return seen, collector


def cut(data: bytes, places: Sequence[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges)]


PLACES = st.lists(st.integers(0, 100), max_size=5)


@given(TEXTS, PLACES)
def test_a_text_comes_whole_however_its_bytes_are_cut(text: str, places: list[int]) -> None:
    """Also in the middle of a character."""
    seen, end = collected(a_collector(), [Piece(text=part) for part in cut(text.encode(), places)])
    assert ("".join(map(str, seen)), end.text) == (text, text)


@given(TEXTS, PLACES)
def test_so_does_one_that_comes_from_the_beginning_each_time(text: str, places: list[int]) -> None:
    data = text.encode()
    parts = [data[: place % (len(data) + 1)] for place in sorted(places, key=lambda place: place % (len(data) + 1))]
    seen, end = collected(a_collector(is_cumulative=True), [Piece(text=part) for part in [*parts, data]])
    assert ("".join(map(str, seen)), end.text) == (text, text)


@given(TEXTS, PLACES)
def test_and_one_whose_last_character_is_not_all_there_yet(text: str, places: list[int]) -> None:
    """As a detokenizer writes it that decodes from the beginning: the half of a character is a mark that the next answer does not have."""
    data = text.encode()
    lengths = sorted(place % (len(data) + 1) for place in places)
    parts = [data[:length].decode("utf-8", "replace").encode() for length in lengths]
    seen, end = collected(a_collector(is_cumulative=True), [Piece(text=part) for part in [*parts, data]])
    assert ("".join(map(str, seen)), end.text) == (text, text)


def test_half_a_character_at_the_end_is_shown_as_such() -> None:
    seen, end = collected(a_collector(), [Piece(text=b"a\xc3")])
    assert (seen, end.text, end.tokens) == (["a\ufffd"], "a\ufffd", [Token(None, "a\ufffd", None)])
    assert (end.prompt, end.finish_reason, end.generated_tokens, end.prompt_tokens, end.seed) == ("p", None, None, None, None)
    assert collected(a_collector(is_cumulative=True), [Piece(text="a\ufffd".encode())])[0] == ["a\ufffd"]


@pytest.mark.parametrize("is_cumulative", [False, True])
def test_a_prompt_before_the_text_is_cut_off_where_the_backend_repeats_it(is_cumulative: bool) -> None:
    def end(text: str, **options: Any) -> str:
        return collected(a_collector("p q", is_cumulative=is_cumulative, **options), [Piece(text=text.encode())])[1].text

    assert end("p q r", repeats_prompt=True) == " r"
    assert end("p q r") == "p q r"
    assert end("r", repeats_prompt=True) == "r"
    assert end("p q r", repeats_prompt=True, return_full_text=True) == "p q r"


def test_a_prompt_is_cut_off_once() -> None:
    seen, _ = collected(a_collector("p", repeats_prompt=True), [Piece(text=b""), Piece(text=b"px"), Piece(text=b"p")])
    assert seen == ["x", "p"]


def tokens(*parts: str | None) -> list[Token]:
    return [Token(number, part, -1.0) for number, part in enumerate(parts)]


@pytest.mark.parametrize(
    ("told", "text", "seen"),
    [
        (tokens("a", "b"), "ab", ["a", "b"]),
        (tokens("a", "\ufffd", "\ufffd"), "aé", ["", "", "aé"]),
        (tokens("a", None), "ab", ["", "ab"]),
        (tokens(None), "a", ["a"]),
        (tokens("</s>"), "", [""]),
        ([], "a", ["a"]),
        ([], "", []),
        (None, "a", ["a"]),
        (None, "", []),
    ],
)
def test_a_line_a_token(told: list[Token] | None, text: str, seen: list[str]) -> None:
    """Their texts are shown where they join to the text; else the last token has all of it."""
    found = collected(a_collector(), [Piece(text=text.encode(), tokens=told)])
    assert found[0] == seen
    assert [token.id for token in found[1].tokens or ()] == ([token.id for token in told] if told else [None] * len(seen))


@pytest.mark.parametrize(
    ("pieces", "count"),
    [
        ([Piece(text=b"a", output_tokens=1), Piece(text=b"b", output_tokens=2)], 3),
        ([Piece(text=b"a", output_tokens=1), Piece(text=b"b")], None),
        ([Piece(text=b"a", output_tokens=1), Piece(text=b"")], 1),
        ([Piece(text=b"a", tokens=tokens("a")), Piece(text=b"b", tokens=tokens("b", ""))], 3),
        ([Piece(text=b"a", tokens=tokens("a"), output_tokens=5)], 5),
        ([Piece(text=b"a")], None),
        ([], None),
    ],
)
def test_tokens_are_counted_where_every_answer_tells(pieces: list[Piece], count: int | None) -> None:
    assert collected(a_collector(), pieces)[1].generated_tokens == count


STOP = Piece(text=b"", tokens=tokens(" x"), reason="stop")


@pytest.mark.parametrize(
    ("pieces", "parameters", "reason"),
    [
        ([Piece(text=b"a", reason="length")], {}, "length"),
        ([Piece(text=b"a", reason="stop")], {}, "eos_token"),
        ([STOP], {"stop_sequences": ["x"]}, "stop_sequence"),
        ([Piece(text=b"a", tokens=tokens("a ")), STOP], {"stop_sequences": ["a  x"]}, "stop_sequence"),
        ([STOP], {"stop_sequences": ["y"]}, "eos_token"),
        ([STOP], {"stop_token_ids": [0]}, "stop_sequence"),
        ([STOP], {"stop_token_ids": [1]}, "eos_token"),
        ([Piece(text=b"a", reason="stop")], {"stop_sequences": ["x"]}, None),
        ([Piece(text=b"a", reason="stop", stop="x")], {"stop_sequences": ["x"]}, "stop_sequence"),
        ([Piece(text=b"a", reason="stop", stop="")], {"stop_sequences": ["x"]}, "eos_token"),
        ([Piece(text=b"a", reason="abort")], {}, None),
        ([Piece(text=b"a", tokens=tokens("a", "b"))], {"max_new_tokens": 2}, "length"),
        ([Piece(text=b"a", tokens=tokens("a"))], {"max_new_tokens": 2}, "eos_token"),
        ([Piece(text=b"a", tokens=tokens("a"))], {"max_new_tokens": 2, "stop_sequences": ["x"]}, None),
        ([Piece(text=b"a", tokens=tokens("a"))], {"max_new_tokens": 2, "stop_token_ids": [7]}, None),
        ([Piece(text=b"a")], {"max_new_tokens": 1}, None),
        ([], {}, None),
    ],
)
def test_why_it_ended(pieces: list[Piece], parameters: dict[str, Any], reason: str | None) -> None:
    assert collected(a_collector(**parameters), pieces)[1].finish_reason == reason


def test_a_stop_sequence_is_found_however_long() -> None:
    stop = "x" * 5000
    pieces = [Piece(text=b"", tokens=tokens(*["x"] * 100)) for _ in range(50)]
    assert (
        collected(a_collector(stop_sequences=[stop]), [*pieces, Piece(text=b"", tokens=[], reason="stop")])[1].finish_reason
        == "stop_sequence"
    )


def test_it_is_over_with_the_reason_or_the_last_answer() -> None:
    collector = a_collector()
    collector.take(Piece(text=b"a"), is_final=False)
    assert not collector.is_over
    collector.take(Piece(text=b"a", reason="stop"), is_final=False)
    assert collector.is_over


def test_a_seed_is_told_of_a_generation_that_is_drawn() -> None:
    assert collected(a_collector(do_sample=True, seed=7), [])[1].seed == 7
