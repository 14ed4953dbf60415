"""Whatever a store lists, a layout stays inside its model directory and can be built on disk."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from adapter.errors import InvalidModel
from adapter.layout import rules
from tests.builders import a_file, a_listing, a_spec
from tests.unit.layout.cases.builders import SCHEMA

VERSION = re.compile(r"0|[1-9][0-9]{0,17}|[1-8][0-9]{18}|9000000000000000000")
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
