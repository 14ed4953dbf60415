"""The names of other models in a config, found and replaced by their spans alone."""

from __future__ import annotations

import pytest

from adapter.layout import model_config
from tests.unit.layout.cases.builders import config_of

ENSEMBLE = """# steps
platform: "ensemble"
name: "top"
ensemble_scheduling {
  step [ { model_name: "a" model_version: -1 a_field_of_the_future: 7 }, { model_name: 'b' } ] # two
  step { model_name: "a" "" }
}
"""
BLS = """parameters [ { key: "bls_model.first", value: { string_value: "a" } }, { key: "other" value { string_value: "a" } } ]
parameters { value { string_value: "b" } key: "bls_model.second" }
parameters { key: "bls_models" value { string_value: "a" } }
"""


def found(text: str) -> list[tuple[str, str, bool]]:
    return [(reference.name, reference.where, reference.is_step) for reference in model_config.read(text.encode()).references]


def renamed(text: str, **names: str) -> str:
    return model_config.read(text.encode()).rewritten(None, names).decode()


def test_steps_of_an_ensemble_are_references():
    """In lists and on their own, however their strings are written."""
    assert found(ENSEMBLE) == [(name, "an ensemble step", True) for name in ("a", "b", "a")]


def test_parameters_of_a_bls_model_are_references():
    """Those whose key begins with `bls_model.`; Triton does not load them with the model."""
    assert found(BLS) == [("a", "the parameter bls_model.first", False), ("b", "the parameter bls_model.second", False)]


def test_names_are_replaced_and_the_rest_survives():
    """Comments, unknown fields, the order; the model's own name goes as always."""
    assert renamed(ENSEMBLE, a="m~inner~a", b="m~inner~b") == ENSEMBLE.replace('name: "top"\n', "").replace(
        '"a" ""', '"m~inner~a"'
    ).replace('"a"', '"m~inner~a"').replace("'b'", '"m~inner~b"')


def test_only_references_are_replaced():
    """A parameter of another key with the same value stays."""
    parameters = config_of(renamed(BLS, a="x", b="y")).parameters

    assert {key: value.string_value for key, value in parameters.items()} == {
        "bls_model.first": "x",
        "other": "a",
        "bls_model.second": "y",
        "bls_models": "a",
    }


def test_names_that_are_not_given_stay():
    """Nothing is changed without need."""
    assert renamed(BLS) == BLS
    assert renamed(BLS, c="z") == BLS


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ensemble_scheduling { }",
        "ensemble_scheduling { step: [] }",
        "parameters { key: 'bls_model.x' }",
        "parameters { key: 'bls_model.x' value { int64_value: 7 } }",
        "model_name: 'a'",
    ],
)
def test_what_names_nothing_is_no_reference(text):
    """Steps and parameters of other forms."""
    assert found(text) == []


def test_any_name_can_be_written():
    """Quotes and line ends in a directory's name are escaped."""
    assert (
        config_of(renamed('ensemble_scheduling { step { model_name: "a" } }', a='x"\n\\')).ensemble_scheduling.step[0].model_name
        == 'x"\n\\'
    )
