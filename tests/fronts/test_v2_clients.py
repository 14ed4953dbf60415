"""Clients of V2 REST that are not of this repository: KServe's, in a venv of its own, and Triton's asynchronous one."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import numpy as np
import pytest
import tritonclient.http.aio as triton_http
from tritonclient.utils import InferenceServerException

from tests.fronts.echo import echo
from tests.fronts.install import python
from tests.fronts.rig import FrontsPod
from tests.real.parts import or_skip

CLIENT_SECONDS = 100
KSERVE = """
import asyncio, json, sys

import httpx
import numpy as np
from kserve import InferInput, InferRequest, InferenceRESTClient, RESTConfig

BASE = sys.argv[1]
AS_JSON = {"Accept": "application/json"}


async def refused(coroutine):
    try:
        await coroutine
    except httpx.HTTPStatusError as error:
        return [error.response.status_code, str(error)]


async def main():
    async with InferenceRESTClient(RESTConfig(protocol="v2", retries=0, timeout=30)) as client:
        found = {
            "live": await client.is_server_live(BASE, headers=AS_JSON),
            "ready": await client.is_server_ready(BASE, headers=AS_JSON),
            "model": await client.is_model_ready(BASE, "echo"),
            "absent": await client.is_model_ready(BASE, "absent"),
            "lost": await refused(client.infer(BASE, {"inputs": []}, model_name="absent")),
        }
        for kind, is_binary in (("FP32", False), ("FP32", True), ("INT64", False), ("FP16", True), ("BOOL", False), ("BYTES", False)):
            number = {"FP32": np.float32, "INT64": np.int64, "FP16": np.float16, "BOOL": np.bool_, "BYTES": np.object_}[kind]
            values = np.array([["a", "b"]] if kind == "BYTES" else [[1, 0]], number)
            given = InferInput("X_" + kind, [1, 2], kind)
            given.set_data_from_numpy(values, binary_data=is_binary)
            answer = await client.infer(BASE, InferRequest(model_name="echo", infer_inputs=[given], request_id="r"), model_name="echo")
            (output,) = answer.outputs
            same = output.as_numpy().astype(str).tolist() == values.astype(str).tolist()
            found[f"{kind} {is_binary}"] = [answer.id, answer.model_name, output.name, same]
    print(json.dumps(found))


asyncio.run(main())
"""


@pytest.fixture
def base(shared_pod: FrontsPod) -> str:
    shared_pod.keep({"echo": echo})
    return f"127.0.0.1:{shared_pod.v2.port}"


def test_kserves_client_asks_health_and_infers(base: str) -> None:
    """It reads health as JSON, so its caller names JSON in Accept."""
    interpreter = or_skip(lambda: python("kserve"))
    done = subprocess.run(
        [interpreter, "-c", KSERVE, f"http://{base}"], capture_output=True, text=True, timeout=CLIENT_SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert [found.pop(word) for word in ("live", "ready", "model", "absent")] == [True, True, True, False]
    status, words = found.pop("lost")
    assert (status, "unknown model: 'absent'" in words) == (404, True)
    for kind, answer in found.items():
        assert answer == ["r", "echo", f"Y_{kind.split()[0]}", True], kind
    assert len(found) == 6


@pytest.mark.parametrize("is_binary", [True, False])
async def test_tritons_asynchronous_client(base: str, is_binary: bool) -> None:
    async with triton_http.InferenceServerClient(base) as client:
        assert await client.is_server_live()
        assert await client.is_server_ready()
        assert await client.is_model_ready("echo", "1")
        assert not await client.is_model_ready("absent")
        assert (await client.get_server_metadata())["extensions"]
        assert (await client.get_model_config("echo"))["backend"] == "python"
        assert (await client.get_inference_statistics("echo"))["model_stats"][0]["name"] == "echo"
        number = np.array([[0.1, np.nan], [np.inf, -1]], np.float32)
        texts = np.array([["é", ""], ["b", "c"]], np.object_)
        given = []
        for name, kind, values in (("X_FP32", "FP32", number), ("X_BYTES", "BYTES", texts)):
            given.append(triton_http.InferInput(name, values.shape, kind))
            given[-1].set_data_from_numpy(values, binary_data=is_binary)
        wanted = [triton_http.InferRequestedOutput(name, binary_data=is_binary) for name in ("Y_FP32", "Y_BYTES")]
        answer = await client.infer(
            "echo", given, outputs=wanted, request_compression_algorithm="deflate", response_compression_algorithm="gzip"
        )
        assert np.array_equal(answer.as_numpy("Y_FP32"), number, equal_nan=True)
        found = [text.decode() if isinstance(text, bytes) else text for text in answer.as_numpy("Y_BYTES").ravel()]
        assert found == texts.ravel().tolist()
        with pytest.raises(InferenceServerException, match=r"unexpected shape.*X_FP32") as refused:
            given[0].set_shape([4])
            await client.infer("echo", given[:1])
        assert refused.value.status() == "400"
