"""ModelMesh forwards calls with one answer: a model that answers decoupled is refused, or loads with a warning."""

from __future__ import annotations

import pytest

from adapter.errors import InvalidModel
from tests.unit.layout.cases.builders import planned
from tests.unit.layout.test_bundles import planned as plan_bundle

DECOUPLED = 'backend: "python"\nmodel_transaction_policy { decoupled: true }\n'
STEP = 'platform: "ensemble"\nensemble_scheduling { step { model_name: "a" } }\n'


@pytest.mark.parametrize("files", [["model.json"], ["1/model.json", "1/weights/w.safetensors"], ["config.json"]])
def test_vllm_without_a_config_is_refused_with_the_parameter_that_allows_it(files):
    """Whatever else is wrong with the files."""
    with pytest.raises(InvalidModel) as refused:
        planned("vllm", files)

    assert refused.value.text.startswith("a vLLM model is decoupled: ")
    assert 'set adapter.allowDecoupled to "true" in its storage_params, or give it a config.pbtxt' in refused.value.text


def test_vllm_that_is_allowed_loads_with_a_warning():
    """One, of the layout as a whole."""
    (warning,) = planned("vllm", ["model.json"], allow_decoupled=True).warnings

    assert "ModelMesh forwards calls with one answer only" in warning


@pytest.mark.parametrize(
    "config",
    [
        'backend: "vllm"',
        DECOUPLED,
        "model_transaction_policy { decoupled: True }",
        "model_transaction_policy: < decoupled: t >",
        "model_transaction_policy { decoupled: 1 }",
        "model_transaction_policy { decoupled: false decoupled: true }",
    ],
)
def test_a_decoupled_config_of_the_user_loads_with_a_warning(config):
    """The vLLM backend sets the policy itself."""
    assert len(planned("python", ["config.pbtxt", "1/model.py", "1/model.json"], config=config).warnings) == 1


@pytest.mark.parametrize(
    "config", ["", 'backend: "python"', "model_transaction_policy { }", "model_transaction_policy { decoupled: false }"]
)
def test_other_models_have_no_warning(config):
    assert planned("python", ["config.pbtxt", "1/model.py"], config=config).warnings == ()


def test_an_ensemble_is_as_decoupled_as_its_steps():
    """Triton takes an ensemble for decoupled when one of its steps is."""
    (warning,) = plan_bundle({"top/config.pbtxt": STEP, "a/config.pbtxt": DECOUPLED, "a/1/model.py": ""}).warnings

    assert warning.startswith("a: the model is decoupled: ")


def test_a_model_that_bls_calls_may_be_decoupled():
    """The caller gathers its answers."""
    bls = 'backend: "python"\nparameters { key: "bls_model.a" value { string_value: "a" } }\n'
    files = {"top/config.pbtxt": bls, "top/1/model.py": "", "a/config.pbtxt": DECOUPLED, "a/1/model.py": ""}

    assert plan_bundle(files).warnings == ()
