"""Protocol-buffer text format: read without loss, refused with a place."""

from __future__ import annotations

import re

import pytest
from google.protobuf import text_format
from hypothesis import event, given
from hypothesis import strategies as st
from tritonclient.grpc import model_config_pb2

from adapter.layout.textproto import Edit, Field, Problem, Value, position, quoted, scan, splice, unquoted

WORDS = [
    "name", "input", "dims", ":", ":", "{", "}", "{", "}", "<", ">", "[", "]", ",", ";",
    '"a"', "'b'", '"\\n\\x41"', "1", "-", "0x1F", "1.5", "-1", "017", "1e9", ".5f", "true", "inf", "nan", "[a.b/c]",
    "# note\n", "\n", " ", "\t", '"', "\\", "é", "\ufeff", "08", "1a",
]  # fmt: skip
texts = st.one_of(st.lists(st.sampled_from(WORDS), max_size=30).map("".join), st.text(max_size=30))


FIELDS = [
    'name: "a"', "platform: 'it' \"s\"", 'backend: "\\x41\\101\\n"', "max_batch_size: 017",
    "input { name: 'x' dims: [1, -1] }", "input: [ < dims: 1; dims: 0x2 > ]", "output [ { data_type: TYPE_FP32 }, { data_type: 3 } ]",
    "dynamic_batching { }", "version_policy: { all: { } }", "parameters { key: 'k' value: { string_value: 'v' } }",
    "unknown: 1.5f", "unknown { a: -inf [x.y]: 2 }", "default_model_filename: 'x'", "model_warmup { batch_size: 1 }",
    "optimization { priority: PRIORITY_MAX }", "response_cache<enable:true>",
]  # fmt: skip
separators = st.sampled_from([" ", ";", ", ", "\n", " # note\n", ""])
configs = st.lists(st.tuples(st.sampled_from(FIELDS), separators), unique_by=lambda pair: pair[0], max_size=8).map(
    lambda pairs: "".join(map("".join, pairs))
)


def only(text: str) -> Field:
    (field,) = scan(text)
    return field


def check_spans(text: str, fields: tuple[Field, ...], start: int, end: int) -> None:
    """Fields stand in order inside the span, with nothing but space and comments between them."""
    at = start
    for field in fields:
        assert at <= field.start < field.end <= end
        assert scan(text[at : field.start]) == ()
        if not field.name.startswith("["):
            assert text[field.start : field.start + len(field.name)] == field.name
        again = only(text[field.start : field.end])
        assert (again.start, again.end) == (0, field.end - field.start)
        for value in field.values:
            check_value(text, value)
        at = field.end
    assert scan(text[at:end]) == ()


def check_value(text: str, value: Value) -> None:
    if value.kind == "message":
        assert text[value.start] + text[value.end - 1] in ("{}", "<>")
        check_spans(text, value.fields, value.start + 1, value.end - 1)
    else:
        (again,) = only(f"a:{text[value.start : value.end]}").values
        assert (again.kind, again.end - again.start) == (value.kind, value.end - value.start)


@given(texts)
def test_any_text_is_read_with_exact_spans_or_refused_with_a_position(text):
    """Never a crash; the spans give the text again, an error's position lies in the text."""
    try:
        fields = scan(text)
    except Problem as problem:
        line, column = map(int, re.findall("[0-9]+", position(text, problem.args[0])))
        assert 1 <= line <= text.count("\n") + 1
        assert 1 <= column <= len(text.split("\n")[line - 1]) + 1
        return
    check_spans(text, fields, 0, len(text))


@given(st.recursive(st.just("x: 1 "), lambda inner: st.builds("m {{ {} }} n: [ <{}> ];".format, inner, inner), max_leaves=20))
def test_nested_text_is_read_with_exact_spans(text):
    """The same for texts that are always legal."""
    check_spans(text, scan(text), 0, len(text))


@given(configs)
def test_what_protobuf_reads_we_read(text):
    """No config that Triton would take is refused."""
    try:
        text_format.Parse(text, model_config_pb2.ModelConfig(), allow_unknown_field=True, allow_unknown_extension=True)
    except (text_format.ParseError, UnicodeDecodeError):
        event("refused by protobuf")
        return
    event("read by protobuf")
    check_spans(text, scan(text), 0, len(text))


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("1", "number"), ("-1", "number"), ("0x1F", "number"), ("017", "number"), ("0", "number"), ("1.5", "number"),
        ("-.5e-3f", "number"), ("-inf", "number"), ("nan", "word"), ("TYPE_FP32", "word"), ('""', "string"),
    ],
)  # fmt: skip
def test_every_form_of_a_scalar_is_understood(text, kind):
    """Numbers in three bases, words, strings."""
    (value,) = only(f"a: {text}").values

    assert (value.kind, value.start, value.end) == (kind, 3, 3 + len(text))


def test_position_counts_lines_and_columns_from_one():
    """As editors do."""
    assert [position("ab\nc", offset) for offset in (0, 2, 3)] == ["line 1, column 1", "line 1, column 3", "line 2, column 1"]


def test_edits_replace_insert_and_remove():
    """Between two offsets too."""
    assert splice("hello world", [Edit(0, 1, "H"), Edit(5, 6, ", "), Edit(11, 11, "!")]) == "Hello, world!"
    assert splice("hello world", [Edit(6, 7, "W")], 6, 11) == "World"


@given(st.text(st.characters(codec="utf-8")))
def test_a_quoted_string_reads_back(content):
    """On one line, whatever it holds."""
    literal = quoted(content)
    (value,) = only(f"a: {literal}").values

    assert "\n" not in literal
    assert unquoted(f"a: {literal}", value) == content
