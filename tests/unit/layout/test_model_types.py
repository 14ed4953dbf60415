"""The table of model types says the same as the rules that use it."""

from __future__ import annotations

import pytest

from adapter.layout.model_types import TYPES, UNKNOWN, model_type
from tests.builders import a_forest
from tests.unit.layout.cases.builders import config_of, finished, placed, planned


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("onnx", "onnx"),
        (" ONNX:1.12", "onnx"),
        ("mt:pytorch:1|x", "pytorch"),
        ("tensorrt-llm", "tensorrtllm"),
        ("TRTLLM", "tensorrtllm"),
        ("mt:tensorrt_llm", "tensorrtllm"),
    ],
)
def test_a_type_is_read_as_anyone_may_write_it(text, name):
    """Capitals, ModelMesh's prefix, a version and the three spellings of TensorRT-LLM."""
    assert model_type(text) is TYPES[name]


@pytest.mark.parametrize("text", ["", "mt:", "pmml", "onnx2"])
def test_other_types_are_unknown(text):
    """Their files keep their names."""
    assert model_type(text) is UNKNOWN


@pytest.mark.parametrize("name", sorted(set(TYPES) - {"keras", "ensemble", "tensorrtllm", "openvino"}))
def test_a_file_of_the_expected_name_keeps_it(name):
    """Every name that the table gives is one that the type's own rule recognises, beside other files too."""
    kind = TYPES[name]
    for file_name in kind.file_names:
        assert (
            placed(planned(name, [file_name, "beside.md"], allow_decoupled=True))[
                f"1/{file_name}" if name != "onnx" else "1/model.onnx/model.onnx"
            ]
            == file_name
        )


@pytest.mark.parametrize("name", sorted(set(TYPES) - {"ensemble", "tensorrtllm"}))
def test_a_schema_without_config_names_the_backend(name):
    """Of every type that can be laid out without a config."""
    kind = TYPES[name]
    files = {"keras": ["saved_model.pb"], "openvino": ["model.xml", "model.bin"]}.get(name, [*kind.file_names[:1]])

    found = planned(name, files, schema={}, allow_decoupled=True)
    if kind.backend == "fil":
        found = finished(found, a_forest({"lightgbm": "text", "sklearn": "checkpoint"}.get(name, "json")))
    assert config_of(found.written["config.pbtxt"]).backend == kind.backend
