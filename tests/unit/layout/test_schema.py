"""The model schema: what it may say, and what Triton cannot express."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.errors import InvalidModel
from adapter.layout import model_config, schema
from adapter.layout.schema import DATATYPES, Schema, Tensor
from tests.unit.layout.cases.builders import config_from, config_of


def read(value, max_batch_size=0):
    return schema.read(json.dumps(value).encode(), max_batch_size)


def tensor(**changes):
    return {"name": "t", "datatype": "FP32", "shape": [1], **changes}


def refusal(value, max_batch_size=0):
    with pytest.raises(InvalidModel) as caught:
        read(value, max_batch_size)
    return caught.value.text


def test_the_peers_own_case_becomes_a_config():
    """Source: its test convertSchema."""
    found = read(
        {
            "inputs": [{"name": "inputs", "datatype": "FP32", "shape": [784]}],
            "outputs": [{"name": "classes", "datatype": "INT64", "shape": [1]}],
        }
    )

    assert config_of(model_config.new("", found).text) == config_from(
        {
            "input": [{"name": "inputs", "data_type": "TYPE_FP32", "dims": [784]}],
            "output": [{"name": "classes", "data_type": "TYPE_INT64", "dims": [1]}],
        }
    )


@pytest.mark.parametrize("datatype", DATATYPES)
def test_every_v2_datatype_has_its_triton_type(datatype):
    """Triton's enum knows each of them; BYTES and STRING are the same."""
    found = read({"inputs": [tensor(datatype=datatype)]})

    expected = "TYPE_STRING" if datatype == "BYTES" else f"TYPE_{datatype}"
    assert config_of(model_config.new("", found).text) == config_from({"input": [{"name": "t", "data_type": expected, "dims": [1]}]})


@pytest.mark.parametrize("value", [{}, {"inputs": None}, {"inputs": [], "outputs": []}, {"name": "x", "other": 1}])
def test_an_absent_or_empty_list_says_nothing(value):
    """Unknown keys neither."""
    assert read(value) == Schema()


def test_a_byte_order_mark_is_legal():
    """Editors on Windows write one."""
    assert schema.read(b"\xef\xbb\xbf{}") == Schema()


def test_the_batch_dimension_is_cut_where_the_model_batches():
    """Both sides, and only the first."""
    value = {"inputs": [tensor(shape=[-1, 64, -1])], "outputs": [tensor(shape=[-1, 10])]}

    assert read(value, 8) == Schema((Tensor("t", "TYPE_FP32", (64, -1)),), (Tensor("t", "TYPE_FP32", (10,)),))
    assert read(value, 0) == Schema((Tensor("t", "TYPE_FP32", (-1, 64, -1)),), (Tensor("t", "TYPE_FP32", (-1, 10)),))


@pytest.mark.parametrize(
    ("shape", "batch", "words"),
    [
        ([10], 4, "begins with 10: config.pbtxt has max_batch_size 4"),
        ([], 4, "(inputs[0].shape) is empty: config.pbtxt has max_batch_size 4"),
        (None, 4, "is empty: config.pbtxt has max_batch_size 4"),
        ([-1], 4, "has no dimension besides the batch"),
        ([], 0, "has no dimension: Triton has no scalars"),
        (None, 0, "has no dimension: Triton has no scalars"),
        ([3, 0], 0, "a dimension that Triton does not allow at inputs[0].shape[1]"),
        ([-2], 0, "a dimension that Triton does not allow at inputs[0].shape[0]"),
        ([2**63], 0, "a dimension that Triton does not allow at inputs[0].shape[0]"),
    ],
)
def test_a_shape_that_triton_cannot_express_is_refused(shape, batch, words):
    """The batch rule, scalars (which crashed the Go adapter), and what is no dimension."""
    assert words in refusal({"inputs": [tensor(shape=shape)]}, batch)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([], "an array at the top level, an object is expected"),
        (None, "nothing at the top level, an object is expected"),
        ({"inputs": {}}, "an object at inputs, an array is expected"),
        ({"outputs": "x"}, "a string at outputs, an array is expected"),
        ({"inputs": [1]}, "a number at inputs[0], an object is expected"),
        ({"inputs": [tensor(), tensor(name=3)]}, "a number at inputs[1].name, a string is expected"),
        ({"inputs": [{"datatype": "FP32"}]}, "nothing at inputs[0].name, a string is expected"),
        ({"inputs": [tensor(name="")]}, "an empty name at inputs[0].name"),
        ({"inputs": [tensor(name="\ud800")]}, "half a surrogate pair in inputs[0].name"),
        ({"inputs": [tensor(datatype=None)]}, "nothing at inputs[0].datatype, a string is expected"),
        ({"inputs": [tensor(datatype=["FP32"])]}, "an array at inputs[0].datatype"),
        ({"inputs": [tensor(shape="1,2")]}, "a string at inputs[0].shape, an array is expected"),
        ({"inputs": [tensor(shape=[1, 2.0])]}, "a number with a fraction at inputs[0].shape[1], a whole number is expected"),
        ({"inputs": [tensor(shape=[True])]}, "true or false at inputs[0].shape[0], a whole number is expected"),
        ({"inputs": [tensor(), tensor()]}, "names the tensor t twice in inputs"),
    ],
)
def test_a_wrong_value_is_refused_with_its_json_path(value, words):
    """So that it can be found in a long file."""
    assert words in refusal(value)


@pytest.mark.parametrize("datatype", ["FLOAT", "fp32", "TYPE_FP32", "INVALID", ""])
def test_an_unknown_datatype_names_the_tensor_and_the_legal_ones(datatype):
    """The Go adapter made TYPE_INVALID of it."""
    found = refusal({"inputs": [tensor(name="pixels", datatype=datatype)]})

    assert "the tensor pixels the unknown datatype" in found
    assert all(legal in found for legal in DATATYPES)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "line 1, column 1"),
        (b'{"inputs":\n [}', "line 2, column 3"),
        (b"\xff", "not UTF-8 (byte 0)"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"inputs": [{"name": "a", "datatype": "FP32", "shape": [' + b"9" * 10_000 + b"]}]}", "a number is too long"),
    ],
)
def test_what_is_no_json_is_refused(content, words):
    """With its place where there is one; never with a crash."""
    with pytest.raises(InvalidModel) as caught:
        schema.read(content)

    assert words in caught.value.text
    assert caught.value.text.startswith("the schema is not ")


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["inputs", "outputs", "name", "datatype", "shape"]), inner, max_size=4),
    ),
)


@given(json_values, st.integers(0, 4))
def test_any_json_is_read_or_refused(value, max_batch_size):
    """Never a crash: one request took the Go adapter down."""
    try:
        found = read(value, max_batch_size)
    except InvalidModel as error:
        assert "\n" not in error.text
        return
    assert all(tensor.dims for tensor in found.inputs + found.outputs)
