"""A model below a front's folder may lie in directories that hold nothing else: an archive of a directory has such a one."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapter.errors import InvalidModel
from adapter.layout import rules
from adapter.model import OPTIONS_FILE, Layout
from tests.builders import a_listing, a_spec
from tests.unit.layout.cases.builders import OTHERS, PYTHON, config_of, placed, steps

NATIVE = {"config.pbtxt": PYTHON, "1/model.py": "", "2/model.py": "", "labels.txt": ""}
ENSEMBLE = {"top/config.pbtxt": steps("a", "b"), **OTHERS}
VERSIONS = {"1/model.onnx": "", "3/model.onnx": ""}


def planned(files: dict[str, str], wrapper: str = "", *, folder: Path | None = Path("/opt/ml/models")) -> Layout:
    spec = a_spec("/opt/ml/models/hash/model", folders=(folder,) if folder else ())
    listing = a_listing([f"{wrapper}{path}" for path in files])
    contents = {file: files[file.path.removeprefix(wrapper)].encode() for file in rules.wanted(listing, spec)}
    return rules.plan(spec, listing, contents)


@pytest.mark.parametrize("wrapper", ["", "model/", "my-model/", "model/my-model/", "a/b/c/"])
@pytest.mark.parametrize("files", [NATIVE, ENSEMBLE, VERSIONS], ids=["config", "ensemble", "versions"])
def test_the_same_is_placed_whatever_it_is_wrapped_in(files: dict[str, str], wrapper: str) -> None:
    plain, found = planned(files), planned(files, wrapper)
    assert placed(found) == {at: f"{wrapper}{path}" for at, path in placed(plain).items()}
    assert found.written == plain.written
    assert {name: placed(part) for name, part in found.inner.items()} == {
        name: {at: f"{wrapper}{path}" for at, path in placed(part).items()} for name, part in plain.inner.items()
    }


def test_what_is_placed_of_each_layout() -> None:
    """Of versions those that Triton serves: all that the config names, else the newest."""
    assert placed(planned(NATIVE, "model/")) == {"2/model.py": "model/2/model.py", "labels.txt": "model/labels.txt"}
    every = {**NATIVE, "config.pbtxt": f"{PYTHON} version_policy {{ all {{}} }}"}
    assert set(placed(planned(every, "model/"))) == {"1/model.py", "2/model.py", "labels.txt"}
    assert placed(planned(VERSIONS, "model/")) == {"3/model.onnx": "model/3/model.onnx"}
    ensemble = planned(ENSEMBLE, "model/")
    assert set(ensemble.inner) == {"m~inner~a", "m~inner~b"}
    config = config_of(ensemble.written["config.pbtxt"])
    assert [step.model_name for step in config.ensemble_scheduling.step] == ["m~inner~a", "m~inner~b"]


@pytest.mark.parametrize("beside", ["README.md", "other/file"])
def test_a_directory_with_something_beside_it_is_no_wrapper(beside: str) -> None:
    assert "1/model/config.pbtxt" in placed(planned({f"model/{path}": text for path, text in NATIVE.items()} | {beside: ""}))


def test_what_tools_leave_behind_is_not_beside_it() -> None:
    files = {f"model/{path}": text for path, text in NATIVE.items()} | {"._model": "", "__MACOSX/x": ""}
    assert placed(planned(files)) == placed(planned(NATIVE, "model/"))


@pytest.mark.parametrize("at", [OPTIONS_FILE, f"model/{OPTIONS_FILE}"])
def test_options_may_lie_beside_what_a_model_is_wrapped_in(at: str) -> None:
    found = planned({f"model/{path}": text for path, text in NATIVE.items()} | {at: ""})
    assert placed(found) == placed(planned(NATIVE, "model/")) | {OPTIONS_FILE: at}


def test_no_more_wrappers_are_opened_than_a_few() -> None:
    assert "1/a/b/c/d/config.pbtxt" in placed(planned(NATIVE, "a/b/c/d/"))


def test_modelmeshs_models_are_laid_out_as_ever() -> None:
    assert placed(planned(NATIVE, "model/", folder=None)) == placed(
        planned({f"model/{path}": text for path, text in NATIVE.items()}, folder=None)
    )
    assert "1/model/config.pbtxt" in placed(planned(NATIVE, "model/", folder=None))


def test_a_config_that_is_wrong_is_named_also_where_it_is_wrapped() -> None:
    with pytest.raises(InvalidModel):
        planned({"config.pbtxt": "nonsense {", "1/model.py": ""}, "model/")
    with pytest.raises(InvalidModel, match=r"there is no model file beside it; .*; found model/config.pbtxt"):
        planned({"config.pbtxt": PYTHON}, "model/")
