"""Several Triton models as one ModelMesh model: an ensemble with its steps, a python model with those that it calls."""

from __future__ import annotations

from collections.abc import Callable

import grpc
import numpy as np
import pytest

from tests.integration.conftest import Put, Rig, until_nothing_is_left
from tests.real.adapter import AdapterProcess
from tests.real.mesh import Mesh
from tests.real.models import affine, ensemble, pipeline, text_statistics

X = np.array([1.0, 2.0, -3.0], dtype=np.float32)
BUNDLES = {"ensemble": ensemble, "pipeline": pipeline}


def answer(mesh: Mesh, model_id: str) -> list[float]:
    return mesh.infer(model_id, {"X": X})["Y"].tolist()


def put_bundle(put: Put, kind: str, path: str, factor: float, summand: float, **wrong: dict[str, bytes]) -> None:
    """Both bundles call their inner models `scale` and `shift`."""
    put(path, dict(BUNDLES[kind](**{"scale": affine(factor, 0), "shift": affine(1, summand)} | wrong)))


@pytest.mark.parametrize("kind", ["ensemble", pytest.param("pipeline", marks=pytest.mark.long)])
def test_two_bundles_answer_under_their_ids_side_by_side(kind: str, mesh: Mesh, put: Put, rig: Rig) -> None:
    """Their inner models have the same names; unloading one leaves the other as it was."""
    put_bundle(put, kind, f"{kind}-one", 2, 1)
    put_bundle(put, kind, f"{kind}-two", -1, 10)

    mesh.load("one", kind.replace("pipeline", "python"), f"{kind}-one")
    mesh.load("two", kind.replace("pipeline", "python"), f"{kind}-two")

    assert answer(mesh, "one") == [3.0, 5.0, -5.0]
    assert answer(mesh, "two") == [9.0, 8.0, 13.0]
    assert mesh.index() == dict.fromkeys(
        ["one", "one~inner~scale", "one~inner~shift", "two", "two~inner~scale", "two~inner~shift"], "READY"
    )
    mesh.unload("one")
    assert mesh.index() == dict.fromkeys(["two", "two~inner~scale", "two~inner~shift"], "READY")
    assert answer(mesh, "two") == [9.0, 8.0, 13.0]
    mesh.unload("two")
    assert mesh.index() == {}
    assert [name for name in ("one~inner~scale", "two", "two~inner~scale", "two~inner~shift") if mesh.serves(name)] == []
    assert rig.leftovers() == []


def test_a_single_model_may_have_the_name_of_an_inner_one(mesh: Mesh, put: Put) -> None:
    """It is another model."""
    put_bundle(put, "ensemble", "b", 2, 1)
    put("scale", dict(text_statistics()))
    mesh.load("b", "ensemble", "b")
    mesh.load("scale", "python", "scale")
    mesh.unload("b")

    assert mesh.index() == {"scale": "READY"}


@pytest.mark.long
def test_an_adapter_that_restarts_takes_whole_bundles_over(
    mesh: Mesh, put: Put, rig: Rig, adapter: AdapterProcess, start_adapter: Callable[..., AdapterProcess]
) -> None:
    """They serve on, and an unload by the new adapter frees every model of theirs."""
    put_bundle(put, "ensemble", "e", 2, 1)
    put_bundle(put, "pipeline", "p", 3, 1)
    mesh.load("e", "ensemble", "e")
    mesh.load("p", "python", "p")
    adapter.kill()

    with Mesh(start_adapter().channel_target, rig.triton_target) as later:
        assert answer(later, "e") == [3.0, 5.0, -5.0]
        later.unload("e")
        assert later.index() == dict.fromkeys(["p", "p~inner~scale", "p~inner~shift"], "READY")
        later.load("p", "python", "p")
        assert answer(later, "p") == [4.0, 7.0, -8.0]
        later.unload("p")
        assert later.index() == {}
    assert rig.leftovers() == []


@pytest.mark.parametrize("kind", BUNDLES)
def test_an_inner_model_that_triton_refuses_is_named(kind: str, mesh: Mesh, put: Put, rig: Rig) -> None:
    """With its own reason; nothing of the bundle is left."""
    broken = dict(affine(1, 1)) | {"1/model.py": b"import a_module_that_is_not_there\n"}
    put_bundle(put, kind, f"broken-{kind}", 2, 1, shift=broken)

    with pytest.raises(grpc.RpcError) as refused:
        mesh.load("broken", kind.replace("pipeline", "python"), f"broken-{kind}")

    assert refused.value.code() is grpc.StatusCode.INTERNAL
    assert "inner model shift: " in refused.value.details()
    assert "a_module_that_is_not_there" in refused.value.details()
    until_nothing_is_left(mesh, rig)
