"""`layout`: what would be placed, or what is wrong with the tree, without any server."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from adapter import cli
from tests.builders import a_forest
from tests.verbs.layouts import Files, looked, write


@pytest.fixture
def folder(tmp_path: Path) -> Callable[[Files], Path]:
    """A folder `net` with these files."""
    return partial(write, tmp_path / "net")


def test_what_fits_is_shown_below_what_was_found(folder):
    """The renamed file with where it comes from, the version that is served, and what is left out."""
    found = looked(folder({"7/resnet.onnx": "", "1/old.onnx": "", "README.md": ""}))

    assert found.code == cli.OK
    assert found.text.split("\n", 1)[1] == (
        "\n"
        "found:\n"
        "  1/\n"
        "    old.onnx\n"
        "  7/\n"
        "    resnet.onnx\n"
        "  README.md\n"
        "placed:\n"
        "  net/\n"
        "    7/\n"
        "      model.onnx  <- 7/resnet.onnx\n"
        "    README.md\n"
        "\n"
        "net/config.pbtxt: none; Triton tells the backend from the files' names\n"
        "\n"
        "not placed: 1/old.onnx\n"
    )


def test_the_config_is_shown_as_it_would_be_written(folder, tmp_path):
    """Its name removed, the schema's tensors in it."""
    schema = tmp_path / "schema.json"
    schema.write_text('{"inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}]}')
    found = looked(folder({"config.pbtxt": 'name: "other"\nbackend: "onnxruntime"\n', "1/model.onnx": ""}), model_id="m-1", schema=schema)

    assert found.code == cli.OK
    assert "    config.pbtxt  (written)\n" in found.text
    assert found.text.endswith(
        'm-1/config.pbtxt:\n\n  backend: "onnxruntime"\n  input {\n    name: "x"\n    data_type: TYPE_FP32\n    dims: [ -1, 4 ]\n  }\n'
    )


def test_a_refusal_shows_the_tree_and_what_triton_expects(folder):
    """Reason first, then the tree, and what would have worked."""
    found = looked(folder({"net.xml": "", "weights/net.bin": ""}), "openvino")

    assert found.code == cli.FAILED
    assert found.text.split("\n", 1)[1] == (
        "\n"
        "the model cannot be loaded: the weights net.bin of net.xml are not there\n"
        "\n"
        "found:\n"
        "  weights/\n"
        "    net.bin\n"
        "  net.xml\n"
        "\n"
        "Triton expects for type openvino 1/model.xml and 1/model.bin\n"
    )


def test_what_a_config_says_counts_more_than_the_type(folder):
    """What its backend wants is expected."""
    found = looked(folder({"config.pbtxt": 'backend: "tensorrt"', "labels.txt": ""}), "onnx")

    assert "Triton expects config.pbtxt and 1/model.plan\n" in found.text


def test_a_forests_config_says_what_its_file_says(folder):
    """As a load would, after the pull: the format by its content, the numbers from the file."""
    top = folder({"README.md": ""})
    (top / "churn.model").write_bytes(a_forest("ubj", 4, 3))
    for path in (top, top / "churn.model"):
        found = looked(path, "xgboost", model_id="m")

        assert found.code == cli.OK
        assert "xgboost.ubj   <- churn.model" in found.text.replace("xgboost.ubj  <-", "xgboost.ubj   <-")
        assert "dims: [ 4 ]" in found.text and "dims: [ 3 ]" in found.text and 'string_value: "xgboost_ubj"' in found.text


def test_a_forest_that_does_not_say_its_numbers_is_refused_before_uploading(folder):
    """With the advice, and without trees that are not the reason."""
    found = looked(folder({"churn.json": "{}"}), "xgboost")

    assert found.code == cli.FAILED
    assert (
        "churn.json: what the FIL backend must be told of this forest cannot be taken from the file: it has no learner_model_param"
        in found.text
    )


def test_an_unknown_type_is_noted(folder):
    """It may be a misspelt one."""
    found = looked(folder({"x": ""}), "onx")

    assert found.code == cli.OK
    assert "note: onx is not one of the types dali, ensemble, fil," in found.text


def test_links_that_lead_out_are_refused(folder, tmp_path):
    """They would not survive an upload, nor be followed on a claim."""
    top = folder({"1/model.onnx": ""})
    (top / "1" / "data").symlink_to("/etc")

    assert "leads out of" in looked(top).text
    assert looked(top).code == cli.FAILED


def test_versions_may_be_links_to_directories_of_other_names(folder):
    """On a volume: the newest version is served, whatever its directory is called."""
    top = folder({"v2/net.onnx": "old", "v3/net.onnx": "new", "labels.txt": "cat"})
    for version in ("2", "3"):
        (top / version).symlink_to(f"v{version}")
    found = looked(top)

    assert found.code == cli.OK
    assert "model.onnx  <- 3/net.onnx\n" in found.text
    assert "not placed: 2/net.onnx, v2/net.onnx, v3/net.onnx\n" in found.text


def test_long_directories_are_shown_in_part(folder):
    """Twenty entries and a count, in every directory; what is not printable is a question mark."""
    found = looked(folder({"a\nb": "", **{f"d/{number:03}": "" for number in range(25)}}), "").text

    assert "  d/\n    000\n" in found
    assert "    019\n    … and 5 more\n  a?b\n" in found


def test_what_is_not_there_cannot_be_looked_at(folder, tmp_path):
    """Neither model nor schema, and an id that could never be loaded."""
    (tmp_path / "empty").mkdir()
    top = folder({"model.onnx": ""})
    for path, options, words in (
        (tmp_path / "absent", {}, "does not exist"),
        (tmp_path / "empty", {}, "holds no files"),
        (top, {"model_id": "a/b"}, "contains '/'"),
        (top, {"schema": tmp_path / "absent.json"}, "absent.json cannot be read"),
        (top, {"top": "x/y"}, "adapter.topModel must be the name of a directory"),
    ):
        found = looked(path, **options)
        assert words in found.errors and (found.code, found.text) == (2, "")


def test_what_a_load_would_not_read_is_refused_here_too(folder, tmp_path):
    """A schema of more than 4 MiB, or such a config: before it is read."""
    schema = tmp_path / "schema.json"
    for path, files, options in (
        (schema, {"model.onnx": ""}, {"schema": schema}),
        (tmp_path / "net/config.pbtxt", {"1/model.onnx": ""}, {}),
    ):
        top = folder(files)
        path.touch()
        os.truncate(path, 2**40)
        found = looked(top, **options)
        assert found.code == cli.FAILED
        assert f"{path.name}" in found.text and "bytes" in found.text
