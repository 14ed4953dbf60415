"""Only the files that will be served are pulled."""

from __future__ import annotations

import re

import pytest

from adapter.errors import InvalidModel
from adapter.layout import rules
from adapter.model import Listing, SourceFile
from tests.builders import a_file, a_listing, a_spec
from tests.unit.layout.cases.builders import SCHEMA, placed, planned

NATIVE = ("config.pbtxt", "labels.txt", "1/m", "2/m", "10/m", "extra/x", ".cache/y")


def pulled(paths, config=None, model_type="onnx"):
    return {file.path for file in planned(model_type, paths, config=config).files}


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
    assert pulled(NATIVE, f"backend: 'onnxruntime' {policy}") == {
        "labels.txt",
        "extra/x",
        ".cache/y",
        *(f"{version}/m" for version in versions),
    }


def test_a_version_tree_keeps_its_newest_version():
    """And what its author put beside the versions, but nothing that tools left there, nor the schema."""
    paths = ["9/model.pt", "10/model.pt", "10/cat.txt", "_schema.json", "labels.txt", "env.tar.gz", ".cache/x", ".gitattributes"]
    found = planned("pytorch", paths)

    assert placed(found) == {path: path for path in ("labels.txt", "env.tar.gz", "10/model.pt", "10/cat.txt")}


def test_a_file_named_like_the_directory_of_a_version_is_left_out():
    """An object store may have both; a directory has room for one."""
    assert placed(planned("onnx", ["3", "3/model.onnx"])) == {"3/model.onnx": "3/model.onnx"}


@pytest.mark.parametrize(
    ("other", "is_same"),
    [
        ({"a": "x", "b": "y"}, True),
        ({"a": "x"}, False),
        ({"a": "x", "b": "z"}, False),
        ({"a": "x", "b": "y", "c": "x"}, False),
        ({"a": "x", "c": "y"}, False),
    ],
)
@pytest.mark.parametrize("name", ["v3", "latest", "03"])
def test_a_directory_that_is_another_name_of_a_version_does_not_hide_the_versions(name, other, is_same):
    """A store lists what a link leads to under both names, with the same etags; what differs in anything is the model's own."""
    files = {"2/a": "o", "3/a": "x", "3/b": "y"} | {f"{name}/{path}": etag for path, etag in other.items()}
    listing = listing_of(files)
    if is_same:
        assert placed(rules.plan(a_spec(), listing, {})) == {"3/a": "3/a", "3/b": "3/b"}
    elif name == "03":
        with pytest.raises(InvalidModel, match=r"^03 cannot be a version directory"):
            rules.plan(a_spec(), listing, {})
    else:
        assert f"1/{name}/a" in placed(rules.plan(a_spec(), listing, {}))


@pytest.mark.parametrize(("etag", "size_bytes"), [("", 1), ("of-nothing", 0)])
def test_files_without_etags_or_bytes_prove_nothing(etag, size_bytes):
    """A store without etags, and two empty `__init__.py`, are no links."""
    listing = listing_of({"3/__init__.py": etag, "v3/__init__.py": etag}, size_bytes)

    assert set(placed(rules.plan(a_spec(), listing, {}))) == {"1/3/__init__.py", "1/v3/__init__.py"}


def listing_of(etags, size_bytes=1):
    return a_listing(a_file(path, size_bytes, etag) for path, etag in etags.items())


def test_model_data_is_kept_whole_but_for_the_schema():
    """`_schema.json` in the model's directory is ModelMesh's, not the model's."""
    assert pulled(["1/a", "b/_schema.json", "c", "_schema.json"], model_type="") == {"1/a", "b/_schema.json", "c"}


def test_a_model_of_one_file_is_kept():
    """Whatever its name."""
    assert placed(planned("onnx", ["_schema.json"], single_file=True)) == {"1/model.onnx": "_schema.json"}


def test_the_small_files_are_asked_for_first():
    """A directory's config.pbtxt and the schema, nothing else."""
    assert rules.wanted(a_listing(NATIVE, schema=SCHEMA)) == (a_file("config.pbtxt"), SCHEMA)
    assert rules.wanted(a_listing(["a/config.pbtxt", "_schema.json"])) == ()


def test_a_config_alone_is_no_model():
    """A model path that ends in config.pbtxt leaves the model's files behind."""
    assert rules.wanted(a_listing(["config.pbtxt"], is_single_file=True)) == ()
    for model_type in ("", "onnx", "ensemble"):
        with pytest.raises(InvalidModel) as refused:
            planned(model_type, ["config.pbtxt"], single_file=True)
        assert refused.value.text.startswith(
            "config.pbtxt describes a model, but there is no model file beside it; the model path must be the directory of both; found"
        )


def test_a_schema_that_was_not_found_is_named():
    """The load fails before anything is pulled."""
    with pytest.raises(InvalidModel, match=r"the schema absent\.json was not found"):
        rules.plan(a_spec(model_type="onnx", schema_path="absent.json"), a_listing(["model.onnx"]), {})


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
                rules.plan(a_spec(model_type=model_type), listing, {})


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
