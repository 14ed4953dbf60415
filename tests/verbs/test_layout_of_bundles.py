"""`layout` of a directory with several Triton models: which is which, under which names, and which are none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from adapter.layout.bundles import MOST_MODELS
from tests.unit.layout.cases.builders import OTHERS, PYTHON, bls, config_of, steps
from tests.verbs.layouts import Shown, shown

INNER_A, INNER_B = {"1/model.py": "a/1/model.py"}, {"1/model.py": "b/1/model.py"}


def named_steps(found: Shown, name: str = "m") -> list[str]:
    return [step.model_name for step in config_of(found.configs[name]).ensemble_scheduling.step]


def called(found: Shown, name: str = "m") -> dict[str, str]:
    return {key: value.string_value for key, value in config_of(found.configs[name]).parameters.items()}


@pytest.mark.parametrize(
    ("files", "options", "placed"),
    [
        pytest.param(
            {"top/config.pbtxt": steps("a", "b"), **OTHERS, "README.md": "x"},
            {},
            {"m": {}, "m~inner~a": INNER_A, "m~inner~b": INNER_B},
            id="an ensemble beside its steps",
        ),
        pytest.param(
            {"config.pbtxt": steps("a", "b"), "labels.txt": "x", "1/.keep": "x", **OTHERS},
            {},
            {"m": {"1/.keep": "1/.keep", "labels.txt": "labels.txt"}, "m~inner~a": INNER_A, "m~inner~b": INNER_B},
            id="an ensemble over its steps",
        ),
        pytest.param(
            {"config.pbtxt": steps("a"), "a/config.pbtxt": PYTHON, "a/1/model.py": "x"},
            {},
            {"m": {}, "m~inner~a": INNER_A},
            id="an ensemble over one step",
        ),
        pytest.param(OTHERS, {"top": "b"}, {"m": INNER_B, "m~inner~a": INNER_A}, id="the top model is named"),
        pytest.param(
            {"top/config.pbtxt": steps("a", "b"), **OTHERS, "a/2/model.py": "x", "b/2/model.py": "x"}
            | {"b/config.pbtxt": f"{PYTHON} version_policy {{ all {{ }} }}"},
            {},
            {"m": {}, "m~inner~a": {"2/model.py": "a/2/model.py"}, "m~inner~b": INNER_B | {"2/model.py": "b/2/model.py"}},
            id="versions by each one's policy",
        ),
        pytest.param(
            {"config.pbtxt": PYTHON, "1/model.py": "x", "templates/config.pbtxt": "not { a config"},
            {},
            {"m": {"1/model.py": "1/model.py", "templates/config.pbtxt": "templates/config.pbtxt"}},
            id="a native model that names no other",
        ),
        pytest.param(
            {"top/config.pbtxt": steps("a", "b"), **OTHERS, "serving.properties": "x"},
            {},
            {"m": {"serving.properties": "serving.properties"}, "m~inner~a": INNER_A, "m~inner~b": INNER_B},
            id="options are those of the whole",
        ),
        pytest.param(
            {"top/config.pbtxt": steps("a", "b"), **OTHERS}
            | {"serving.properties": "x", "top/serving.properties": "x", "a/serving.properties": "x"},
            {},
            {
                "m": {"serving.properties": "top/serving.properties"},
                "m~inner~a": INNER_A | {"serving.properties": "a/serving.properties"},
                "m~inner~b": INNER_B,
            },
            id="options that are nearer win",
        ),
    ],
)
def test_models_of_a_bundle_are_placed_under_names_of_their_own(
    files: dict[str, str], options: dict[str, Any], placed: dict[str, Any], tmp_path: Path
) -> None:
    found = shown(tmp_path, files, **options)
    assert found.code == 0, found.text
    assert found.placed == placed


@pytest.mark.parametrize("top", ["top/", ""])
def test_steps_are_named_as_triton_will_know_them(top: str, tmp_path: Path) -> None:
    """And each model's own name goes; the empty version of an ensemble is made."""
    found = shown(tmp_path, {f"{top}config.pbtxt": steps("a", "b"), **OTHERS})
    assert named_steps(found) == ["m~inner~a", "m~inner~b"]
    assert [config_of(config).name for config in found.configs.values()] == ["", "", ""]
    assert found.directories == {"m": ["1"]}


@pytest.mark.parametrize("top", ["top/", ""])
def test_models_that_bls_calls_are_named_so_too(top: str, tmp_path: Path) -> None:
    """Keys stay; a parameter of another key with the same value stays."""
    other = ' parameters { key: "bls_models" value { string_value: "a" } }'
    found = shown(tmp_path, {f"{top}config.pbtxt": bls("a") + other, f"{top}1/model.py": "x", **OTHERS, "a/config.pbtxt": bls("b")})
    assert called(found) == {"bls_model.a": "m~inner~a", "bls_models": "a"}
    assert called(found, "m~inner~a") == {"bls_model.b": "m~inner~b"}


STOCK = {
    "preprocessing/config.pbtxt": PYTHON, "preprocessing/1/model.py": "x",
    "postprocessing/config.pbtxt": PYTHON, "postprocessing/1/model.py": "x",
    "tensorrt_llm/config.pbtxt": 'backend: "tensorrtllm"', "tensorrt_llm/1/rank0.engine": "x",
    "tensorrt_llm_bls/1/model.py": "x",
    "tensorrt_llm_bls/config.pbtxt": PYTHON
    + ' parameters { key: "tensorrt_llm_model_name" value: { string_value: "tensorrt_llm" } }',
}  # fmt: skip
STOCK_ENSEMBLE = {"ensemble/config.pbtxt": steps("preprocessing", "tensorrt_llm", "postprocessing")}


def test_the_stock_models_of_tensorrt_llm_are_one_bundle(tmp_path: Path) -> None:
    """The BLS model is asked where there is no ensemble; either way it knows the engine under its name."""
    found = shown(tmp_path, STOCK, "tensorrtllm")
    assert found.code == 0, found.text
    assert called(found) == {"tensorrt_llm_model_name": "m~inner~tensorrt_llm"}
    (tmp_path / "both").mkdir()
    found = shown(tmp_path / "both", STOCK | STOCK_ENSEMBLE, "tensorrtllm")
    assert named_steps(found) == ["m~inner~preprocessing", "m~inner~tensorrt_llm", "m~inner~postprocessing"]
    assert called(found, "m~inner~tensorrt_llm_bls") == {"tensorrt_llm_model_name": "m~inner~tensorrt_llm"}


def test_an_ensemble_may_be_a_step(tmp_path: Path) -> None:
    files = {"top/config.pbtxt": steps("sub", "a"), "sub/config.pbtxt": steps("b"), **OTHERS, "d/1/model.onnx": "x"}
    found = shown(tmp_path, {**files, "d/config.pbtxt": ""})
    assert named_steps(found) == ["m~inner~sub", "m~inner~a"]
    assert named_steps(found, "m~inner~sub") == ["m~inner~b"]
    assert found.placed["m~inner~d"] == {"1/model.onnx": "d/1/model.onnx"}


def test_references_are_replaced_and_the_rest_of_a_config_survives(tmp_path: Path) -> None:
    """However their strings are written: comments, order and fields of the future stay."""
    top = """# steps
platform: "ensemble"
name: "top"
ensemble_scheduling {
  step [ { model_name: "a" model_version: -1 a_field_of_the_future: 7 }, { model_name: 'b' } ] # two
  step { model_name: "a" "" }
}
"""
    written = top.replace('name: "top"', "").replace('"a" ""', '"a"').replace('"a"', '"m~inner~a"').replace("'b'", '"m~inner~b"')
    assert shown(tmp_path, {"top/config.pbtxt": top, **OTHERS}).configs["m"] == written


def test_a_schema_is_the_top_models(tmp_path: Path) -> None:
    """The inner ones keep their tensors."""
    schema = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [-1]}]}
    found = shown(tmp_path, {"top/config.pbtxt": steps("a", "b"), **OTHERS}, schema=schema)
    names = {name: [tensor.name for tensor in config_of(config).input] for name, config in found.configs.items()}
    assert names == {"m": ["x"], "m~inner~a": [], "m~inner~b": []}


TOP_A = {"top/config.pbtxt": steps("a")}


@pytest.mark.parametrize(
    ("files", "top", "words"),
    [
        (OTHERS, None, "this directory holds 2 models, and any of a, b could be the one that is asked for inference; name that one in"),
        (OTHERS, None, "; Triton expects one directory with config.pbtxt and 1/ for each model, and one model that names"),
        (OTHERS, "c", "adapter.topModel names c, and the models here are a, b"),
        ({"x/config.pbtxt": steps("a"), "y/config.pbtxt": steps("b"), **OTHERS}, None, "holds 4 models, and any of x, y could be the one"),
        ({"x/config.pbtxt": steps("y"), "y/config.pbtxt": steps("x"), **OTHERS}, None, "and any of a, b, x, y could be the one"),
        ({"top/config.pbtxt": steps("a", "c"), **OTHERS}, None, "an ensemble step in top/config.pbtxt names c, and the models here are"),
        ({"config.pbtxt": steps("a", "c"), **OTHERS}, None, "an ensemble step in config.pbtxt names c, and the models here are a, b"),
        ({"config.pbtxt": steps("a", ""), **OTHERS}, None, "names ''"),
        ({"top/config.pbtxt": bls("c"), "top/1/model.py": "x", **OTHERS}, None, "the parameter bls_model.c in top/config.pbtxt names c"),
        ({**OTHERS, **TOP_A, "a/config.pbtxt": bls("b"), "b/config.pbtxt": bls("a")}, None, "these models call each other: a, b"),
        ({"top/config.pbtxt": steps("a", "b"), **OTHERS, "a/config.pbtxt": bls("top")}, "top", "names top, which is the top model"),
        ({**TOP_A, "a/config.pbtxt": PYTHON, "a/1/x": "x"}, None, "a: 1/model.py is missing"),
        ({**TOP_A, "a/config.pbtxt": PYTHON, "a/01/model.py": "x"}, None, "a: Triton would misread directory 01"),
        ({**TOP_A, "a/config.pbtxt": "backend: 7"}, None, "a/config.pbtxt cannot be used: line 1, column 1"),
        ({**TOP_A, "a/config.pbtxt": "{"}, None, "a/config.pbtxt cannot be parsed: line 1, column 1"),
        ({"config.pbtxt": PYTHON, "1/main.py": "x", "t/config.pbtxt": ""}, None, "; Triton expects config.pbtxt and 1/model.py"),
    ],
)
def test_what_cannot_be_a_bundle_is_refused_in_words(files: dict[str, str], top: str | None, words: str, tmp_path: Path) -> None:
    """Which model, and what is there instead."""
    found = shown(tmp_path, files, "python", top=top)
    assert found.code == 1
    assert words in found.refusal


@pytest.mark.parametrize(
    "files",
    [
        ["a/config.pbtxt", "a/1/model.py"],
        ["a/1/model.py", "b/1/model.py"],
        ["model.py", "a/config.pbtxt", "b/config.pbtxt"],
        ["1/config.pbtxt", "2/config.pbtxt"],
        [".cache/config.pbtxt", "a/config.pbtxt"],
        ["a/b/config.pbtxt", "a/c/config.pbtxt"],
        [f"d{number}/config.pbtxt" for number in range(MOST_MODELS + 1)],
    ],
    ids=lambda files: files[0],
)
def test_what_does_not_look_like_a_bundle_is_none(files: list[str], tmp_path: Path) -> None:
    """No config is read for it, and it is laid out as one model."""
    found = shown(tmp_path, dict.fromkeys(files, "not { a config"))
    assert set(found.placed) <= {"m"}
    assert "config.pbtxt cannot" not in found.refusal


def test_names_that_are_too_long_together_are_refused(tmp_path: Path) -> None:
    """Triton fails beyond 255 bytes."""
    files = {"top/config.pbtxt": steps("a", "b"), **OTHERS}
    for folder, length, code in (("fits", 255 - len("~inner~a"), 0), ("does-not", 256 - len("~inner~a"), 1)):
        (tmp_path / folder).mkdir()
        found = shown(tmp_path / folder, files, model_id="m" * length)
        assert (found.code, "too long together for a name of 255 bytes" in found.refusal) == (code, code == 1)


@pytest.mark.parametrize(
    ("model_id", "how"), [("a~inner~b", "contains '~inner~'"), ("x~inner", "ends in '~inner'"), ("_adapter", "is reserved")]
)
def test_an_id_that_could_name_something_of_ours_is_refused(model_id: str, how: str, tmp_path: Path) -> None:
    found = shown(tmp_path, {"model.onnx": "x"}, model_id=model_id)
    assert found.code == 2
    assert f"the model id '{model_id}' {how}" in found.errors
