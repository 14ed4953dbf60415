"""One model whose directory holds several Triton models: which is which, and under which names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.errors import InvalidModel
from adapter.layout import rules
from adapter.model import INNER, Layout, id_problem, inner_name, owner_of
from tests.builders import a_listing, a_spec
from tests.unit.layout.cases.builders import OTHERS, PYTHON, bls, config_of, steps


def planned(files: dict[str, str], *, top: str | None = None) -> Layout:
    listing = a_listing(files)
    spec = a_spec(model_id="m", model_type="ensemble", top_model=top)
    return rules.plan(spec, listing, {file: files[file.path].encode() for file in rules.wanted(listing)})


CALLED = {**OTHERS, "a/config.pbtxt": bls("b")}
STEPS = {
    "top/config.pbtxt": steps("sub", "a"), "sub/config.pbtxt": steps("b"), **OTHERS, "b/config.pbtxt": bls("c"),
    "c/config.pbtxt": PYTHON, "c/1/model.py": "", "d/1/model.onnx": "",
}  # fmt: skip


@pytest.mark.parametrize(
    ("files", "first"),
    [
        ({"config.pbtxt": bls("a"), "1/model.py": "", **CALLED}, ("m~inner~b", "m~inner~a")),
        ({"top/config.pbtxt": bls("a"), "top/1/model.py": "", **CALLED}, ("m~inner~b", "m~inner~a")),
        (STEPS, ("m~inner~c", "m~inner~d")),
    ],
)
def test_models_that_bls_calls_are_loaded_before_the_top_model(files, first):
    """Triton does not know of them, nor of what no model names; one that calls another after that one."""
    assert planned(files).loaded_first == first


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
