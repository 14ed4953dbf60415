"""A purge of a model whose files came with its request, on the real Triton."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

import pytest

from tests.fronts.rig import FrontsPod
from tests.real.mesh import Mesh
from tests.real.models import affine
from tests.real.ports import free_ports

CONFIG = {
    "backend": "python",
    "input": [{"name": "X", "data_type": "TYPE_FP32", "dims": [-1]}],
    "output": [{"name": "Y", "data_type": "TYPE_FP32", "dims": [-1]}],
    "instance_group": [{"kind": "KIND_CPU", "count": 1}],
    "parameters": {"factor": {"string_value": "2"}, "summand": {"string_value": "1"}},
}


@pytest.fixture(scope="module")
def pod(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FrontsPod]:
    """With a model whose files came with its request."""
    with FrontsPod(tmp_path_factory.mktemp("pod"), {"V2_REPOSITORY_API": "true", "ADAPTER_PORT": str(free_ports(1)[0])}) as pod:
        file = base64.b64encode(affine(2, 1)["1/model.py"]).decode()
        parameters = {"config": json.dumps(CONFIG), "file:1/model.py": file}
        answer = pod.v2("POST", "/v2/repository/models/given/load", {"parameters": parameters})
        assert answer.status == 200, answer.body
        yield pod


def test_a_purge_leaves_no_directory_of_a_model_whose_files_came_with_its_request(pod: FrontsPod) -> None:
    with Mesh(pod.adapter.channel_target, pod.triton.grpc_target) as mesh:
        mesh.start()

    listed = pod.v2("POST", "/v2/repository/index").json
    assert (listed, list(pod.repository.iterdir())) == ([], [])
