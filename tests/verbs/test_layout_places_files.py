"""`layout`: where each file of a model goes, for each type and shape of tree, and which config is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.builders import a_forest
from tests.unit.layout.cases.builders import config_from, config_of
from tests.verbs.layouts import CASES, Shown, rows, shown


def of_row(folder: Path, row: dict[str, Any]) -> Shown:
    content = a_forest(*row["forest"]) if "forest" in row else b"x"
    files = dict.fromkeys(row["files"], content) | ({"config.pbtxt": row["config"].encode()} if "config" in row else {})
    options = {name: row[name] for name in ("schema", "allow_decoupled") if name in row}
    return shown(folder, files, row["type"], is_single_file=row.get("single_file"), **options)


@pytest.mark.parametrize("row", rows("go_adapter") + rows("layouts"))
def test_files_are_placed_where_triton_looks_for_them_or_refused_in_words(row: dict[str, Any], tmp_path: Path) -> None:
    """Exactly these files at these paths, no directory without need, and a config with exactly these fields, or none."""
    found = of_row(tmp_path, row)
    if "refused" in row:
        assert found.code == 1
        assert row["refused"] in found.refusal
        return
    assert found.code == 0, found.text
    assert found.placed["m"] == row["placed"]
    assert found.directories.get("m", []) == row.get("directories", [])
    if row.get("config_is") is None and row.get("config") is None:
        assert found.configs == {}
    else:
        assert config_of(found.configs["m"]) == config_from(row.get("config_is") or {})


def test_the_deliberate_differences_from_the_go_adapter_are_these() -> None:
    """A new difference must be written down here, and in the README."""
    table = json.loads((CASES / "go_adapter.json").read_text())
    assert [row["name"] for row in table if "differs" in row] == ["tensorflowGraphDefForFile", "tensorflowFilesWithConfig"]


def test_a_directory_without_files_is_none_at_all(tmp_path: Path) -> None:
    found = shown(tmp_path, {}, "tensorflow")
    assert (found.code, "holds no files" in found.errors) == (2, True)


@pytest.mark.parametrize("files", [{"config.pbtxt": "", "1/model.py": "x"}, {"1/model.onnx": "x"}, {"model.onnx": "x"}], ids=list)
def test_options_of_a_language_model_come_with_it(files: dict[str, str], tmp_path: Path) -> None:
    plain = shown(tmp_path, files).placed["m"]
    (tmp_path / "with").mkdir()
    found = shown(tmp_path / "with", {**files, "serving.properties": "x"}).placed["m"]
    assert found["serving.properties"] == "serving.properties"
    assert {path: source for path, source in found.items() if source != "serving.properties"} == plain


@pytest.mark.parametrize(
    ("model_id", "files", "code"),
    [("a.python", {"weights.bin": "x"}, 1), ("a.python", {"model.python": "x"}, 0), ("x.y.python", {"w": "x"}, 0)],
)
def test_a_model_id_that_names_a_backend_does_not_wedge_triton(model_id: str, files: dict[str, str], code: int, tmp_path: Path) -> None:
    """Triton takes a backend from the id's ending when nothing else names one; python then waits for its file."""
    found = shown(tmp_path, files, model_id=model_id)
    assert (found.code, "1/model.python is missing" in found.refusal) == (code, code == 1)


@pytest.mark.parametrize(
    ("config", "files"),
    [
        ("platform: 'onnxruntime_onnx'", ["1/model.py", "2/x"]),
        ("backend: 'onnxruntime'", ["1/model.py", "2/x"]),
        ("backend: 'onnxruntime' default_model_filename: 'model.py'", ["1/x", "2/x"]),
        ("platform: 'tensorrt_plan' default_model_filename: 'model.py'", ["1/x", "2/x"]),
        ("default_model_filename: 'net.x'", ["1/model.py", "2/x"]),
        ("", ["1/model.py", "1/model.onnx", "2/model.onnx"]),
        ("", ["1/model.py", "1/model.savedmodel/saved_model.pb", "2/x"]),
        ("", ["-extra/x", "1/model.py", "2/x"]),
        ("platform: 'ensemble'", ["1/model.py", "2/x"]),
        ("ensemble_scheduling { }", ["1/model.py", "2/x"]),
    ],
)
def test_other_backends_need_no_model_py(config: str, files: list[str], tmp_path: Path) -> None:
    """Triton looks for other backends' files first, and only into the directory whose name sorts first."""
    found = shown(tmp_path, {"config.pbtxt": f"{config} version_policy {{ all {{}} }}", **dict.fromkeys(files, "x")})
    assert set(found.placed["m"]) == set(files)


@pytest.mark.parametrize("type_name", ["", "onnx", "ensemble"])
def test_a_config_alone_is_no_model(type_name: str, tmp_path: Path) -> None:
    """A model path that ends in config.pbtxt leaves the model's files behind."""
    found = shown(tmp_path, {"config.pbtxt": ""}, type_name, is_single_file=True)
    assert found.code == 1
    assert (
        "config.pbtxt describes a model, but there is no model file beside it; the model path must be the directory of both" in found.text
    )


def test_an_ensemble_is_its_config(tmp_path: Path) -> None:
    """It has no other files, so a model path that ends in config.pbtxt leaves nothing behind."""
    found = shown(tmp_path, {"config.pbtxt": "platform: 'ensemble'"}, "ensemble", is_single_file=True)
    assert (found.code, found.directories["m"]) == (0, ["1"])


def test_a_version_tree_keeps_its_newest_version(tmp_path: Path) -> None:
    """And what its author put beside the versions, but nothing that tools left there, nor the schema."""
    paths = ["9/model.pt", "10/model.pt", "10/cat.txt", "_schema.json", "labels.txt", "env.tar.gz", ".cache/x", ".gitattributes"]
    found = shown(tmp_path, dict.fromkeys(paths, "x"), "pytorch")
    assert found.placed["m"] == {path: path for path in ("labels.txt", "env.tar.gz", "10/model.pt", "10/cat.txt")}


def test_model_data_is_kept_whole_but_for_the_schema(tmp_path: Path) -> None:
    """`_schema.json` in the model's directory is ModelMesh's, not the model's; a model of one file may have any name."""
    found = shown(tmp_path, dict.fromkeys(["1/a", "b/_schema.json", "c", "_schema.json"], "x"))
    assert set(found.placed["m"].values()) == {"1/a", "b/_schema.json", "c"}
    (tmp_path / "one").mkdir()
    assert shown(tmp_path / "one", {"_schema.json": "x"}, "onnx", is_single_file=True).placed["m"] == {"1/model.onnx": "_schema.json"}
