"""The model schema: what it may say, and what Triton cannot express."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from adapter.errors import InvalidModel
from adapter.layout import schema


def read(value, max_batch_size=0):
    return schema.read(json.dumps(value).encode(), max_batch_size)


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
