"""Storage parameters that begin with `adapter.`: one list, read once, kept from every store."""

from __future__ import annotations

from dataclasses import fields

import pytest

from adapter.errors import InvalidRequest
from adapter.model import ModelSpec
from adapter.parameters import PARAMETERS, PREFIX, split
from tests.tables import parameters_markdown


def test_ours_are_read_and_the_others_stay_as_they_are():
    """The store's parameters hold no name of ours."""
    own, others = split(
        {"adapter.modelSizeBytes": "1KiB", "bucket": "b", "adapter.topModel": "top", "headers.X": "", "adapter.allowDecoupled": "true"}
    )

    assert own == {"size_hint_bytes": 1024, "top_model": "top", "allow_decoupled": True}
    assert others == {"bucket": "b", "headers.X": ""}


def test_each_is_a_field_of_the_model():
    """With the common prefix."""
    assert {parameter.field for parameter in PARAMETERS} <= {field.name for field in fields(ModelSpec)}
    assert all(parameter.name.startswith(PREFIX) for parameter in PARAMETERS)


@pytest.mark.parametrize("name", ["adapter.magic", "adapter.", "ADAPTER.topModel", "adapter.topmodel"])
def test_an_unknown_one_is_refused_with_those_that_exist(name: str):
    """The prefix in any case is ours; the names are exact."""
    with pytest.raises(InvalidRequest) as refused:
        split({name: "secret"})

    known = "adapter.modelSizeBytes, adapter.topModel, adapter.allowDecoupled"
    assert refused.value.text == f"unknown storage parameter {name!r}; the adapter knows {known}"


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("adapter.modelSizeBytes", "0", "a size greater than 0, in bytes or with a unit as in 512MiB"),
        ("adapter.modelSizeBytes", "secret", "a size greater than 0, in bytes or with a unit as in 512MiB"),
        ("adapter.modelSizeBytes", str(2**63), "a size greater than 0, in bytes or with a unit as in 512MiB"),
        ("adapter.allowDecoupled", "perhaps", '"true" or "false"'),
        *(("adapter.topModel", text, "the name of a directory") for text in ("a/b", "..", "", "x" * 256)),
    ],
)
def test_a_wrong_value_is_refused_without_quoting_it(name: str, text: str, expected: str):
    """Any parameter may hold a secret by mistake."""
    with pytest.raises(InvalidRequest) as refused:
        split({name: text})

    assert refused.value.text == f"storage parameter {name} must be {expected}"


def test_the_table_of_the_documentation_has_a_row_for_each():
    """In Markdown."""
    assert [row.split("`")[1] for row in parameters_markdown().splitlines()[2:]] == [parameter.name for parameter in PARAMETERS]
