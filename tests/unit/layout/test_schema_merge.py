"""The schema decides which tensors exist, their type and dims; the config keeps the rest."""

from __future__ import annotations

import pytest
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.grpc import model_config_pb2

from adapter.errors import InvalidModel
from adapter.layout import model_config
from adapter.layout.schema import DATATYPES, Schema, Tensor
from tests.unit.layout.cases.builders import config_from, config_of

A = Tensor("a", "TYPE_FP32", (1, 2))
B = Tensor("b", "TYPE_INT64", (-1,))

CONFIG = """\
backend: "x"
# the pixels
input {
  name: "a"  # first
  data_type: TYPE_UINT8
  format: FORMAT_NCHW
  dims: [ 4, 5 ]  # as trained
  reshape { shape: [ 20 ] }
}
output [ { name: "a" dims: 1 dims: 2 data_type: TYPE_FP32 label_filename: "l.txt" }, { name: "gone" } ]
"""

names = st.sampled_from(["a", "b", "c", 'q"uote', "ü\n"])
data_types = st.sampled_from(sorted(set(DATATYPES.values())))
dims = st.lists(st.integers(1, 9), min_size=1, max_size=3)
tensors = st.lists(st.builds(Tensor, names, data_types, dims.map(tuple)), unique_by=lambda tensor: tensor.name, max_size=4).map(tuple)
entries = st.lists(
    st.fixed_dictionaries(
        {"name": names},
        optional={
            "data_type": data_types,
            "dims": dims,
            "reshape": st.fixed_dictionaries({"shape": dims}),
            "is_shape_tensor": st.just(True),
        },
    ),
    unique_by=lambda entry: entry["name"],
    max_size=4,
)


def merged(text: str, inputs=(), outputs=()) -> str:
    return model_config.read(text.encode()).rewritten(Schema(tuple(inputs), tuple(outputs))).decode()


def test_an_entry_of_the_same_name_keeps_its_other_fields_and_comments():
    """Only type and dims are touched; new tensors come after it in the schema's order."""
    assert merged(CONFIG, inputs=[A]) == CONFIG.replace("TYPE_UINT8", "TYPE_FP32").replace("dims: [ 4, 5 ]", "dims: [ 1, 2 ]")


def test_entries_of_other_names_go_and_new_ones_come():
    """In the schema's order, wherever the config had its list."""
    found = merged(CONFIG, outputs=[B, A])

    assert found == CONFIG[: CONFIG.index("output")] + (
        'output {\n  name: "b"\n  data_type: TYPE_INT64\n  dims: [ -1 ]\n}\n'
        'output { name: "a" dims: 1 dims: 2 data_type: TYPE_FP32 label_filename: "l.txt" }\n'
    )
    assert (
        config_of(found).output
        == config_from(
            {
                "output": [
                    {"name": "b", "data_type": "TYPE_INT64", "dims": [-1]},
                    {"name": "a", "data_type": "TYPE_FP32", "dims": [1, 2], "label_filename": "l.txt"},
                ]
            }
        ).output
    )


def test_a_config_that_agrees_already_is_not_touched():
    """Byte for byte."""
    text = "input [ { name: 'a' dims: 1 dims: [2] data_type: TYPE_FP32 } ]  # so\n"

    assert merged(text, inputs=[A]) == text


@pytest.mark.parametrize(
    ("entry", "left"),
    [
        ("{name:'a'}", "{ data_type: TYPE_FP32  dims: [ 1, 2 ] name:'a'}"),
        ("<name: 'a' dims: [7]>", "< data_type: TYPE_FP32 name: 'a' dims: [ 1, 2 ]>"),
        ("{ name: 'a', data_type: 3, dims: 7, dims: 8, optional: true }", None),
        ("{\n  name: 'a'\n  dims: 7\n  dims: 8\n}", "{ data_type: TYPE_FP32 \n  name: 'a'\n  dims: [ 1, 2 ]\n}"),
    ],
)
def test_an_entry_may_be_written_in_any_form(entry, left):
    """Braces or angle brackets, with separators, repeated or listed dims, or none."""
    found = merged(f"input {entry}", inputs=[A])

    assert left is None or found == f"input {left}"
    assert (config_of(found).input[0].data_type, list(config_of(found).input[0].dims)) == (model_config_pb2.TYPE_FP32, [1, 2])


def test_an_entry_that_has_no_name_goes():
    """The schema names every tensor that there is."""
    found = merged("input { name: 'a' dims: 9 } # first\ninput { dims: 3 }\nbackend: 'x'\n", inputs=[A])

    assert found == "input { data_type: TYPE_FP32  name: 'a' dims: [ 1, 2 ] }\n # first\nbackend: 'x'\n"


def test_tensors_are_added_where_the_config_has_none():
    """At the end, even after a comment that the file ends with."""
    found = merged("backend: 'x' # end", inputs=[A], outputs=[B])

    assert found.startswith("backend: 'x' # end\n")
    assert [tensor.name for tensor in config_of(found).input] == ["a"]
    assert [tensor.name for tensor in config_of(found).output] == ["b"]


def test_a_config_with_two_entries_of_a_name_is_refused():
    """Nobody could say which one the schema means."""
    with pytest.raises(InvalidModel, match="line 2, column 7: the input a is there twice"):
        merged("input { name: 'a' }\ninput { name: 'a' }", inputs=[A, B])


def expected_list(old, wanted):
    if not wanted:
        return old
    by_name = {entry["name"]: entry for entry in old}
    return [{**by_name.get(new.name, {}), "name": new.name, "data_type": new.data_type, "dims": list(new.dims)} for new in wanted]


@given(entries, entries, tensors, tensors, st.booleans(), st.booleans(), st.booleans())
def test_merging_gives_what_the_rule_says(old_inputs, old_outputs, inputs, outputs, one_line, pointy, has_name):
    """For any lists on either side and any way of writing, as Triton's own parser reads it."""
    old = config_from({"backend": "x", "input": old_inputs, "output": old_outputs, "name": "n" if has_name else ""})
    text = text_format.MessageToString(old, as_one_line=one_line, pointy_brackets=pointy)

    found = merged(text, inputs, outputs)

    assert config_of(found) == config_from(
        {"backend": "x", "input": expected_list(old_inputs, inputs), "output": expected_list(old_outputs, outputs)}
    )
