"""A real Triton with imitations of language models and ordinary models, for the whole run; a client of ours for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from adapter.triton.inference.client import TritonInference
from tests.fakes.v2_server import V2Server
from tests.real import install, llm_models, models, parts
from tests.real.triton import Triton

RICH = b"""backend: "python"
max_batch_size: 4
input [ { name: "X" data_type: TYPE_FP32 dims: [ -1 ] reshape { shape: [ -1 ] } } ]
output [ { name: "Y" data_type: TYPE_FP32 dims: [ -1 ] } ]
parameters { key: "factor" value { string_value: "2" } } parameters { key: "summand" value { string_value: "1" } }
instance_group [ { kind: KIND_CPU count: 1 } ]
version_policy { specific { versions: [ 1, 2 ] } }
optimization { priority: PRIORITY_MAX gather_kernel_buffer_threshold: 7 eager_batching: true }
model_warmup { name: "w" batch_size: 1 count: 2 inputs { key: "X" value { data_type: TYPE_FP32 dims: [ 4 ] zero_data: true } } }
"""
DYNAMIC = b"""dynamic_batching { preferred_batch_size: [ 2, 4 ] max_queue_delay_microseconds: 100
  priority_levels: 3 default_priority_level: 2
  default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 5000000 max_queue_size: 9 }
  priority_queue_policy { key: 1 value { max_queue_size: 3 default_timeout_microseconds: 7 } } }
"""
SEQUENCE = b"""sequence_batching { direct { max_queue_delay_microseconds: 11 minimum_slot_utilization: 0.1 }
  control_input [ { name: "START" control [ { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1 ] } ] } ]
  state [ { input_name: "I" output_name: "O" data_type: TYPE_INT32 dims: [ 1 ]
    initial_state: { data_type: TYPE_INT32 dims: [ 1 ] zero_data: true name: "z" } } ] }
"""
QUEUE_OF_ONE = b"dynamic_batching { max_queue_delay_microseconds: 1 default_queue_policy { max_queue_size: 1 } }\n"


def _rich(more: bytes) -> models.Files:
    files = models.affine(2, 1)
    return {**files, "2/model.py": files["1/model.py"], "config.pbtxt": RICH + more}


def _narrow() -> models.Files:
    files = dict(llm_models.waiter())
    files["config.pbtxt"] = files["config.pbtxt"].replace(b"max_batch_size: 0", b"max_batch_size: 1") + QUEUE_OF_ONE
    return files


MODELS = {
    "vllm": llm_models.vllm(),
    "vllm_slow": llm_models.vllm(delay_seconds=0.05),
    "vllm_failing": llm_models.vllm(fail_at=2),
    "trtllm": llm_models.trtllm(),
    "trtllm_plain": llm_models.trtllm(is_decoupled=False),
    "llm_api": llm_models.llm_api(),
    "mock_llm": llm_models.mock_llm(),
    "repeat": llm_models.repeat(),
    "waiter": llm_models.waiter(),
    "narrow": _narrow(),
    "dynamic": _rich(DYNAMIC),
    "sequence": _rich(SEQUENCE),
}


@pytest.fixture(scope="session")
def triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Triton]:
    """All of `MODELS` are loaded."""
    repository = tmp_path_factory.mktemp("inference") / "models"
    for name, files in MODELS.items():
        models.write(files, repository / name)
    parts.or_skip(install.install)
    with Triton(repository, extra_args=[f"--load-model={name}" for name in MODELS]) as running:
        yield running


@pytest.fixture
async def inference(triton: Triton) -> AsyncIterator[TritonInference]:
    """On the real Triton."""
    client = TritonInference(triton.grpc_target)
    yield client
    await client.close()


@pytest.fixture
async def server() -> AsyncIterator[V2Server]:
    """One that says what it is told to."""
    async with V2Server() as running:
        yield running


@pytest.fixture
async def asked(server: V2Server) -> AsyncIterator[TritonInference]:
    """A client of `server`, as ModelMesh would be asked."""
    client = TritonInference(server.target, [("mm-key", "a-secret-value")])
    yield client
    await client.close()
