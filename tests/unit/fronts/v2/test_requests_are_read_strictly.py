"""A V2 request as HTTP carries it: what is meant is understood, what cannot be meant is named."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapter.fronts.failures import HttpError
from adapter.fronts.tensors import element_bytes
from adapter.fronts.v2.requests import asked, head_of, meant, raw
from adapter.inference import DATATYPES, ModelInfo, parameters_of, split
from tests.messages import Info, info_of, tensors_of

X = {"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}


def an_info(datatype: str = "FP32", shape: tuple[int, ...] = (-1, 2), inputs: int = 1, batch: int = 0) -> ModelInfo:
    entries = tuple(Info(name=f"x{number}", datatype=datatype, shape=shape) for number in range(inputs))
    return info_of("m", entries, batch=batch)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ([], "object"),
        ({"inputs": {}}, "`$.inputs`"),
        ({"inputs": [1]}, "`$.inputs[0]`"),
        ({"id": 1}, "`$.id`"),
        ({"parameters": []}, "`$.parameters`"),
        ({"parameters": {"a": None}}, "`$.parameters[...]`"),
        ({"parameters": {"binary_data_output": 1}}, "binary_data_output"),
        ({"inputs": [{**X, "name": 1}]}, "`$.inputs[0].name`"),
        ({"inputs": [{**X, "datatype": "FP8"}]}, "no datatype 'FP8'"),
        ({"inputs": [{**X, "shape": [-1]}]}, "`$.inputs[0].shape[0]`"),
        ({"inputs": [{**X, "shape": [True]}]}, "`$.inputs[0].shape[0]`"),
        ({"inputs": [{**X, "shape": "1"}]}, "`$.inputs[0].shape`"),
        ({"inputs": [{**X, "shape": [2**40, 2**40]}]}, "more elements"),
        ({"inputs": [{**X, "shape": [0, 2**61], "data": []}]}, "more elements"),
        ({"inputs": [{**X, "shape": [2]}]}, "Shape does not match"),
        ({"outputs": [{"name": "y", "parameters": {"binary_data": "no"}}]}, "binary_data"),
        ({"outputs": [{"name": "y", "parameters": {"content_type": "hex"}}]}, "content_type"),
        ({"inputs": [{**X, "parameters": {"binary_data_size": 4}}]}, "binary_data_size"),
        ({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "parameters": {"shared_memory_region": "r"}}]}, "shared memory"),
        ({"outputs": [{"name": "y", "parameters": {"shared_memory_region": "r"}}]}, "shared memory"),
        ({"id": "a\0b"}, "`$.id`"),
        ({"inputs": [{**X, "name": "x\0"}]}, "`$.inputs[0].name`"),
        ({"outputs": [{"name": "y\0z"}]}, "`$.outputs[0].name`"),
        ({"parameters": {"a\0b": 1}}, "`key` in `$.parameters`"),
        ({"parameters": {"sequence_id": "a\0b"}}, "`$.parameters[...]`"),
        ({"inputs": [{**X, "parameters": {"a": "\0"}}]}, "`$.inputs[0].parameters[...]`"),
    ],
)
def test_what_cannot_be_meant_is_400_and_named(change: Any, words: str) -> None:
    value = {"inputs": [X], **change} if isinstance(change, dict) else change
    with pytest.raises(HttpError) as refused:
        asked("m", "", value, memoryview(b""))
    assert refused.value.status == 400
    assert words in refused.value.text


def test_inputs_may_be_none_but_must_be_told() -> None:
    """All inputs of a model may be optional."""
    assert list(asked("m", "", {"inputs": []}, memoryview(b"")).request.inputs) == []
    with pytest.raises(HttpError, match="required field `inputs`"):
        asked("m", "", {}, memoryview(b""))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["name", "data", "binary_data_size"]), inner, max_size=3),
    max_leaves=8,
)


def mostly(*good: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """One time in eight it is anything."""
    return st.integers(0, 7).flatmap(lambda number: st.one_of(*good) if number else JSON)


DATA = st.sampled_from([[0], [1.5], [True], ["a"], ["AA=="], [[1, 2], [3, 4]], [300, -1, 70000, 2], [], [[]], [math.nan]])
PARAMETERS = st.dictionaries(
    st.sampled_from(["binary_data_size", "content_type", "a", "b"]), st.sampled_from([1, 4, 8, "base64", True, 1.5]), max_size=2
)
ENTRY = mostly(
    st.fixed_dictionaries(
        {
            "name": mostly(st.sampled_from(["x", "y", "z"])),
            "datatype": mostly(st.sampled_from(sorted(DATATYPES))),
            "shape": mostly(st.sampled_from([[1], [2, 2], [4], [], [0], [0, 3]])),
        },
        optional={"data": mostly(DATA), "parameters": mostly(PARAMETERS)},
    )
)
REQUEST = mostly(
    st.fixed_dictionaries(
        {"inputs": st.lists(ENTRY, max_size=2)}, optional={"outputs": st.lists(ENTRY, max_size=1), "id": mostly(st.text())}
    )
)


@settings(max_examples=500, deadline=None)
@given(REQUEST, st.sampled_from([b"", b"1", b"1234", b"12345678"]))
def test_any_request_is_understood_or_400(value: Any, binary: bytes) -> None:
    """What is understood has the bytes that its datatype and shape say."""
    try:
        found = asked("m", "", value, memoryview(binary))
    except HttpError as refused:
        assert refused.status == 400
        return
    for tensor in tensors_of(found.request):
        size = element_bytes(tensor.datatype)
        assert size is None or len(tensor.data) == size * math.prod(tensor.shape)
        if size is None and b"binary" not in repr(value).encode():
            assert len(split(tensor.data)) == math.prod(tensor.shape)


def test_binary_data_is_taken_in_order_and_all_of_it() -> None:
    def entry(name: str, size: int) -> dict[str, Any]:
        return {"name": name, "datatype": "INT16", "shape": [size // 2], "parameters": {"binary_data_size": size, "other": 1.5}}

    found = asked("m", "1", {"inputs": [entry("a", 2), entry("b", 4)]}, memoryview(b"aabbbb")).request
    assert [tensor.data for tensor in tensors_of(found)] == [b"aa", b"bbbb"]
    assert parameters_of(found.inputs[0]) == {"other": 1.5}
    for rest in (b"aabbb", b"aabbbbb"):
        with pytest.raises(HttpError):
            asked("m", "", {"inputs": [entry("a", 2), entry("b", 4)]}, memoryview(rest))


def test_an_outputs_own_word_beats_the_requests() -> None:
    outputs = [{"name": "a", "parameters": {"binary_data": False}}, {"name": "b"}, {"name": "c", "parameters": {"content_type": "base64"}}]
    found = asked("m", "", {"inputs": [X], "outputs": outputs, "parameters": {"binary_data_output": True}}, memoryview(b""))
    assert [found.is_binary(name) for name in "abc"] == [False, True, True]
    assert found.base64 == {"c"}
    assert parameters_of(found.request) == {}


@pytest.mark.parametrize("text", ["", "x", "-1", "11", "1.0", "٣", "9" * 30])
def test_a_header_length_that_is_none_is_400(text: str) -> None:
    with pytest.raises(HttpError, match=r"must be a number from 0 to the length of the body \(10\)"):
        meant("m", "", head_of(text), None, bytes(10))


def test_a_header_length_is_a_number_of_bytes() -> None:
    assert [head_of(text) for text in (None, "0", " 10 ")] == [None, 0, 10]


@pytest.mark.parametrize(
    ("info", "body", "shape"),
    [
        (an_info(), bytes(16), [2, 2]),
        (an_info(shape=(2,)), bytes(8), [2]),
        (an_info(shape=(-1, 4), batch=8), bytes(16), [1, 4]),
        (an_info("BYTES", (1,)), b"abc", [1]),
        (an_info("BYTES", (-1, 1), batch=4), b"abc", [1, 1]),
    ],
)
def test_a_raw_body_is_the_one_input(info: ModelInfo, body: bytes, shape: list[int]) -> None:
    (tensor,) = tensors_of(raw(info, "", body).request)
    assert list(tensor.shape) == shape
    assert tensor.data.endswith(body)


@pytest.mark.parametrize(
    ("info", "body"),
    [
        (an_info(), bytes(15)),
        (an_info(inputs=2), bytes(8)),
        (an_info(shape=(-1, -1)), bytes(8)),
        (an_info(shape=(2,)), bytes(16)),
        (an_info("BYTES", (2,)), b"a"),
    ],
)
def test_a_raw_body_that_does_not_fit_is_400(info: ModelInfo, body: bytes) -> None:
    with pytest.raises(HttpError) as refused:
        raw(info, "", body)
    assert refused.value.status == 400
