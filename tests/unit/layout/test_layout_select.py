"""Only the files that will be served are pulled."""

from __future__ import annotations

import re

import pytest

from adapter.errors import InvalidModel
from adapter.layout import rules
from adapter.model import Listing, SourceFile
from tests.unit.layout.cases.builders import SCHEMA, a_file, a_listing, a_spec, placed, planned

NATIVE = ("config.pbtxt", "labels.txt", "1/m", "2/m", "10/m", "extra/x", ".cache/y")


def selected(paths, config=None, model_type="onnx"):
    listing = rules.select(a_spec(model_type), a_listing(paths), None if config is None else config.encode())
    return {file.path for file in listing.files}


@pytest.mark.parametrize(
    ("policy", "versions"),
    [
        ("", {"10"}),
        ("version_policy { latest { num_versions: 1 } }", {"10"}),
        ("version_policy: { latest: { num_versions: 2 } }", {"10", "2"}),
        ("version_policy { latest { num_versions: 9 } }", {"10", "2", "1"}),
        ("version_policy { all {} }", {"10", "2", "1"}),
        ("version_policy { }", {"10", "2", "1"}),
        ("version_policy { specific { versions: [ 1 , 2 ] } }", {"2", "1"}),
        ("version_policy < specific < versions: 2 versions: 7 > >", {"2"}),
    ],
)
def test_a_native_repository_keeps_the_versions_that_its_policy_serves(policy, versions):
    """Triton's own rule, an empty policy included; what is no version stays."""
    assert selected(NATIVE, f"backend: 'onnxruntime' {policy}") == {
        "config.pbtxt",
        "labels.txt",
        "extra/x",
        ".cache/y",
        *(f"{version}/m" for version in versions),
    }


def test_the_plan_of_a_native_repository_leaves_the_other_versions_out():
    """They are neither placed nor fetched."""
    found = planned("onnx", NATIVE, config="name: 'x' backend: 'onnxruntime'")

    assert set(placed(found)) == {"labels.txt", "10/m", "extra/x", ".cache/y"}


def test_a_version_tree_keeps_its_newest_version():
    """Without what lies beside it."""
    assert selected(["1/a", "3/a", "3/b/c", "_schema.json", "README", ".cache/x"]) == {"3/a", "3/b/c"}


def test_model_data_is_kept_whole_but_for_the_schema():
    """`_schema.json` in the model's directory is ModelMesh's, not the model's."""
    assert selected(["1/a", "b/_schema.json", "c", "_schema.json"]) == {"1/a", "b/_schema.json", "c"}


def test_a_model_of_one_file_is_kept():
    """Whatever its name."""
    listing = a_listing(["_schema.json"], single_file=True)

    assert rules.select(a_spec("onnx"), listing, None) == listing


def test_what_select_returns_is_still_the_same_listing():
    """Origin, name and schema stay; the order of files too."""
    listing = a_listing(["1/a", "2/b", "2/a"], has_schema=True)

    found = rules.select(a_spec(), listing, None)

    assert (found.origin, found.name, found.schema) == (listing.origin, listing.name, SCHEMA)
    assert [file.path for file in found.files] == ["2/a", "2/b"]


def test_the_small_files_are_asked_for_first():
    """A directory's config.pbtxt and the schema, nothing else."""
    assert rules.wanted(a_listing(NATIVE, has_schema=True)) == (a_file("config.pbtxt"), SCHEMA)
    assert rules.wanted(a_listing(["a/config.pbtxt", "_schema.json"])) == ()


def test_a_single_file_has_no_config():
    """A model path that ends in config.pbtxt names the model itself."""
    listing = a_listing(["config.pbtxt"], single_file=True)

    assert rules.wanted(listing) == ()
    assert placed(rules.plan(a_spec(), listing, {})) == {"1/config.pbtxt": "config.pbtxt"}


def test_a_schema_that_was_not_found_is_named():
    """The load fails before anything is pulled."""
    with pytest.raises(InvalidModel, match=r"the schema absent\.json was not found"):
        rules.plan(a_spec("onnx", schema_path="absent.json"), a_listing(["model.onnx"]), {})


def test_the_whole_tree_is_shown_when_the_chosen_version_does_not_fit():
    """Also the versions that were left out."""
    with pytest.raises(InvalidModel, match=r"found 1/model\.onnx, 2/a, 2/b; Triton expects"):
        planned("onnx", ["1/model.onnx", "2/a", "2/b"])


def test_a_long_tree_is_shown_in_part():
    """Twelve paths and a count; ModelMesh keeps 4 KB of an error."""
    with pytest.raises(InvalidModel) as caught:
        planned("onnx", [f"{'x' * 200}{number:04}" for number in range(3000)])

    assert "and 2988 more" in caught.value.text
    assert len(caught.value.text) < 2000


@pytest.mark.parametrize(("count", "ending"), [(12, "12.txt; Triton"), (13, "12.txt and 1 more; Triton")])
def test_a_tree_of_twelve_is_shown_whole(count, ending):
    """And a count of what does not fit."""
    with pytest.raises(InvalidModel, match=re.escape(ending)):
        planned("onnx", [f"{number:02}.txt" for number in range(1, count + 1)])


def test_paths_that_would_garble_an_error_text_are_quoted():
    """One line, and its separators stay readable."""
    with pytest.raises(InvalidModel) as caught:
        planned("onnx", ["a\nb", "c; d", "e"])

    assert "found a?b, 'c; d', e; Triton expects" in caught.value.text


def test_a_path_out_of_the_model_is_refused():
    """Storage refuses such keys; if one came through, it would not be placed."""
    for path in ("../model.onnx", "/etc/model.onnx", "a//model.onnx", "./model.onnx", "a/\0/model.onnx", "../../model.onnx"):
        listing = Listing("s3://b/m", "m", False, (SourceFile(path, 1, ""),))
        for model_type in ("", "onnx"):
            with pytest.raises(InvalidModel):
                rules.plan(a_spec(model_type), listing, {})


def test_a_model_id_that_names_a_backend_does_not_wedge_triton():
    """Triton takes a backend from the id's ending when nothing else names one; python then waits for its file."""
    with pytest.raises(InvalidModel, match=r"1/model\.python is missing"):
        planned("", ["weights.bin"], model_id="a.python")

    assert placed(planned("", ["model.python"], model_id="a.python")) == {"1/model.python": "model.python"}
    assert placed(planned("", ["weights.bin"], model_id="x.y.python")) == {"1/weights.bin": "weights.bin"}


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
def test_other_backends_need_no_model_py(config, files):
    """Triton looks for other backends' files first, and only into the directory whose name sorts first."""
    found = planned("", ["config.pbtxt", *files], config=f"{config} version_policy {{ all {{}} }}")

    assert set(placed(found)) == set(files)
