"""One model whose directory holds several Triton models: which is which, and under which names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.errors import InvalidModel, InvalidRequest
from adapter.layout import rules
from adapter.layout.bundles import MOST_MODELS
from adapter.model import INNER, Layout, Listing, ModelSpec, SourceFile, id_problem, inner_name, owner_of
from tests.builders import a_file, a_listing, a_spec
from tests.unit.layout.cases.builders import SCHEMA, config_of, placed

PYTHON = 'backend: "python"'
OTHERS = {"a/config.pbtxt": PYTHON, "a/1/model.py": "", "b/config.pbtxt": f'{PYTHON} name: "b"', "b/1/model.py": ""}


def steps(*names: str) -> str:
    return 'platform: "ensemble" ensemble_scheduling { ' + " ".join(f'step {{ model_name: "{name}" }}' for name in names) + " }"


def bls(*names: str) -> str:
    return PYTHON + "".join(f' parameters {{ key: "bls_model.{name}" value {{ string_value: "{name}" }} }}' for name in names)


def planned(
    files: dict[str, str], *, top: str | None = None, model_id: str = "m", schema: str | None = None, model_type: str = "ensemble"
) -> Layout:
    listing = a_listing(files, schema=None if schema is None else SCHEMA)
    contents = {file: files[file.path].encode() for file in rules.wanted(listing) if file != SCHEMA}
    if schema is not None:
        contents[SCHEMA] = schema.encode()
    spec = a_spec(model_id=model_id, model_type=model_type, top_model=top, schema_path="s" if schema else None)
    return rules.plan(spec, listing, contents)


def trees(found: Layout) -> dict[str, dict[str, str]]:
    return {"": placed(found)} | {name: placed(part) for name, part in found.inner.items()}


def named_steps(content: bytes) -> list[str]:
    return [step.model_name for step in config_of(content).ensemble_scheduling.step]


def test_an_ensemble_beside_its_steps_is_the_top_model():
    """It takes the id; the others names of their own, in their configs and in its steps."""
    found = planned({"top/config.pbtxt": steps("a", "b"), **OTHERS, "README.md": ""})

    assert trees(found) == {"": {}, "m~inner~a": {"1/model.py": "a/1/model.py"}, "m~inner~b": {"1/model.py": "b/1/model.py"}}
    assert found.directories == ("1",)
    assert named_steps(found.written["config.pbtxt"]) == ["m~inner~a", "m~inner~b"]
    assert [config_of(part.written["config.pbtxt"]).name for part in found.inner.values()] == ["", ""]
    assert found.loaded_first == ()
    assert [file.path for file in found.files] == ["a/1/model.py", "b/1/model.py"]
    assert found.size_bytes == 2


def test_an_ensemble_over_its_steps_is_the_top_model():
    """Its config lies at the top, the steps in directories beside it."""
    found = planned({"config.pbtxt": steps("a", "b"), "labels.txt": "", "1/.keep": "", **OTHERS})

    assert trees(found)[""] == {"1/.keep": "1/.keep", "labels.txt": "labels.txt"}
    assert set(found.inner) == {"m~inner~a", "m~inner~b"}
    assert named_steps(found.written["config.pbtxt"]) == ["m~inner~a", "m~inner~b"]


@pytest.mark.parametrize("prefix", ["", "top/"])
def test_models_that_bls_calls_are_loaded_before_the_top_model(prefix):
    """Triton does not know of them; one that calls another after that one."""
    found = planned({f"{prefix}config.pbtxt": bls("a"), f"{prefix}1/model.py": "", **OTHERS, "a/config.pbtxt": bls("b")})

    assert found.loaded_first == ("m~inner~b", "m~inner~a")
    parameters = config_of(found.written["config.pbtxt"]).parameters
    assert parameters["bls_model.a"].string_value == "m~inner~a"
    assert config_of(found.inner["m~inner~a"].written["config.pbtxt"]).parameters["bls_model.b"].string_value == "m~inner~b"


def test_steps_of_steps_are_triton_s_and_the_rest_is_ours():
    """An ensemble in an ensemble; what a step calls by BLS, and what nobody names."""
    files = {
        "top/config.pbtxt": steps("sub", "a"),
        "sub/config.pbtxt": steps("b"),
        **OTHERS,
        "b/config.pbtxt": bls("c"),
        "c/config.pbtxt": PYTHON,
        "c/1/model.py": "",
        "d/1/model.onnx": "",
    }
    found = planned(files)

    assert found.loaded_first == ("m~inner~c", "m~inner~d")
    assert named_steps(found.inner["m~inner~sub"].written["config.pbtxt"]) == ["m~inner~b"]
    assert trees(found)["m~inner~d"] == {"1/model.onnx": "d/1/model.onnx"}


def test_the_top_model_can_be_named():
    """Where no model names another: a python model that makes the names up itself."""
    found = planned(OTHERS, top="b")

    assert trees(found) == {"": {"1/model.py": "b/1/model.py"}, "m~inner~a": {"1/model.py": "a/1/model.py"}}
    assert found.loaded_first == ("m~inner~a",)


def test_only_served_versions_of_inner_models_are_pulled():
    """Each by its own policy."""
    files = {"top/config.pbtxt": steps("a", "b"), **OTHERS, "a/2/model.py": "", "b/2/model.py": ""}
    found = planned(files | {"b/config.pbtxt": f"{PYTHON} version_policy {{ all {{ }} }}"})

    assert sorted(file.path for file in found.files) == ["a/2/model.py", "b/1/model.py", "b/2/model.py"]


def test_a_schema_is_the_top_model_s():
    """The inner ones keep their tensors."""
    schema = '{"inputs": [{"name": "x", "datatype": "FP32", "shape": [-1]}]}'
    found = planned({"top/config.pbtxt": steps("a", "b"), **OTHERS}, schema=schema)

    assert [tensor.name for tensor in config_of(found.written["config.pbtxt"]).input] == ["x"]
    assert not any(config_of(part.written["config.pbtxt"]).input for part in found.inner.values())


@pytest.mark.parametrize(
    ("files", "top", "words"),
    [
        (OTHERS, None, "this directory holds 2 models, and any of a, b could be the one that is asked for inference; name that one in"),
        (OTHERS, "c", "adapter.topModel names c, and the models here are a, b"),
        ({"x/config.pbtxt": steps("a"), "y/config.pbtxt": steps("b"), **OTHERS}, None, "holds 4 models, and any of x, y could be the one"),
        (
            {"x/config.pbtxt": steps("y"), "y/config.pbtxt": steps("x"), **OTHERS},
            None,
            "holds 4 models, and any of a, b, x, y could be the one",
        ),
        ({"top/config.pbtxt": steps("a", "c"), **OTHERS}, None, "an ensemble step in top/config.pbtxt names c, and the models here are"),
        (
            {"config.pbtxt": steps("a", "c"), **OTHERS},
            None,
            "an ensemble step in config.pbtxt names c, and the models here are a, b; found",
        ),
        ({"config.pbtxt": steps("a", ""), **OTHERS}, None, "names ''"),
        ({"top/config.pbtxt": bls("c"), "top/1/model.py": "", **OTHERS}, None, "the parameter bls_model.c in top/config.pbtxt names c"),
        ({"top/config.pbtxt": steps("a", "b"), **OTHERS, "a/config.pbtxt": bls("top")}, "top", "names top, which is the top model"),
        ({"top/config.pbtxt": steps("a"), "a/config.pbtxt": PYTHON, "a/1/x": ""}, None, "a: 1/model.py is missing"),
        ({"top/config.pbtxt": steps("a"), "a/config.pbtxt": PYTHON, "a/01/model.py": ""}, None, "a: Triton would misread directory 01"),
        ({"top/config.pbtxt": steps("a"), "a/config.pbtxt": "backend: 7"}, None, "a/config.pbtxt cannot be used: line 1, column 1"),
        ({"top/config.pbtxt": steps("a"), "a/config.pbtxt": "{"}, None, "a/config.pbtxt cannot be parsed: line 1, column 1"),
    ],
)
def test_what_cannot_be_a_bundle_is_refused_in_words(files, top, words):
    """Which model, and what is there instead."""
    with pytest.raises(InvalidModel) as caught:
        planned(files, top=top)

    assert words in caught.value.text
    assert "\n" not in caught.value.text


def test_the_expected_tree_of_a_bundle_is_shown():
    """As for any other type."""
    with pytest.raises(
        InvalidModel, match=r"Triton expects one directory with config\.pbtxt and 1/ for each model, and one model that names"
    ):
        planned(OTHERS)


def test_names_that_are_too_long_together_are_refused():
    """Triton fails beyond 255 bytes."""
    files = {"top/config.pbtxt": steps("a", "b"), **OTHERS}
    fitting = 255 - len("~inner~a")

    assert set(planned(files, model_id="m" * fitting).inner) == {f"{'m' * fitting}~inner~{name}" for name in "ab"}
    with pytest.raises(InvalidModel, match="too long together for a name of 255 bytes"):
        planned(files, model_id="m" * (fitting + 1))


@pytest.mark.parametrize(
    "files",
    [
        ["a/config.pbtxt", "a/1/model.py"],
        ["a/1/model.py", "b/1/model.py"],
        ["model.py", "a/config.pbtxt", "b/config.pbtxt"],
        ["model.savedmodel/x", "a/config.pbtxt", "b/config.pbtxt"],
        ["1/config.pbtxt", "2/config.pbtxt"],
        [".cache/config.pbtxt", "a/config.pbtxt"],
        ["a/b/config.pbtxt", "a/c/config.pbtxt"],
        [f"{number}x/config.pbtxt" for number in range(9)],
        [f"d{number}/config.pbtxt" for number in range(MOST_MODELS + 1)],
    ],
)
def test_what_does_not_look_like_a_bundle_is_none(files):
    """No config is read for it, and it is laid out as before."""
    assert rules.wanted(a_listing(files)) == ()


def test_a_native_model_that_names_no_other_is_none():
    """A config.pbtxt in one of its directories is a file like any other."""
    found = planned({"config.pbtxt": PYTHON, "1/model.py": "", "templates/config.pbtxt": "not { a config"}, model_type="python")

    assert found.inner == {}
    assert set(placed(found)) == {"1/model.py", "templates/config.pbtxt"}


def test_a_refused_model_that_names_no_other_is_shown_its_own_tree():
    """Not that of a bundle, which it is not."""
    with pytest.raises(InvalidModel, match=r"Triton expects config\.pbtxt and 1/model\.py$"):
        planned({"config.pbtxt": PYTHON, "1/main.py": "", "templates/config.pbtxt": ""}, model_type="python")


def test_the_configs_of_a_bundle_are_read_before_anything_is_pulled():
    """Those that exist, and the one at the top."""
    assert rules.wanted(a_listing(["config.pbtxt", "a/config.pbtxt", "b/1/x"])) == (a_file("config.pbtxt"), a_file("a/config.pbtxt"))
    assert rules.wanted(a_listing(["a/config.pbtxt", "b/1/x"])) == (a_file("a/config.pbtxt"),)


ids = st.lists(st.sampled_from([INNER, INNER[:-1], "~", "~i", "r~", "a", "é"]) | st.text(max_size=3), max_size=4).map("".join)


@given(ids, ids, ids, ids)
def test_inner_names_never_meet(first_id, first_name, second_id, second_name):
    """Neither each other, nor an id that can be loaded."""
    if id_problem(first_id) or id_problem(second_id):
        return
    name = inner_name(first_id, first_name)

    assert id_problem(name) is not None
    assert owner_of(name) == first_id
    assert owner_of(first_id) == first_id
    if (first_id, first_name) != (second_id, second_name):
        assert name != inner_name(second_id, second_name)


@pytest.mark.parametrize(
    ("model_id", "how"), [("a~inner~b", "contains '~inner~'"), ("x~inner", "ends in '~inner'"), ("~inner", "ends in '~inner'")]
)
def test_an_id_that_could_name_an_inner_model_is_refused(model_id, how):
    """`x~inner` has the inner model `x~inner~inner~y`, whose name begins as those of the bundle `x` do."""
    assert id_problem(model_id) == f"the model id {model_id!r} {how}, which is reserved for the inner models of bundles"
    with pytest.raises(InvalidRequest):
        ModelSpec(model_id=model_id, model_type="", path="p")


def test_the_reserved_ids_are_the_caller_s_to_say():
    """By its settings the adapter may have a folder of another name."""
    assert id_problem("_adapter") is not None
    assert id_problem("cache") is None
    assert (
        id_problem("cache", reserved={"_triton_models", "_adapter", "cache"})
        == "the model id 'cache' is reserved for the adapter's own folders"
    )


NAMES = ["a", "b", "top", "1", "01", ".x", "", "..", "x" * 256]
CONFIGS = [steps("a"), steps("a", "b"), steps("top"), bls("a"), bls("b", "a"), PYTHON, "", 'platform: "ensemble"', "name: 7"]


@given(
    st.dictionaries(
        st.builds("{}/{}".format, st.sampled_from(NAMES), st.sampled_from(["config.pbtxt", "1/model.py", "2/x", "y"])),
        st.sampled_from(CONFIGS),
        max_size=9,
    ),
    st.sampled_from([None, *CONFIGS]),
    st.sampled_from([None, "a", "b", "zz"]),
)
def test_a_bundle_is_refused_or_whole(files, top_config, top):
    """Every reference leads to a model that is placed, and every model's name is its owner's."""
    files = files | ({} if top_config is None else {"config.pbtxt": top_config})
    try:
        found = planned(files, top=top)
    except InvalidModel:
        return

    names = {"m", *found.inner}
    assert all(owner_of(name) == "m" for name in names)
    assert set(found.loaded_first) <= set(found.inner)
    if found.inner:
        for part in (found, *found.inner.values()):
            config = config_of(part.written["config.pbtxt"])
            assert {step.model_name for step in config.ensemble_scheduling.step} <= set(found.inner)
            assert {value.string_value for key, value in config.parameters.items() if key.startswith("bls_model.")} <= set(found.inner)


def test_a_broken_path_is_reported_and_not_followed():
    """Storage refuses such keys; a bundle would not be looked for in it."""
    listing = Listing("s3://b/m", "m", False, tuple(SourceFile(path, 1, "") for path in ("../config.pbtxt", "a/config.pbtxt", "b/1/x")))

    with pytest.raises(InvalidModel, match=r"has a '\.\.' in it"):
        rules.plan(a_spec(), listing, dict.fromkeys(rules.wanted(listing), b""))
