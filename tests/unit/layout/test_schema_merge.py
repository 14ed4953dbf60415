"""The schema decides which tensors exist, their type and dims; the config keeps the rest."""

from __future__ import annotations

from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st

from adapter.layout import model_config
from adapter.layout.schema import DATATYPES, Schema, Tensor
from tests.unit.layout.cases.builders import config_from, config_of

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
