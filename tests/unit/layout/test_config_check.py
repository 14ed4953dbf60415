"""What protobuf would not take is refused with line and column, and nothing else is."""

from __future__ import annotations

import tracemalloc

import pytest
from google.protobuf import text_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from hypothesis import assume, event, given
from hypothesis import strategies as st
from tritonclient.grpc import model_config_pb2

from adapter.errors import InvalidModel
from adapter.layout import model_config

CONFIG = model_config_pb2.ModelConfig.DESCRIPTOR


def enums(message: Descriptor) -> dict[str, list[str]]:
    found = {enum.full_name.removeprefix("inference."): [value.name for value in enum.values] for enum in message.enum_types}
    for inner in message.nested_types:
        found |= enums(inner)
    return found


ENUMS = {"DataType": list(model_config_pb2.DataType.keys())}
for message in model_config_pb2.DESCRIPTOR.message_types_by_name.values():
    ENUMS |= enums(message)
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
        model_config.read(text.encode())
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
    """Any field with any value at any depth; a batch size below 0 is refused by a rule of Triton's."""
    found = refusal(text)
    assume("0 or more is expected" not in (found or ""))

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


@pytest.mark.parametrize("kind", PLACES)
def test_every_value_is_judged_as_protobuf_judges_it(kind):
    """Both ways, but for words that may be new values of an enum."""
    texts = {value: PLACES[kind].format(value) for value in SCALARS if kind != "enum" or not value.isidentifier()}
    differences = {value for value, text in texts.items() if (refusal(text) is None) != is_taken_by_protobuf(text)}

    assert differences == {"int32": {"-1", "-2147483648"}}.get(kind, set())


def test_spaces_and_comments_cost_no_memory():
    """Python's protobuf takes 180 bytes for each space of a line."""
    tracemalloc.start()
    try:
        assert refusal("backend:" + " " * 2**19 + "'x' #" + "#" * 2**18) is None
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()


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
