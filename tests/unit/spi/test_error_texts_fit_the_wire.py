"""One line, root cause first, model and phases last, short as percent-encoded, never a secret."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapter.errors import AdapterError, ModelRefused, SourceDenied
from adapter.spi.codec import MAX_WIRE_BYTES, shown, text_of
from tests.contract.spi.texts import wire_bytes

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=300)


@pytest.mark.parametrize(
    ("model_id", "phases", "tail"),
    [
        (None, None, ""),
        ("m1", None, " (model 'm1')"),
        (None, "pull 1.0 s", " (pull 1.0 s)"),
        ("m1", "list 0.1 s, triton 2.0 s", " (model 'm1'; list 0.1 s, triton 2.0 s)"),
    ],
)
def test_tail_holds_what_is_known(model_id: str | None, phases: str | None, tail: str) -> None:
    """The root cause comes first; no empty brackets."""
    assert text_of(SourceDenied("403").located(model_id, phases)) == f"403{tail}"


def test_text_uses_all_bytes_that_it_may_have() -> None:
    """Nothing is cut that would fit; what is cut is cut as late as possible."""
    exact = "x" * MAX_WIRE_BYTES

    assert shown(exact) == exact
    assert shown(exact + "x") == "x" * (MAX_WIRE_BYTES - 3) + "..."
    assert MAX_WIRE_BYTES - 12 < wire_bytes(shown("語" * 2000)) <= MAX_WIRE_BYTES


@pytest.mark.parametrize(
    ("raw", "clean"),
    [
        ("a\nb\r\n\tc", "a b c"),
        ("  a   b ", "a b"),
        ("a\0b\x1b[31mc", "a b [31mc"),
        ("a\u2028b\u202ec", "a b c"),
        ("a\ud800b", "a\ufffdb"),
    ],
)
def test_only_one_line_of_characters_remains(raw: str, clean: str) -> None:
    """No line breaks, no terminal sequences, no halves of characters."""
    assert shown(raw) == clean


def test_error_without_words_says_its_reason() -> None:
    """An empty text would not name the cause."""
    assert text_of(AdapterError("")) == "internal"


def test_secret_at_the_edge_of_the_cut_does_not_survive_in_part() -> None:
    """Removed before the text is cut, so that no half of it stays."""
    text = shown("x " * (MAX_WIRE_BYTES // 2 - 12) + "AKIAIOSFODNN7EXAMPLE and more")

    assert "AKIA" not in text


@settings(deadline=None)
@given(text=ANY_TEXT, model_id=ANY_TEXT, phases=st.none() | ANY_TEXT, times=st.sampled_from([1, 40, 400]))
def test_any_text_fits(text: str, model_id: str, phases: str | None, times: int) -> None:
    """Whatever a library says and whatever a client sends."""
    shown_text = text_of(ModelRefused(f"cause {text * times}").located(model_id, phases))

    assert not any(ord(character) < 0x20 or character in "\x7f\u2028\u2029" for character in shown_text)
    assert wire_bytes(shown_text) <= MAX_WIRE_BYTES
    assert shown_text.startswith("cause")
