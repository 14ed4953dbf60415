"""What is told of models, beside what Triton's own HTTP port tells."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping
from typing import Any

import grpc
import pytest

from adapter.inference import InferenceFailed
from adapter.serving import KnownModel
from adapter.triton.inference.client import TritonInference
from adapter.triton.inference.messages import json_of
from tests.contract.inference.conftest import MODELS
from tests.fakes.v2_server import V2Server
from tests.real.triton import Triton


def _of_http(triton: Triton, path: str) -> Any:
    with urllib.request.urlopen(f"http://127.0.0.1:{triton.http_port}{path}", timeout=30) as answer:
        return json.load(answer)


@pytest.mark.real_triton
@pytest.mark.parametrize("model", MODELS)
async def test_the_config_is_tritons(inference: TritonInference, triton: Triton, model: str) -> None:
    assert json.loads(json.dumps(json_of(await inference.model_config(model)))) == _of_http(triton, f"/v2/models/{model}/config")


async def test_no_failure_is_kept(server: V2Server, asked: TritonInference) -> None:
    server.failure = (grpc.StatusCode.NOT_FOUND, "Request for unknown model: 'm' is not found")
    with pytest.raises(InferenceFailed):
        await asked.model_info(KnownModel("m", "m", placed="1"))
    server.failure = None
    assert (await asked.model_info(KnownModel("m", "m", placed="1"))).metadata.name == "m"


def test_the_kinds_of_models_are_many() -> None:
    """So that the comparison of configs compares something."""
    configs: Mapping[str, bytes] = {name: files["config.pbtxt"] for name, files in MODELS.items()}
    assert all(any(word in text for text in configs.values()) for word in (b"dynamic_batching", b"sequence_batching", b"decoupled: true"))
