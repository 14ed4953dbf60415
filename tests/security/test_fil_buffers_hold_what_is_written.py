"""
The config that is written for a forest always declares the numbers that the FIL backend writes.

No FIL backend can be installed here. Treelite's own reference, GTIL, stands for it: the backend on CPUs is GTIL, or compares
itself with it, and GTIL writes as many numbers for each row. The buffers are made as Triton makes them, from the config, and end at a page
that must not be touched: one number too many kills the process, so the forests are run in a child. What comes between GTIL and the
buffer is written down from the backend's source in `answer`.

The forests are real ones (`forests/make.py`), of XGBoost, LightGBM and scikit-learn; each name ends in its number of outputs.
"""

import json
import signal
import zipfile
from pathlib import Path

import pytest

from adapter.errors import InvalidModel
from adapter.layout import rules
from adapter.volume.trees import TAIL_BYTES, read_ends
from tests.builders import a_listing, a_spec
from tests.security import unmeasured
from tests.unit.layout.cases.builders import SCHEMA, config_of

ARCHIVE = Path(__file__).parent / "forests" / "forests.zip"
TYPES = {"json": "xgboost", "ubj": "xgboost", "model": "xgboost", "txt": "lightgbm", "tl": "sklearn"}
XGBOOST_TARGETS = {f"xgboost-{kind}-3.{suffix}" for kind in ("targets", "leaves") for suffix in ("json", "ubj")}
WITH_TARGETS = XGBOOST_TARGETS | {"sklearn-targets-3.tl", "sklearn-outputs-6.tl"}
"""Of several targets: refused without a config of the user's own."""
FEATURES, ROWS = 4, 100

with zipfile.ZipFile(ARCHIVE) as archive:
    NAMES = archive.namelist()
ONE_TARGET = [name for name in NAMES if name not in WITH_TARGETS]


def outputs(name: str) -> int:
    return int(Path(name).stem.rpartition("-")[2])


@pytest.fixture(scope="session")
def forests(tmp_path_factory) -> Path:
    """A folder with every forest, under the names of the archive."""
    folder = tmp_path_factory.mktemp("forests")
    with zipfile.ZipFile(ARCHIVE) as archive:
        archive.extractall(folder)
    return folder


def laid_out(path: Path, *, schema=None, config=None, model_type=None):
    """The finished layout of one file, as `loadModel` makes it."""
    name = path.name if config is None else f"1/{path.name}"
    listing = a_listing([name] if config is None else [name, "config.pbtxt"], is_single_file=config is None)
    spec = a_spec(model_type=model_type or TYPES[path.suffix[1:]])
    contents = {file: config.encode() for file in listing.files if file.path == "config.pbtxt"}
    if schema is not None:
        listing = a_listing([name], is_single_file=True, schema=SCHEMA)
        contents[SCHEMA] = json.dumps(schema).encode()
    found = rules.plan(spec, listing, contents)
    return rules.finished(found, {file: read_ends(path, lambda: None) for file in rules.asked(found)})


def written(path: Path, **more) -> str:
    return laid_out(path, **more).written["config.pbtxt"].decode()


def served(cases: list[tuple[Path, str]]) -> int:
    """Answers a hundred rows with each forest under its config, in a child; its exit code, negative for a signal."""
    lines = "".join(json.dumps([str(path), config]) + "\n" for path, config in cases)
    done = unmeasured.run("-c", "from tests.security.fil_stand_in import main; main()", lines=lines, OMP_NUM_THREADS="1")
    print(done.stderr[-2000:])
    return done.returncode


def test_every_forest_fits_into_the_buffer_of_its_config(forests):
    """1 to 20 classes of three libraries in all formats, regressions, rankings, random forests, of the DART kind, without any schema."""
    assert served([(forests / name, written(forests / name)) for name in ONE_TARGET]) == 0


@pytest.mark.parametrize("answer", ["class", "probabilities"])
def test_every_forest_fits_whichever_answer_a_schema_asks_for(forests, answer):
    """The class alone, or one probability for each class; both probabilities of two classes."""

    def schema(name):
        width = outputs(name) if answer == "probabilities" else 1
        if width == 1 and "binary" in name and answer == "probabilities":
            width = 2
        return {"outputs": [{"name": "output__0", "datatype": "FP32", "shape": [-1, width]}]}

    assert served([(forests / name, written(forests / name, schema=schema(name))) for name in ONE_TARGET]) == 0


@pytest.mark.parametrize("name", ["xgboost-softprob-3.json", "lightgbm-multiclass-3.txt", "sklearn-forest-2.tl", "xgboost-targets-3.ubj"])
def test_a_config_for_one_number_writes_behind_the_buffer(forests, name):
    """The stand-in does find what it is there for: the config of a regression, for a forest of more outputs."""
    config = written(forests / "xgboost-regression-1.json")

    assert served([(forests / "xgboost-regression-1.json", config)]) == 0
    assert served([(forests / name, config.replace("xgboost_json", KINDS[Path(name).suffix[1:]]))]) == -signal.SIGSEGV


@pytest.mark.parametrize("name", NAMES)
def test_the_file_says_how_many_numbers_there_are(forests, name):
    """As the config of a single target, or in the refusal of several."""
    if name in WITH_TARGETS:
        with pytest.raises(InvalidModel, match=r" has \d targets.*add a config\.pbtxt.*output_class"):
            laid_out(forests / name)
        return
    config = config_of(written(forests / name))
    assert list(config.output[0].dims) == [outputs(name)]
    assert list(config.input[0].dims) == [FEATURES]


@pytest.mark.parametrize("name", [name for name in ONE_TARGET if name.endswith(".json")])
def test_a_file_that_is_not_read_whole_says_the_same(forests, tmp_path, name):
    """Spaces before the trees, more than is read of the file, which Treelite skips as well."""
    path = tmp_path / name
    path.write_bytes((forests / name).read_bytes().replace(b'"trees":[', b'"trees":[' + b" " * 2 * TAIL_BYTES, 1))
    assert path.stat().st_size > 2 * TAIL_BYTES

    assert written(path) == written(forests / name)


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("xgboost")])
def test_xgboosts_model_files_are_told_apart_by_their_content(forests, tmp_path, name):
    """`.model` was binary before XGBoost 2.1 and is UBJSON since; the name says nothing."""
    if name in WITH_TARGETS:
        return
    path = tmp_path / "churn.model"
    path.write_bytes((forests / name).read_bytes())
    found = laid_out(path)
    suffix = name.rpartition(".")[2]

    assert list(found.links) == [f"1/xgboost.{suffix}"]
    kinds = {"json": "xgboost_json", "ubj": "xgboost_ubj", "model": "xgboost"}
    assert config_of(found.written["config.pbtxt"]).parameters["model_type"].string_value == kinds[suffix]


@pytest.mark.parametrize(
    ("name", "schema", "words"),
    [
        (
            "xgboost-softprob-7.ubj",
            {"outputs": [["output__0", [-1, 5]]]},
            r"output__0 \[5\].*softprob-7\.ubj says 7 classes: \[7\] belongs",
        ),
        ("xgboost-regression-1.json", {"outputs": [["output__0", [-1, 2]]]}, r"output__0 \[2\].*says one output: \[1\] belongs"),
        ("lightgbm-multiclass-4.txt", {"outputs": [["output__0", [-1, 4, 1]]]}, r"output__0 \[4, 1\].*says 4 classes: \[4\]"),
        ("sklearn-forest-2.tl", {"inputs": [["input__0", [-1, 5]]]}, r"input__0 \[5\].*says 4 features: \[4\] belongs"),
    ],
)
def test_a_schema_that_contradicts_the_file_is_refused_with_both_numbers(forests, name, schema, words):
    """More numbers than the file gives are wrong too."""
    tensors = {side: [{"name": tensor, "datatype": "FP32", "shape": shape} for tensor, shape in rows] for side, rows in schema.items()}
    with pytest.raises(InvalidModel, match=words):
        laid_out(forests / name, schema=tensors)


def test_what_a_schema_leaves_open_is_filled_in(forests):
    """Variable dimensions would let a client choose how many numbers are read."""
    shape = [{"name": "input__0", "datatype": "FP32", "shape": [-1, -1]}]
    out = [{"name": "output__0", "datatype": "FP32", "shape": [-1, -1]}]
    config = config_of(written(forests / "xgboost-softprob-7.ubj", schema={"inputs": shape, "outputs": out}))

    assert [list(tensor.dims) for tensor in (*config.input, *config.output)] == [[4], [7]]


OWN = """backend: "fil" max_batch_size: 8 default_model_filename: "{file}"
input {{ name: "input__0" data_type: TYPE_FP32 dims: {columns} }} output {{ name: "output__0" data_type: TYPE_FP32 dims: {dims} }}
parameters {{ key: "model_type" value {{ string_value: "{kind}" }} }} {more}"""
CLASS = """parameters { key: "output_class" value { string_value: "true" } }"""
PROBABILITIES = CLASS + """ parameters { key: "predict_proba" value { string_value: "true" } }"""
KINDS = {"json": "xgboost_json", "ubj": "xgboost_ubj", "model": "xgboost", "txt": "lightgbm", "tl": "treelite_checkpoint"}


def own(name: str, *, dims="[ 1 ]", columns="[ 4 ]", more="") -> str:
    return OWN.format(file=name, kind=KINDS[name.rpartition(".")[2]], dims=dims, columns=columns, more=more)


@pytest.mark.parametrize("name", ["xgboost-softprob-3.json", "xgboost-softprob-3.model", "lightgbm-ova-3.txt", "sklearn-targets-3.tl"])
@pytest.mark.parametrize(
    ("dims", "more", "is_enough"), [("[ 1 ]", "", False), ("[ 2 ]", PROBABILITIES, False), ("[ 3 ]", PROBABILITIES, True)]
)
def test_a_users_own_config_with_too_small_an_output_is_refused(forests, name, dims, more, is_enough):
    """Whatever else it says goes to Triton as it was written, and the stand-in dies of what is refused."""
    config = own(name, dims=dims, more=more)
    if is_enough:
        assert laid_out(forests / name, config=config).written["config.pbtxt"].decode() == config
    else:
        with pytest.raises(InvalidModel, match=r"makes room for \d numbers? in output__0, and the FIL backend would write 3: .*says 3 "):
            laid_out(forests / name, config=config)
    assert (served([(forests / name, config)]) == 0) is is_enough


@pytest.mark.parametrize("name", ["xgboost-binary-1.json", "xgboost-regression-1.ubj"])
def test_both_probabilities_of_a_forest_of_one_output_need_two_numbers(forests, name):
    """A GPU writes two for each row; on CPUs the answers stay inside the buffer."""
    with pytest.raises(InvalidModel, match=r"1 number in output__0, and the FIL backend would write 2: .*says one output"):
        laid_out(forests / name, config=own(name, more=PROBABILITIES))
    for dims, more in (("[ 2 ]", PROBABILITIES), ("[ 1 ]", CLASS), ("[ 1 ]", PROBABILITIES + " instance_group { kind: KIND_CPU }")):
        config = own(name, dims=dims, more=more)
        assert laid_out(forests / name, config=config).written["config.pbtxt"].decode() == config


@pytest.mark.parametrize("name", ["xgboost-softprob-3.json", "sklearn-forest-2.tl"])
def test_a_users_own_config_may_ask_for_the_class_alone(forests, name):
    """The backend has a buffer of its own for it, and would read too much from that buffer for more than one number."""
    config = own(name, more=CLASS)

    assert laid_out(forests / name, config=config).written["config.pbtxt"].decode() == config
    assert served([(forests / name, config)]) == 0
    with pytest.raises(InvalidModel, match=r"makes room for 9 numbers in output__0, and the FIL backend would read them from \d"):
        laid_out(forests / name, config=own(name, dims="[ 9 ]", more=CLASS))


def test_a_users_own_config_with_too_few_features_is_refused(forests):
    """The backend would read the rest of each row from behind the request."""
    name = "xgboost-regression-1.ubj"
    with pytest.raises(InvalidModel, match=r"gives input__0 3 numbers, and the FIL backend would read 4: .* says 4 features"):
        laid_out(forests / name, config=own(name, columns="[ 3 ]"))
    for columns in ("[ 4 ]", "[ 2, 2 ]", "[ -1 ]", "[ 5 ]"):
        laid_out(forests / name, config=own(name, columns=columns))


def test_dims_whose_product_is_beyond_all_numbers_are_no_defect(forests):
    """Python shows no number of more than 4,300 digits."""
    name = "xgboost-softprob-3.json"
    dims = f"[ {', '.join([str(2**62)] * 300)} ]"
    laid_out(forests / name, config=own(name, dims=dims, more=PROBABILITIES))
    with pytest.raises(InvalidModel, match=r"makes room for 9223372036854775807 numbers in output__0"):
        laid_out(forests / name, config=own(name, dims=dims, more=CLASS))


@pytest.mark.parametrize(
    "config",
    [
        own("xgboost-softprob-3.ubj").replace("xgboost_ubj", "xgboost_json"),
        own("xgboost-softprob-3.ubj").replace("xgboost_ubj", "catboost"),
        own("xgboost-softprob-3.ubj").replace("output__0", "scores"),
        own("xgboost-softprob-3.ubj", dims="[ -1 ]"),
        own("xgboost-softprob-3.ubj").replace("xgboost-softprob-3.ubj", "other.ubj"),
    ],
    ids=["another format", "an unknown format", "another output", "a variable output", "another file"],
)
def test_what_the_backend_refuses_itself_is_left_to_it(forests, config):
    """Or what no number is said of."""
    assert laid_out(forests / "xgboost-softprob-3.ubj", config=config).written["config.pbtxt"].decode() == config


@pytest.mark.parametrize("model_type", ["fil", "", "xgboost"])
def test_every_version_that_is_served_is_looked_at(model_type):
    """Also where the type says nothing of a forest."""
    config = 'backend: "fil" version_policy { all {} } parameters { key: "model_type" value { string_value: "xgboost_json" } }'
    listing = a_listing(["config.pbtxt", "1/xgboost.json", "2/xgboost.json", "3/other.json"])
    found = rules.plan(a_spec(model_type=model_type), listing, {listing.find("config.pbtxt"): config.encode()})

    assert sorted(file.path for file in rules.asked(found)) == ["1/xgboost.json", "2/xgboost.json"]


def test_the_forests_of_a_bundle_are_looked_at_too(forests):
    """Each inner model has a config of its own."""
    config = own("xgboost-softprob-3.json").encode()
    listing = a_listing(["config.pbtxt", "1/model.py", "trees/config.pbtxt", "trees/1/xgboost-softprob-3.json"])
    top = b'backend: "python" parameters { key: "bls_model.t" value { string_value: "trees" } }'
    found = rules.plan(a_spec(), listing, {listing.find("config.pbtxt"): top, listing.find("trees/config.pbtxt"): config})
    (file,) = rules.asked(found)
    answers = {file: read_ends(forests / "xgboost-softprob-3.json", lambda: None)}

    with pytest.raises(InvalidModel, match=r"makes room for 1 number in output__0, and the FIL backend would write 3"):
        rules.finished(found, answers)


def test_a_schema_with_another_output_is_refused(forests):
    """What else the backend can write (`treeshap_output`) needs a config of the user's own."""
    with pytest.raises(InvalidModel, match="calls its own output__0: name it so"):
        laid_out(
            forests / "xgboost-softprob-3.json", schema={"outputs": [{"name": "treeshap_output", "datatype": "FP32", "shape": [-1, 15]}]}
        )
