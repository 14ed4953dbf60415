"""The generate extension's mapping: keys → tensors and parameters, answers → flat objects."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest

from adapter.fronts.failures import HttpError
from adapter.fronts.v2.requests import flat_meant
from adapter.fronts.v2.routes import flat_written
from adapter.inference import ModelInfo, parameters_of
from tests.messages import Info, Tensor, info_of, response_of, tensors_of, texts


def a_model(**inputs: tuple[str, list[int]]) -> ModelInfo:
    entries = [Info(name=name, datatype=datatype, shape=shape) for name, (datatype, shape) in inputs.items()]
    return info_of("m", entries)


MODEL = a_model(PROMPT=("BYTES", [1]), STREAM=("BOOL", [1]), NUMBERS=("FP32", [-1, 2]))


def asked(value: Any, model: ModelInfo = MODEL) -> Any:
    return flat_meant(model, "", value if isinstance(value, bytes) else json.dumps(value).encode()).request


def test_inputs_are_tensors_and_the_rest_are_parameters() -> None:
    request = asked(
        {"id": "7", "PROMPT": "é", "temperature": 0.5, "n": 3, "parameters": {"STREAM": True, "seed": -1, "mode": "a", "ok": False}}
    )
    assert [(tensor.name, list(tensor.shape), tensor.data) for tensor in tensors_of(request)] == [
        ("PROMPT", [1], b"\x02\0\0\0\xc3\xa9"),
        ("STREAM", [1], b"\x01"),
    ]
    assert (request.id, request.model_name) == ("7", "m")
    assert parameters_of(request) == {"temperature": 0.5, "n": 3, "seed": -1, "mode": "a", "ok": False}


@pytest.mark.parametrize(
    ("dims", "count", "shape"),
    [
        ([1], 1, [1]),
        ([-1], 3, [3]),
        ([-1], 0, [0]),
        ([-1, 1], 2, [2, 1]),
        ([-1, 2], 6, [3, 2]),
        ([-1, -1], 3, [1, 3]),
        ([-1, -1, 2], 6, [1, 3, 2]),
        ([2, 3], 6, [2, 3]),
        ([2, 3], 5, None),
        ([1], 2, None),
        ([1], 0, None),
        ([-1, 2], 3, None),
        ([0], 0, None),
        ([], 1, []),
    ],
)
def test_the_innermost_free_dimension_has_what_the_fixed_ones_leave(dims: list[int], count: int, shape: list[int] | None) -> None:
    model = a_model(X=("INT8", dims))
    if shape is None:
        with pytest.raises(HttpError, match="do not fill the shape"):
            asked({"X": list(range(count))}, model)
    else:
        (tensor,) = tensors_of(asked({"X": list(range(count))}, model))
        assert (list(tensor.shape), tensor.data) == (shape, bytes(range(count)))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"PROMPT": 123}, "input 'PROMPT': attempt to access JSON non-string as string"),
        ({"PROMPT": {"a": 1}}, "attempt to access JSON non-string as string"),
        ({"PROMPT": None}, "attempt to access JSON non-string as string"),
        ({"STREAM": "false", "PROMPT": 1}, "input 'STREAM': attempt to access JSON non-boolean as boolean"),
        ({"NUMBERS": [[1, 2]]}, "one element, or a list"),
        ({"NUMBERS": ["1", "2"]}, "needs numbers"),
        ({"NUMBERS": [1e39, 0]}, "cannot hold"),
        ({"PARAMS": {"a": 1}}, "parameter 'PARAMS' has invalid type"),
        ({"PARAMS": None}, "parameter 'PARAMS' has invalid type"),
        ({"PARAMS": [1]}, "parameter 'PARAMS' has invalid type"),
        ({"parameters": 1}, "'parameters' must be an object"),
        ({"parameters": {"parameters": {}}}, "parameter 'parameters' has invalid type"),
        ({"id": 1}, r"Expected `str`, got `int` - at `\$\.id`"),
        ({"id": "a\0b"}, r"without a NUL - at `\$\.id`"),
        ({"PROMPT\0": "a"}, "without a NUL - at `key`"),
        ({"parameters": {"mode": "a\0b"}}, r"without a NUL - at `\$\.parameters"),
        (b"[1]", "must be a JSON object"),
        (b"", "no JSON"),
        (b"{nope", "no JSON"),
        (b'{"PROMPT": "\\ud800"}', "no JSON"),
        (b'{"n": 1%s}' % (b"0" * 5000), "no JSON"),
        (b'{"n":' * 2_000 + b"1" + b"}" * 2_000, "no JSON"),
    ],
)
def test_what_cannot_be_a_request_is_the_callers_mistake(body: Any, words: str) -> None:
    with pytest.raises(HttpError, match=words) as refused:
        asked(body)
    assert refused.value.status == 400


def test_parameters_cannot_be_an_input() -> None:
    with pytest.raises(HttpError, match="cannot be the name of an input"):
        asked({"x": 1}, a_model(parameters=("BYTES", [1])))


def test_an_input_may_be_called_id() -> None:
    request = asked({"id": [4]}, a_model(id=("INT32", [1])))
    assert (request.id, tensors_of(request)[0].data) == ("", struct.pack("<i", 4))


def written(*outputs: Tensor, **parameters: Any) -> str:
    response = response_of("another", *outputs, id=parameters.pop("id", ""), parameters=parameters)
    return flat_written(response, "m").decode()


def test_one_element_stands_alone_and_more_are_a_list() -> None:
    numbers = Tensor(name="n", datatype="FP32", shape=[1, 2], data=struct.pack("<2f", 1, float("nan")))
    one = Tensor(name="o", datatype="INT64", shape=[1, 1], data=struct.pack("<q", 2**62))
    none = Tensor(name="z", datatype="INT8", shape=[0], data=b"")
    found = written(texts("text", b'a"\n, ]'), numbers, one, none, texts("list", b"x", b"y"), triton_x=True, id="7")
    assert found == (
        '{"id":"7","list":["x","y"],"model_name":"m","model_version":"1","n":[1.0,NaN],"o":4611686018427387904,'
        '"text":"a\\"\\n, ]","triton_x":true,"z":[]}'
    )
    assert "\n" not in found


def test_names_of_the_protocol_win_over_outputs() -> None:
    assert json.loads(written(texts("model_name", b"no"))) == {"model_name": "m", "model_version": "1"}


def test_a_text_that_is_no_utf8_is_no_json() -> None:
    with pytest.raises(HttpError, match="no UTF-8"):
        written(texts("t", b"\xff"))
