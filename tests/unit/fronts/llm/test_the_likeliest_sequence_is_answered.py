"""Of several sequences the likeliest is the answer, and the others are its details."""

from __future__ import annotations

from adapter.fronts.llm.backends import Piece, Token
from adapter.fronts.llm.generating import Collector
from adapter.fronts.llm.schemas import Lmi
from tests.unit.fronts.llm.rigs import wishes


def ended(text: str, log_prob: float) -> Collector:
    found = Collector("p", wishes(max_new_tokens=1, details=True), is_cumulative=False, repeats_prompt=False, keeps_tokens=True)
    found.take(Piece(text=text.encode(), tokens=[Token(1, text, log_prob)], reason="length"), is_final=True)
    return found


def test_it_is_the_one_with_the_highest_log_probability() -> None:
    value = Lmi().answer([ended("a", -2.0), ended("b", -1.0), ended("c", -3.0)])
    assert value["generated_text"] == "b"
    assert [other["generated_text"] for other in value["details"]["best_of_sequences"]] == ["a", "c"]
