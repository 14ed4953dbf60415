"""config.pbtxt: the name goes, everything else stays; mistakes are refused with line and column."""

from __future__ import annotations

import pytest
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st

from adapter.layout import model_config
from adapter.layout.schema import Schema
from tests.unit.layout.cases.builders import config_from, config_of

names = st.text(st.characters(codec="utf-8"), max_size=8)
tensors = st.fixed_dictionaries(
    {"name": names, "data_type": st.sampled_from(["TYPE_FP32", "TYPE_STRING"]), "dims": st.lists(st.integers(-1, 2**40), max_size=3)}
)
fields = st.fixed_dictionaries(
    {},
    optional={
        "platform": names,
        "backend": names,
        "max_batch_size": st.integers(0, 64),
        "input": st.lists(tensors, max_size=2),
        "output": st.lists(tensors, max_size=2),
        "instance_group": st.lists(st.fixed_dictionaries({"count": st.integers(1, 4), "kind": st.just("KIND_CPU")}), max_size=2),
        "parameters": st.dictionaries(names, st.fixed_dictionaries({"string_value": names}), max_size=2),
        "version_policy": st.sampled_from([{"latest": {"num_versions": 2}}, {"all": {}}, {"specific": {"versions": [1, 5]}}]),
        "dynamic_batching": st.just({"preferred_batch_size": [4, 8], "max_queue_delay_microseconds": 100}),
        "response_cache": st.just({"enable": True}),
    },
)


def rewritten(text: str) -> str:
    return model_config.read(text.encode()).rewritten(Schema()).decode()


@given(
    fields,
    names,
    st.sampled_from(["name: {}\n", "name : {} ;", "# about\nname: '' {} # why\n", "name:\n{},"]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_the_rewritten_config_is_equal_except_for_the_name(known, name, form, one_line, pointy, name_first):
    """Whatever the config holds and however it is written, Triton's own parser reads the same message without name."""
    message = config_from(known)
    body = text_format.MessageToString(message, as_one_line=one_line, pointy_brackets=pointy, as_utf8=True)
    header = form.replace("{}", '"' + text_format.text_encoding.CEscape(name.encode(), as_utf8=True) + '"')
    text = f"{header}{body}\n" if name_first else f"{body}\n{header}"

    assert config_of(rewritten(text)) == message


@pytest.mark.parametrize("text", ["max_batch_size: 0 max_batch_size: 4", "max_batch_size: 4", "backend: '' backend: 'b' max_batch_size: 4"])
def test_the_last_value_counts_where_the_first_was_the_default(text):
    """Protobuf takes such a config, and cannot see that a default was set."""
    assert model_config.read(text.encode()).said.max_batch_size == config_of(text).max_batch_size == 4
    assert model_config.read(text.encode()).said.backend == config_of(text).backend
