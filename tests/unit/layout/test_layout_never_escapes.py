"""Whatever a store lists, a layout stays inside its model directory and can be built on disk."""

from __future__ import annotations

import re
from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from adapter.errors import InvalidModel
from adapter.layout import rules
from tests.builders import a_file, a_forest, a_listing, a_spec
from tests.unit.layout.cases.builders import SCHEMA, config_of, finished

VERSION = re.compile(r"0|[1-9][0-9]{0,17}|[1-8][0-9]{18}|9000000000000000000")
TYPES = [
    "",
    "onnx",
    "tensorrt",
    "pytorch",
    "tensorflow",
    "keras",
    "python",
    "ensemble",
    "fil",
    "xgboost",
    "sklearn",
    "openvino",
    "dali",
    "vllm",
    "tensorrtllm",
    "custom",
]
CONFIGS = [
    b"",
    b"name: 'x' backend: 'python'",
    b"platform: 'ensemble'",
    b"version_policy { all {} }",
    b"version_policy { specific { versions: [3, 1] } }",
    b"version_policy { latest { num_versions: 2 } } backend: 'onnxruntime'",
    b"backend: 'fil' output { name: 'output__0' data_type: TYPE_FP32 dims: 1 } version_policy { all {} }",
]
USUAL = [
    "1", "2", "3", "10", "0", "a", "b", ".cache", "__pycache__", "model.onnx", "net.onnx", "model.plan", "model.pt", "model.py",
    "model.graphdef", "model.savedmodel", "saved_model.pb", "m.h5", "config.pbtxt", "_schema.json", "variables", "warmup",
    "xgboost.json", "xgboost.model", "x.tl", "net.xml", "net.bin", "model.pt2", "model.dali",
    "model.json",
]  # fmt: skip
OTHER_BACKENDS = ["model.onnx", "model.plan", "model.pt", "model.graphdef", "model.savedmodel"]
OTHER_CONFIGS = [config for config in CONFIGS if any(word in config for word in (b"ensemble", b"onnxruntime", b"fil"))]
ODD = [
    "01", "-1", "+1", " 1", "1abc", "²", "٣", "9" * 18, "9" * 19, "9000000000000000000", "..", ".", "", "x" * 256, "a\nb", "\ud800",
]  # fmt: skip

usual = st.sampled_from(USUAL)
names = st.one_of(usual, usual, usual, usual, st.sampled_from(ODD), st.text(min_size=1, max_size=4))
paths = st.lists(names, min_size=1, max_size=4).map("/".join)
versioned = st.builds("{}/{}".format, st.sampled_from(["1", "2", "3", "10", ".cache", "a", "01"]), usual)


def listing_of(paths, has_schema, single_file=False):
    files = [a_file(path, etag=path.partition("/")[2]) for path in paths]
    return a_listing(files, is_single_file=single_file, schema=SCHEMA if has_schema else None)


directories = st.builds(listing_of, st.sets(paths, max_size=8), st.booleans())
natives = st.builds(
    lambda paths, schema: listing_of({*paths, "config.pbtxt"}, schema), st.sets(st.one_of(versioned, versioned, usual)), st.booleans()
)
trees = st.builds(listing_of, st.sets(versioned, max_size=8), st.booleans())
files = st.builds(listing_of, st.sets(names, min_size=1, max_size=1), st.booleans(), st.just(True))
listings = st.one_of(directories, natives, trees, files)
schemas = st.sampled_from([b"{}", b'{"inputs": [{"name": "i", "datatype": "FP32", "shape": [-1, 2]}]}'])


FORMATS = ("json", "ubj", "binary", "text", "checkpoint")
contents_of_files = st.sampled_from([b"", *(a_forest(form, 2, classes) for form in FORMATS for classes in (1, 3))])


@given(listings, st.sampled_from(TYPES), st.sampled_from(CONFIGS), schemas, st.sampled_from(["m", "a.python"]), contents_of_files)
def test_a_layout_never_escapes_and_can_always_be_built(listing, model_type, config, schema, model_id, content):
    """Refused, or: relative unique paths, no file that is a directory too, only versions look like numbers, only given files."""
    spec = a_spec(model_id=model_id, model_type=model_type, schema_path="_schema.json" if listing.schema else None)
    contents = dict.fromkeys(rules.wanted(listing), config) | {SCHEMA: schema}
    try:
        planned = rules.plan(spec, listing, contents)
        found = finished(planned, content)
    except InvalidModel as error:
        assert "\n" not in error.text
        return

    assert not found.questions
    assert set(found.files) == set(planned.files)

    assert set(found.links.values()) <= set(listing.files)
    assert len(found.links) == len(set(found.links.values()))
    files = [*found.links, *found.written]
    assert len(files) == len(set(files))
    directories = set(found.directories)
    for path in files:
        directories.update(list(accumulate(path.split("/"), "{}/{}".format))[:-1])
    assert not directories & set(files)
    for path in {*files, *directories}:
        assert all(name not in ("", ".", "..") and "\0" not in name for name in path.split("/"))
    for name in {path.partition("/")[0] for path in directories}:
        looks_like_a_number = name.strip().lstrip("+-")[:1].isdigit()
        assert VERSION.fullmatch(name) or not looks_like_a_number
    if "config.pbtxt" in found.written:
        assert not config_of(found.written["config.pbtxt"]).name


@given(listings, st.sampled_from(CONFIGS))
def test_a_python_model_never_reaches_triton_without_its_file(listing, config):
    """Its load would never end, and take a load thread with it."""
    contents = dict.fromkeys(rules.wanted(listing), config) | {SCHEMA: b"{}"}
    try:
        found = rules.plan(a_spec(model_type="python", schema_path="x" if listing.schema else None), listing, contents)
    except InvalidModel:
        return

    if any(name in path for path in found.links for name in OTHER_BACKENDS) or config in OTHER_CONFIGS:
        return
    versions = {path.partition("/")[0] for path in found.links if VERSION.fullmatch(path.partition("/")[0]) and "/" in path}
    assert versions
    assert all(f"{version}/model.py" in found.links for version in versions)
