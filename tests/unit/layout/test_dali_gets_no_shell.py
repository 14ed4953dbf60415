"""The DALI backend puts the path of a model's file into a shell command: the model's id is a part of the path."""

from __future__ import annotations

import pytest

from adapter.errors import InvalidModel
from tests.unit.layout.cases.builders import planned


@pytest.mark.parametrize("model_id", ['a"; touch x #', "a$(x)", "a`x`", "a'b", "a b", "a\\b", "a\nb", "ä", "a;b", "a|b", "a&b"])
@pytest.mark.parametrize("file", ["model.dali", "dali.py"])
def test_an_id_with_a_shells_characters_is_refused(model_id, file):
    """Also for a serialized pipeline: the backend runs the command for what it cannot read."""
    with pytest.raises(InvalidModel, match="would hand to a shell"):
        planned("dali", [file], model_id=model_id)
    with pytest.raises(InvalidModel, match="would hand to a shell"):
        planned("", ["config.pbtxt", f"1/{file}"], config='backend: "dali"', model_id=model_id)


@pytest.mark.parametrize("model_id", ["resize__isvc-3f2a9c", "m", "a~b", "m.1"])
def test_other_ids_are_fine(model_id):
    assert planned("dali", ["model.dali"], model_id=model_id).hint == ""


def test_a_script_under_an_id_that_newer_backends_refuse_has_a_hint():
    """They let letters, digits, dots, slashes and underscores pass; ModelMesh's ids have a dash."""
    assert "upload model.dali" in planned("dali", ["dali.py"], model_id="resize__isvc-3f2a9c").hint
    assert planned("dali", ["dali.py"], model_id="resize").hint == ""


def test_ids_of_other_types_are_free():
    planned("onnx", ["model.onnx"], model_id='a"; touch x #')
