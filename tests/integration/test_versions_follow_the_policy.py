"""Versions as users have them in their buckets, on the real Triton."""

from __future__ import annotations

from collections.abc import Callable

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2 as v2

from tests.integration.conftest import Pod, Put, Rig
from tests.real.mesh import Mesh
from tests.real.models import affine
from tests.real.polls import until

X = np.array([1.0, 2.0], dtype=np.float32)
FACTORS = {"1": 1, "3": 3, "10": 10}


def versions(policy: str) -> dict[str, bytes]:
    """A native repository in which each version multiplies by its own number."""
    files = dict(affine(1, 0))
    files["config.pbtxt"] += policy.encode()
    source = files["1/model.py"]
    for version, factor in FACTORS.items():
        files[f"{version}/model.py"] = source.replace(b"* self.factor", b"* %d" % factor)
    return files


@pytest.mark.parametrize(
    ("policy", "served"),
    [
        ("", {"10"}),
        ("version_policy { latest { num_versions: 2 } }", {"10", "3"}),
        ("version_policy { all { } }", {"10", "3", "1"}),
        ("version_policy { specific { versions: [ 1, 7 ] } }", {"1"}),
    ],
)
def test_a_policy_s_versions_are_pulled_and_served_and_no_others(policy: str, served: set[str], mesh: Mesh, put: Put, rig: Rig) -> None:
    """On disk is what Triton has loaded; without a version in the request the highest answers."""
    put(f"policy-{len(policy)}", versions(policy))
    mesh.load("m", "python", f"policy-{len(policy)}")

    rows = mesh.triton.RepositoryIndex(v2.RepositoryIndexRequest(), timeout=10).models
    assert {row.version for row in rows if row.state == "READY"} == served
    assert {path.name for path in (rig.repository / "m").iterdir()} == {"config.pbtxt", *served}
    assert not {path.parent.name for path in rig.volume.rglob("model.py")} - served
    highest = max(FACTORS[version] for version in served)
    assert mesh.infer("m", {"X": X})["Y"].tolist() == [highest * 1.0, highest * 2.0]


def test_one_version_that_fails_fails_the_model(start_pod: Callable[..., Pod], put: Put) -> None:
    """
    All or nothing: the others are unloaded, and the text says which it was.

    Triton 2.51 dies of that in one of ten tries (`adapter/triton/README.md`): then, too, nothing is left.
    """
    put("one-bad", versions("version_policy { all { } }") | {"3/model.py": b"import no_such_module\n"})
    pod = start_pod({"LOADTIME_TIMEOUT": "90000"})
    pod.mesh.start()

    with pytest.raises(grpc.RpcError) as refused:
        pod.mesh.load("m", "python", "one-bad")

    told = {grpc.StatusCode.INTERNAL: "no_such_module", grpc.StatusCode.UNAVAILABLE: "Triton died while it was loading the model"}
    assert told[refused.value.code()] in refused.value.details()
    until(lambda: is_clean(pod), "nothing is left in Triton's index and on the volume")


def is_clean(pod: Pod) -> bool:
    """Whether nothing is left of any model; a Triton that has died is started again, as Kubernetes would."""
    if not pod.triton.is_running:
        pod.triton.start()
    try:
        return pod.mesh.index() == {} and Rig(pod.triton.grpc_target, pod.triton.repository.parent).leftovers() == []
    except grpc.RpcError:  # it dies just now
        return False
