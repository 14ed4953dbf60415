"""Protocol-buffer text format: read without loss, refused with line and column."""

from __future__ import annotations

import pytest
from google.protobuf import text_format
from hypothesis import event, given
from hypothesis import strategies as st
from tritonclient.grpc import model_config_pb2

from adapter.layout.textparser import ParseError, parse
from adapter.layout.textproto import Edit, Field, Message, Scalar, Sequence, position, quoted, splice

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
    (field,) = parse(text).fields
    return field


def scalar(text: str) -> Scalar:
    value = only(f"a: {text}").value
    assert isinstance(value, Scalar)
    return value


def check_spans(text: str, message: Message, start: int, end: int) -> None:
    """Fields stand in order inside the span, with nothing but space and comments between them."""
    at = start
    for field in message.fields:
        assert at <= field.start < field.value.start < field.value.end <= field.end <= end
        assert parse(text[at : field.start]).fields == ()
        if not field.name.startswith("["):
            assert text[field.start : field.start + len(field.name)] == field.name
        again = only(text[field.start : field.end])
        assert (again.start, again.end) == (0, field.end - field.start)
        check_value(text, field.value)
        at = field.end
    assert parse(text[at:end]).fields == ()


def check_value(text: str, value: Scalar | Message | Sequence) -> None:
    if isinstance(value, Message):
        assert text[value.start] + text[value.end - 1] in ("{}", "<>")
        check_spans(text, value, value.start + 1, value.end - 1)
    elif isinstance(value, Sequence):
        assert text[value.start] + text[value.end - 1] == "[]"
        for item in value.values:
            check_value(text, item)
    else:
        again = scalar(text[value.start : value.end])
        assert (again.kind, again.value) == (value.kind, value.value)


@given(texts)
def test_any_text_is_read_with_exact_spans_or_refused_with_a_position(text):
    """Never a crash; a tree's spans give the text again, an error's position lies in the text."""
    try:
        tree = parse(text)
    except ParseError as error:
        assert 1 <= error.line <= text.count("\n") + 1
        assert 1 <= error.column <= len(text.split("\n")[error.line - 1]) + 1
        return
    check_spans(text, tree, 0, len(text))


@given(st.recursive(st.just("x: 1 "), lambda inner: st.builds("m {{ {} }} n: [ <{}> ];".format, inner, inner), max_leaves=20))
def test_nested_text_is_read_with_exact_spans(text):
    """The same for texts that are always legal."""
    check_spans(text, parse(text), 0, len(text))


@given(configs)
def test_what_protobuf_reads_we_read(text):
    """No config that Triton would take is refused."""
    try:
        text_format.Parse(text, model_config_pb2.ModelConfig(), allow_unknown_field=True, allow_unknown_extension=True)
    except (text_format.ParseError, UnicodeDecodeError):
        event("refused by protobuf")
        return
    event("read by protobuf")
    check_spans(text, parse(text), 0, len(text))


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("1", "integer", 1),
        ("-1", "integer", -1),
        ("- 1", "integer", -1),
        ("0x1F", "integer", 31),
        ("017", "integer", 15),
        ("0", "integer", 0),
        ("9223372036854775807", "integer", 2**63 - 1),
        ("1.5", "float", "1.5"),
        ("-.5e-3f", "float", "-.5e-3f"),
        ("1f", "float", "1f"),
        ("-inf", "word", "-inf"),
        ("nan", "word", "nan"),
        ("TYPE_FP32", "word", "TYPE_FP32"),
        ('""', "string", ""),
        ("'it\"s'", "string", 'it"s'),
        ('"a" \'b\' # and\n "c"', "string", "abc"),
        (r'"\a\b\f\n\r\t\v\\\'\"\?"', "string", "\a\b\f\n\r\t\v\\'\"?"),
        (r'"\101\x42\X43é\U0001F600\ud83d\ude00"', "string", "ABCé😀😀"),
        (r'"\303\251"', "string", "é"),
        (r'"\377"', "string", "\udcff"),
        ('"caf\udce9"', "string", "caf\udce9"),
        (r'"\ud83d"', "string", "\ud83d"),
        ('"é # { ; "', "string", "é # { ; "),
    ],
)
def test_every_form_of_a_scalar_is_understood(text, kind, value):
    """Numbers in three bases, words, strings with all escapes and joined pieces."""
    found = scalar(text)

    assert (found.kind, found.value) == (kind, value)


def test_position_counts_lines_and_columns_from_one():
    """As editors do."""
    assert [position("ab\nc", offset) for offset in range(5)] == [(1, 1), (1, 2), (1, 3), (2, 1), (2, 2)]


def test_edits_replace_insert_and_remove():
    """In any order of giving."""
    assert splice("hello world", [Edit(5, 6, ", "), Edit(0, 1, "H"), Edit(11, 11, "!")]) == "Hello, world!"
    assert splice("hello world", [Edit(6, 7, "W")], 6, 11) == "World"


@given(st.text())
def test_a_quoted_string_reads_back(value):
    """On one line, whatever it holds."""
    literal = quoted(value)

    assert "\n" not in literal
    assert scalar(literal).value == value
