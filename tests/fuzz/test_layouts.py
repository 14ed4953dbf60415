"""Listings, configs and schemas of any kind: a layout that stays inside the model, or words. Beyond names: their bytes."""

from __future__ import annotations

import json
import re

from hypothesis import event
from hypothesis import strategies as st

from adapter.errors import AdapterError, InvalidModel
from adapter.layout import model_config, rules
from adapter.layout.model_types import TYPES
from adapter.model import Layout, Listing, SourceFile
from adapter.paths import path_problem
from adapter.records import Digests
from tests.builders import a_file, a_forest, a_listing, a_spec
from tests.fuzz.fuzzing import LONGEST_TEXT, check_words, fuzzed, mutated, texts, trees
from tests.unit.layout.cases.builders import ends_of

HONEST_CONFIGS = [
    b'backend: "onnxruntime"\nmax_batch_size: 8\ninput [{ name: "x" data_type: TYPE_FP32 dims: [ -1, 4 ] }]\noutput [{ name: "y" }]\n',
    b'platform: "ensemble"\nensemble_scheduling { step [ { model_name: "scale" model_version: -1 input_map { key: "X" value: "a" } } ] }\n',
    b'backend: "python"\nversion_policy: { specific { versions: [1, 3] } }\nparameters { key: "EXECUTION_ENV_PATH" value '
    b'{ string_value: "$$TRITON_MODEL_DIRECTORY/env.tar.gz" } }\ninstance_group [{ kind: KIND_CPU count: 1 }]\n',
    b'backend: "fil"\nparameters [ { key: "model_type" value { string_value: "xgboost_json" } } ]\noutput [{ name: "o" dims: [ 1 ] }]\n',
    b'name: "m" model_warmup [{ name: "w" inputs { key: "x" value { data_type: TYPE_FP32 dims: 4 input_data_file: "../x" } } }]\n',
    b'model_repository_agents { agents [{ name: "a" }] }\ndefault_model_filename: "../../etc/passwd"\ncc_model_filenames { key: "8" }\n',
]
HONEST_SCHEMAS = [
    b'{"inputs": [{"name": "i", "datatype": "FP32", "shape": [-1, 2]}], "outputs": [{"name": "o", "datatype": "INT64", "shape": [1]}]}',
    b"{}",
]
NAMES = [
    "1", "2", "10", "0", "01", "9" * 18, "9" * 19, "model.onnx", "net.onnx", "model.plan", "model.pt", "model.py", "config.pbtxt",
    "saved_model.pb", "model.savedmodel", "variables", "xgboost.json", "model.txt", "model.ubj", "checkpoint.tl", "a", "b", "scale", "both",
    ".cache", "__pycache__", "env.tar.gz", "warmup", "initial_state", "model.xml", "model.bin", "model.json", "model.dali", "labels.txt",
    "x" * 255,
]  # fmt: skip
segments = st.sampled_from(NAMES) | st.sampled_from(NAMES) | texts.filter(lambda name: "/" not in name and path_problem(name) is None)
paths = st.lists(segments, min_size=1, max_size=4).map("/".join)
inner_configs = st.sampled_from(["both/config.pbtxt", "scale/config.pbtxt", "scale/1/model.py", "scale/1/model.onnx", "config.pbtxt"])
listings = st.one_of(
    st.builds(
        lambda found, size: a_listing([a_file(path, size) for path in found]),
        st.sets(paths | inner_configs, max_size=10),
        st.sampled_from([0, 1, 300, 2**40, 2**62]),
    ),
    st.builds(lambda name: a_listing([name], is_single_file=True), segments),
)
configs = st.one_of(mutated(st.sampled_from(HONEST_CONFIGS)), st.sampled_from(HONEST_CONFIGS), st.binary(max_size=80))
schemas = st.one_of(
    mutated(st.sampled_from(HONEST_SCHEMAS)),
    st.dictionaries(st.sampled_from(["inputs", "outputs", "INPUTS", "x"]), trees).map(lambda found: json.dumps(found).encode()),
    st.binary(max_size=60),
)
FORESTS = [a_forest(form, 3, classes) for form in ("json", "ubj", "binary", "text", "checkpoint") for classes in (1, 3)]
contents = mutated(st.sampled_from(FORESTS)) | st.binary(max_size=200)
SCHEMA = SourceFile("_schema.json", 2, "schema-1")
VERSION = re.compile(r"0|[1-9][0-9]{0,17}|[1-8][0-9]{18}|9000000000000000000")
OTHER_BACKENDS = ("model.onnx", "model.plan", "model.pt", "model.graphdef", "model.savedmodel")
"""Parts of paths that tell Triton another backend than python."""
versioned = st.builds("{}/{}".format, st.sampled_from(["1", "2", "10", "a", "01"]), st.sampled_from(NAMES) | st.just("model.py"))
natives = st.sets(versioned | st.just("config.pbtxt"), max_size=8).map(a_listing)


def check_layout(layout: Layout, listing: Listing) -> None:
    """Every part stays below its directory, and is made of the listing's files."""
    for name, part in {"m": layout, **layout.inner}.items():
        assert "/" not in name and path_problem(name) is None
        for path in (*part.links, *part.written, *part.directories):
            assert path_problem(path) is None, path
        assert not set(part.links) & set(part.written)
        assert set(part.links.values()) <= set(listing.files)
        assert all(len(content) <= 8 << 20 for content in part.written.values())
    for said in (layout.hint, *layout.warnings):
        assert "\n" not in said and len(said) <= LONGEST_TEXT


@fuzzed(
    listing=listings,
    has_schema=st.booleans(),
    config=configs,
    inner=configs,
    schema=schemas,
    content=contents,
    model_type=st.sampled_from(["", *sorted(TYPES)]) | texts,
    top=st.none() | st.sampled_from(["both", "scale", "x"]),
    decoupled=st.booleans(),
)
def test_any_listing_becomes_a_layout_inside_the_model_or_words(
    listing: Listing,
    has_schema: bool,
    config: bytes,
    inner: bytes,
    schema: bytes,
    content: bytes,
    model_type: str,
    top: str | None,
    decoupled: bool,
) -> None:
    """With any bytes in its configs, its schema and its forests."""
    if has_schema:
        listing = Listing(listing.origin, listing.name, listing.is_single_file, listing.files, SCHEMA)
    spec = a_spec(
        model_type=model_type.lower(), schema_path="_schema.json" if has_schema else None, top_model=top, allow_decoupled=decoupled
    )
    try:
        wanted = rules.wanted(listing)
        read = {file: schema if file is listing.schema else config if file.path == "config.pbtxt" else inner for file in wanted}
        layout = rules.plan(spec, listing, read)
        answers = {file: ends_of(content) for file in rules.asked(layout)}
        layout = rules.finished(layout, answers)
    except InvalidModel as error:
        event("refused")
        check_words(error)
        return
    event("a bundle" if layout.inner else "a layout")
    check_layout(layout, listing)
    for part in (layout, *layout.inner.values()):
        if "config.pbtxt" in part.written:
            model_config.read(part.written["config.pbtxt"])


@fuzzed(listing=listings | natives, config=st.sampled_from([b"", HONEST_CONFIGS[2], b"name: 'x' version_policy { all {} }"]))
def test_a_python_model_never_reaches_triton_without_its_file(listing: Listing, config: bytes) -> None:
    """Its load would never end, and take a load thread with it."""
    try:
        links = rules.plan(a_spec(model_type="python"), listing, dict.fromkeys(rules.wanted(listing), config)).links
    except InvalidModel:
        return
    if not any(name in path for path in links for name in OTHER_BACKENDS):
        event("a python model")
        versions = {path.partition("/")[0] for path in links if VERSION.fullmatch(path.partition("/")[0]) and "/" in path}
        assert versions
        assert all(f"{version}/model.py" in links for version in versions)


@fuzzed(config=configs)
def test_any_config_is_read_or_refused_in_words(config: bytes) -> None:
    try:
        model_config.read(config)
    except AdapterError as error:
        event("refused")
        check_words(error)


@fuzzed(first=listings, second=listings)
def test_listings_have_one_digest_only_when_they_are_equal(first: Listing, second: Listing) -> None:
    """Also where their names cannot be encoded."""
    digests = Digests(b"salt" * 8)
    digest = digests.of_listing(first)
    assert digest is not None and digest == digests.of_listing(first)
    assert (digest == digests.of_listing(second)) == (first == second)
    longer = Listing(first.origin, first.name, first.is_single_file, (*first.files, a_file("zzz/zzz", 7)), first.schema)
    assert digest != digests.of_listing(longer)
