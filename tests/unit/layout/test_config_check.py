"""What protobuf would not take is refused with line and column, and nothing else is."""

from __future__ import annotations

import pytest
from google.protobuf import text_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from hypothesis import event, given
from hypothesis import strategies as st
from tritonclient.grpc import model_config_pb2

from adapter.errors import InvalidModel
from adapter.layout import config_check, textparser
from adapter.layout.config_fields import ENUMS

CONFIG = model_config_pb2.ModelConfig.DESCRIPTOR
SCALARS = [
    "0", "1", "-1", "-0", "7", "2147483647", "2147483648", "-2147483648", "-2147483649", "4294967295", "4294967296",
    "9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809", "18446744073709551615",
    "18446744073709551616", "1" * 50, "0x7f", "017", "1.5", "1e3", ".5f", "-2.5", "0.0", "inf", "-nan", "Infinity",
    "true", "false", "True", "False", "t", "f", "TRUE", "yes", "'a'", "''", '"\\xc3\\xa9"', '"\\377"', '"x" \'y\'', "'true'",
    *(word for words in ENUMS.values() for word in (words[0], words[-1])),
    "FP32", "type_fp32", "TYPE_FLOAT", "KIND_CUDA", "{ }", "< >", "[ ]", "[ 0 ]", "[ 1, 2 ]", "[ {}, {} ]", "[ 'a', 'b' ]", "[ true, 1.5 ]",
]  # fmt: skip
"""Every edge of every kind, offered to every field."""


def refusal(text: str) -> str | None:
    try:
        config_check.check(text, textparser.parse(text), "config.pbtxt")
    except InvalidModel as error:
        return error.text
    return None


def is_taken_by_protobuf(text: str) -> bool:
    try:
        text_format.Parse(text, model_config_pb2.ModelConfig())
    except (text_format.ParseError, UnicodeDecodeError, ValueError):
        return False
    return True


def entries(message: Descriptor, depth: int) -> st.SearchStrategy[str]:
    """Some fields of this message with values of all kinds, those of their own kind more often."""
    if not message.fields:
        return st.just("")
    return st.lists(st.sampled_from(list(message.fields)).flatmap(lambda field: entry(field, depth)), max_size=3).map(" ".join)


def entry(field: FieldDescriptor, depth: int) -> st.SearchStrategy[str]:
    values = st.sampled_from(SCALARS)
    if field.message_type is not None and depth:
        values = st.one_of(values, *[entries(field.message_type, depth - 1).map(lambda inner: f"{{ {inner} }}")] * 9)
    return values.map(lambda value: f"{field.name}: {value}")


@given(entries(CONFIG, 5))
def test_what_protobuf_takes_is_taken_and_what_is_refused_here_protobuf_refuses(text):
    """Any field with any value at any depth."""
    found = refusal(text)

    event(f"refused here: {found is not None}, taken by protobuf: {is_taken_by_protobuf(text)}")
    assert found is None or not is_taken_by_protobuf(text)


PLACES = {
    "string": "backend: {}",
    "int32": "max_batch_size: {}",
    "int64": "input {{ dims: {} }}",
    "uint32": "version_policy {{ latest {{ num_versions: {} }} }}",
    "uint64": "dynamic_batching {{ max_queue_delay_microseconds: {} }}",
    "bool": "response_cache {{ enable: {} }}",
    "float": "sequence_batching {{ direct {{ minimum_slot_utilization: {} }} }}",
    "enum": "instance_group {{ kind: {} }}",
    "message": "optimization {{ graph: {} }}",
    "messages": "input: {}",
    "map": "parameters: {}",
}


LENIENT = {"bool": {"-0"}, "float": {"0x7f", "017"}, "enum": {"017"}}
"""Taken here: numbers whose form is lost in reading, or that C++ takes and Python does not."""


@pytest.mark.parametrize("kind", PLACES)
def test_every_value_is_judged_as_protobuf_judges_it(kind):
    """Both ways, but for words that may be new values of an enum."""
    texts = {value: PLACES[kind].format(value) for value in SCALARS if kind != "enum" or not value.isidentifier()}
    differences = {value for value, text in texts.items() if (refusal(text) is None) != is_taken_by_protobuf(text)}

    assert differences == LENIENT.get(kind, set())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("input { data_type: TYPE_FLOAT }", "line 1, column 20: data_type cannot be TYPE_FLOAT; TYPE_FP32 seems to be meant"),
        ("input {\n  data_type: FP32 }", "line 2, column 14: data_type cannot be FP32; TYPE_FP32 seems to be meant"),
        ("output [ { }, { data_type: type_Int_8 } ]", "data_type cannot be type_Int_8; TYPE_INT8 seems to be meant"),
        ("output { data_type: BYTES }", "data_type cannot be BYTES; TYPE_STRING seems to be meant"),
        ("output { data_type: 'TYPE_FP32' }", "column 21: data_type must be a word without quotes, for instance TYPE_FP32"),
        ("output { data_type: 1.5 }", "data_type must be a word without quotes"),
        ("output { data_type: 2147483648 }", "data_type must be a word"),
        ("instance_group { kind: KIND_CUDA }", "kind cannot be KIND_CUDA; KIND_GPU seems to be meant"),
        ("optimization { priority: MAX }", "priority cannot be MAX; PRIORITY_MAX seems to be meant"),
        ("dynamic_batching { default_queue_policy { timeout_action: reject } }", "cannot be reject; REJECT seems to be meant"),
        ("input { dims: [ 1, 'x' ] }", "line 1, column 20: dims must be a whole number"),
        (f"input {{ dims: {'1' * 50} }}", "dims must be from -9223372036854775808 to 9223372036854775807"),
        ("input { dims: 9223372036854775808 }", "dims must be from -9223372036854775808 to 9223372036854775807"),
        ("instance_group { count: 4294967296 }", "count must be from -2147483648 to 2147483647"),
        ("model_warmup { batch_size: -1 }", "batch_size must be from 0 to 4294967295"),
        ("response_cache { enable: yes }", "enable must be true or false"),
        ("sequence_batching { direct { minimum_slot_utilization: 'x' } }", "minimum_slot_utilization must be a number"),
        ("parameters { key: 'k' value { string_value: 7 } }", "string_value must be a string in quotes"),
        ("parameters { key: 'k' value: 'v' }", "value must be a message in braces"),
        ("ensemble_scheduling { step { model_name: 'a' model_name: 'b' } }", "column 46: model_name is set twice"),
        ("input { reshape { } reshape { } }", "column 21: reshape is set twice"),
        ("dynamic_batching { } ensemble_scheduling { }", "ensemble_scheduling and dynamic_batching are set, and only one of them can be"),
        ("backend: [ 'x' ]", "backend has one value, and this is a list"),
        ('backend: "caf\\351"', "backend is not UTF-8"),
    ],
)
def test_the_place_and_what_is_expected_are_told(text, words):
    """Triton would only say "failed to poll from model repository"."""
    found = refusal(text)

    assert found is not None
    assert found.startswith("config.pbtxt cannot be used: line ")
    assert words in found
    assert not is_taken_by_protobuf(text)


@pytest.mark.parametrize(
    "text",
    [
        "next_field: 'x' next_field { data_type: FP32 }",
        "input { data_type: TYPE_FP8 }",
        "input { data_type: TYPE_FP8_E4M3 }",
        "instance_group { kind: KIND_NPU }",
        "input { data_type: 99 next { kind: 7 } }",
        "[nvidia.next] { backend: 7 }",
        "parameters { key: 'k' value { int_value: 7 } }",
        "version_policy { next { } next { } }",
    ],
)
def test_what_may_be_newer_than_the_table_is_not_judged(text):
    """Fields of any name, and enum values that are no known one in other words."""
    assert refusal(text) is None


def test_a_sign_may_stand_apart_from_its_number():
    """C++ reads the sign as a token of its own; Python's protobuf does not."""
    for number in ("- 1.5", "-\n1", "- # below all\n inf", "-\tNaN"):
        assert refusal(PLACES["float"].format(number)) is None
    assert refusal(PLACES["enum"].format("- inf")) is not None


@pytest.mark.parametrize(
    ("place", "words"),
    [
        (PLACES["enum"], ENUMS["ModelInstanceGroup.Kind"]),
        ("input {{ data_type: {} }}", ENUMS["DataType"]),
        ("input {{ format: {} }}", ENUMS["ModelInput.Format"]),
        ("optimization {{ priority: {} }}", ENUMS["ModelOptimizationPolicy.ModelPriority"]),
        ("dynamic_batching {{ default_queue_policy {{ timeout_action: {} }} }}", ENUMS["ModelQueuePolicy.TimeoutAction"]),
        ("batch_input {{ kind: {} }}", ENUMS["BatchInput.Kind"]),
    ],
)
def test_every_known_value_is_taken_and_told_when_it_is_written_otherwise(place, words):
    """Another case, no underscores, without the common prefix."""
    for word in words:
        assert refusal(place.format(word)) is None
        for other in {word.lower(), word.replace("_", ""), word.removeprefix(words[0].partition("_")[0] + "_")} - {word}:
            assert f"cannot be {other}; {word} seems to be meant" in str(refusal(place.format(other)))
