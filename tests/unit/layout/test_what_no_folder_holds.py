"""Only the files that will be served are pulled."""

from __future__ import annotations

import re
import time

import pytest

from adapter.errors import InvalidModel
from adapter.layout import rules
from adapter.model import Listing, SourceFile
from tests.builders import a_file, a_listing, a_spec
from tests.unit.layout.cases.builders import SCHEMA, placed, planned

NATIVE = ("config.pbtxt", "labels.txt", "1/m", "2/m", "10/m", "extra/x", ".cache/y")


def test_a_file_named_like_the_directory_of_a_version_is_left_out():
    """An object store may have both; a directory can hold only one."""
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


def test_the_small_files_are_asked_for_first():
    """A directory's config.pbtxt and the schema, nothing else."""
    assert rules.wanted(a_listing(NATIVE, schema=SCHEMA)) == (a_file("config.pbtxt"), SCHEMA)
    assert rules.wanted(a_listing(["a/config.pbtxt", "_schema.json"])) == ()


def test_a_schema_that_was_not_found_is_named():
    """The load fails before anything is pulled."""
    with pytest.raises(InvalidModel, match=r"the schema absent\.json was not found"):
        rules.plan(a_spec(model_type="onnx", schema_path="absent.json"), a_listing(["model.onnx"]), {})


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
    for path in ("../model.onnx", "/etc/model.onnx", "a//model.onnx", "./model.onnx", "a/\0/model.onnx", "../config.pbtxt"):
        listing = Listing("s3://b/m", "m", False, (SourceFile(path, 1, ""),))
        for model_type in ("", "onnx"):
            with pytest.raises(InvalidModel):
                rules.plan(a_spec(model_type=model_type), listing, {})


@pytest.mark.parametrize(
    ("model_type", "files", "words"),
    [
        ("onnx", ["n" * 256], "more than 255 bytes"),
        ("", ["n" * 256], "more than 255 bytes"),
        ("", ["a", "a/b"], "1/a would be a file and a directory at once"),
    ],
)
def test_names_that_no_file_system_holds_are_refused(model_type, files, words):
    """Also where the file would be renamed."""
    with pytest.raises(InvalidModel, match=words):
        planned(model_type, files)


def test_the_layouts_files_are_what_is_fetched():
    """Neither config nor schema nor an older version is in the pull or in the size."""
    found = planned("onnx", ["1/model.onnx", "2/model.onnx", "_schema.json", "labels.txt"], schema={})

    assert [file.path for file in found.files] == ["labels.txt", "2/model.onnx"]
    assert found.size_bytes == 2


MANY = 30_000
VERSIONS = [f"{number}/model.onnx" for number in range(MANY)]
NAMED = "version_policy { specific { versions: [ " + ", ".join(map(str, range(1, 2 * MANY, 2))) + " ] } }"


@pytest.mark.parametrize(
    ("files", "config"),
    [
        (VERSIONS, f"backend: 'onnxruntime' {NAMED}"),
        (["labels.txt"], f"platform: 'ensemble' {NAMED}"),
        ([*VERSIONS, *(f"label{number}" for number in range(MANY))], None),
    ],
    ids=["named by the policy", "named by the policy alone", "beside files"],
)
def test_many_versions_take_little_time(files, config):
    """A config of 1 MiB and a listing of 100,000 files would hold a thread for minutes if each version were sought in a list."""
    listing = a_listing(files if config is None else [*files, "config.pbtxt"])
    contents = {file: str(config).encode() for file in rules.wanted(listing)}
    started = time.process_time()

    assert rules.plan(a_spec(), listing, contents).links
    assert time.process_time() - started < 4


def test_a_policy_of_many_versions_is_told_in_part():
    """A text does not grow with the config."""
    listing = a_listing(["config.pbtxt", "0/model.onnx"])
    with pytest.raises(InvalidModel, match=r"specific versions 1, 3, .* and 29990 more, and there is only directory 0;"):
        rules.plan(a_spec(), listing, {listing.find("config.pbtxt"): NAMED.encode()})
