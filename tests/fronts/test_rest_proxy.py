"""In the place of KServe's REST proxy: a process of its own beside ModelMesh, by the proxy's own variables."""

from __future__ import annotations

import asyncio
import http.client
import json
import signal
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.v2_server import V2Server
from tests.fronts.rig import FrontsPod, Http, infer_body
from tests.real.adapter import AdapterProcess
from tests.real.certificates import make_certificates
from tests.real.polls import until
from tests.real.ports import free_ports

ABSENT = ("ADAPTER_PORT", "METRICS_PORT", "ROOT_MODEL_DIR", "STORAGE_CONFIG_DIR", "RUNTIME_ENDPOINT", "CONTAINER_MEM_REQ_BYTES")
INFER = "/v2/models/isvc-1/infer"
FP32 = {"name": "y", "datatype": "FP32", "shape": [1]}


def a_proxy(folder: Path, env: dict[str, str]) -> AdapterProcess:
    """As ModelMesh Serving's controller writes the container: its variables alone."""
    return AdapterProcess(volume=folder, storage_config=folder, triton_target="", env={**dict.fromkeys(ABSENT, ""), **env}, wait=False)


@contextmanager
def a_modelmesh(**options: Any) -> Iterator[V2Server]:
    """In a thread with a loop of its own; what a test sets is read at the next call."""
    made: list[V2Server] = []
    loop = asyncio.new_event_loop()

    async def start() -> None:
        made.append(V2Server(**options))
        await made[0].__aenter__()

    loop.run_until_complete(start())
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield made[0]
    finally:
        asyncio.run_coroutine_threadsafe(made[0].stop(), loop).result(20)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def is_up(proxy: AdapterProcess, ask: Callable[[], Any]) -> None:
    """Wait for the first answer."""

    def first() -> bool | None:
        assert proxy.returncode is None, proxy.log_text()
        try:
            return ask() is not None
        except OSError:
            return None

    until(first, "the proxy", 30)


def variables(mesh: V2Server, port: int, **more: str) -> dict[str, str]:
    return {
        "REST_PROXY_LISTEN_PORT": str(port),
        "REST_PROXY_GRPC_PORT": str(mesh.port),
        "REST_PROXY_USE_TLS": "false",
        "REST_PROXY_GRPC_MAX_MSG_SIZE_BYTES": "16777216",
        "REST_PROXY_SKIP_VERIFY": "false",
        **more,
    }


def answer_of(mesh: V2Server, *data: bytes) -> None:
    mesh.reply.model_name = "isvc-1__concrete"
    for part in data:
        mesh.reply.outputs.add(**FP32)
        mesh.reply.raw_output_contents.append(part)


def test_the_proxys_own_variables_are_enough(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with a_modelmesh() as mesh, a_proxy(tmp_path, variables(mesh, port)) as proxy:
        mesh.has_configs = False  # a runtime that is no Triton
        answer_of(mesh, b"\0\0\x80\x3f")
        ask = Http(port)
        is_up(proxy, lambda: ask("GET", "/v2/health/live"))
        assert ask("GET", "/v2/health/ready").status == 200
        answer = ask("POST", INFER, {"id": "7", **infer_body(2)})
        assert (answer.status, answer.json["model_name"], answer.json["outputs"][0]["data"]) == (200, "isvc-1", [1.0])
        assert (mesh.requests[-1].model_name, mesh.requests[-1].id) == ("isvc-1", "7")
        assert mesh.metadata[-1]["mm-vmodel-id"] == "isvc-1"
        assert ask("GET", "/v2/models/isvc-1").json["versions"] == ["1"]
        assert ask("GET", "/v2/models/isvc-1/ready").status == 200
        assert ask("GET", "/v2").json["name"] == "modelmesh"
        assert list(ask("GET", "/v2/models/isvc-1/config").json) == ["error"]
        for size, status in ((16_000_000, 200), (17_000_000, 400)):
            body = b'{"inputs":[{"name":"X","shape":[1],"datatype":"BYTES","data":["' + b"x" * size + b'"]}]}'
            assert ask("POST", INFER, body).status == status
        assert not list(tmp_path.iterdir()), "the proxy has no use for a folder"
        proxy.signal(signal.SIGTERM)
        assert proxy.wait(20) == 0


def test_what_json_has_no_number_for_is_written_as_triton_does(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with a_modelmesh() as mesh, a_proxy(tmp_path, variables(mesh, port)) as proxy:
        answer_of(mesh, b"\0\0\xc0\x7f")
        is_up(proxy, lambda: Http(port)("GET", "/v2/health/live"))
        answer = Http(port)("POST", INFER, infer_body(1))
        assert (answer.status, b"[NaN]" in answer.body) == (200, True)


def test_the_endpoint_of_v2_wins_over_the_port_of_modelmesh(tmp_path: Path) -> None:
    port, nothing = free_ports(2)
    places = {"REST_PROXY_GRPC_PORT": str(nothing)}
    with a_modelmesh() as mesh, a_proxy(tmp_path, variables(mesh, port, **places, V2_REST_ENDPOINT=f"port:{mesh.port}")) as proxy:
        answer_of(mesh, b"\0\0\x80\x3f")
        is_up(proxy, lambda: Http(port)("GET", "/v2/health/live"))
        assert Http(port)("POST", INFER, infer_body(1)).status == 200


def test_an_answer_that_cannot_be_is_the_servers_fault(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with a_modelmesh() as mesh, a_proxy(tmp_path, variables(mesh, port)) as proxy:
        answer_of(mesh, b"abc")
        is_up(proxy, lambda: Http(port)("GET", "/v2/health/live"))
        answer = Http(port)("POST", INFER, infer_body(1))
        assert (answer.status, answer.json) == (500, {"error": "output 'y': the model's answer ends in the middle of an element of FP32"})
        assert "Traceback" not in proxy.log_text()


def test_without_modelmesh_the_port_answers_and_says_503(tmp_path: Path) -> None:
    port, gone = free_ports(2)
    with a_proxy(tmp_path, {"REST_PROXY_LISTEN_PORT": str(port), "REST_PROXY_GRPC_PORT": str(gone)}) as proxy:
        ask = Http(port)
        is_up(proxy, lambda: ask("GET", "/v2/health/live"))
        for path in ("/v2/health/live", "/v2/health/ready", "/v2/models/m"):
            assert ask("GET", path).status == 503
        failed = ask("POST", INFER, infer_body(1))
        assert (failed.status, list(failed.json)) == (503, ["error"])


def test_v2s_own_port_wins(tmp_path: Path) -> None:
    port, other = free_ports(2)
    with a_modelmesh() as mesh, a_proxy(tmp_path, variables(mesh, port, V2_REST_PORT=str(other))) as proxy:
        is_up(proxy, lambda: Http(other)("GET", "/v2/health/live"))
        with pytest.raises(OSError, match="refused"):
            Http(port)("GET", "/v2/health/live")


def test_tls_on_both_sides_with_the_pods_certificate(tmp_path: Path) -> None:
    """The certificate is what ModelMesh shows, whatever its signer and its name are."""
    made = make_certificates(tmp_path)
    (port,) = free_ports(1)
    files = {"MM_TLS_KEY_CERT_PATH": str(tmp_path / "server.pem"), "MM_TLS_PRIVATE_KEY_PATH": str(tmp_path / "server.key")}
    with a_modelmesh(certificates=tmp_path) as mesh:
        env = {**variables(mesh, port), "REST_PROXY_USE_TLS": "true", **files}
        with a_proxy(tmp_path, env) as proxy:
            context = ssl.create_default_context(cadata=made.ca_pem)

            def ask(method: str, path: str, body: Any = None) -> tuple[int, bytes]:
                connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=20, context=context)
                try:
                    connection.request(method, path, body)
                    answer = connection.getresponse()
                    return answer.status, answer.read()
                finally:
                    connection.close()

            is_up(proxy, lambda: ask("GET", "/v2/health/live"))
            assert ask("POST", INFER, json.dumps(infer_body(1)))[0] == 200
            assert ask("GET", "/v2/health/ready")[0] == 200


@pytest.mark.parametrize(
    ("env", "code", "words"),
    [
        ({"REST_PROXY_USE_TLS": "true"}, 2, "MM_TLS_KEY_CERT_PATH and MM_TLS_PRIVATE_KEY_PATH are not both set"),
        ({"REST_PROXY_GRPC_PORT": "x"}, 2, "REST_PROXY_GRPC_PORT"),
        ({"MM_TLS_KEY_CERT_PATH": "/absent", "MM_TLS_PRIVATE_KEY_PATH": "/absent", "REST_PROXY_USE_TLS": "true"}, 1, "no such file"),
    ],
)
def test_what_cannot_work_ends_the_start_in_words(tmp_path: Path, env: dict[str, str], code: int, words: str) -> None:
    (port,) = free_ports(1)
    with a_proxy(tmp_path, {"REST_PROXY_LISTEN_PORT": str(port), **env}) as proxy:
        assert proxy.wait(30) == code
        assert words in proxy.log_text()
        assert "Traceback" not in proxy.log_text()


def test_an_adapter_with_the_proxys_port_has_both(tmp_path: Path) -> None:
    """Loads go to the pod's Triton, V2 to ModelMesh."""
    (port,) = free_ports(1)
    with a_modelmesh() as mesh, FrontsPod(tmp_path, {**variables(mesh, port), "V2_REST_PORT": ""}) as pod:
        assert pod.load("m").status == 200
        assert pod.invoke("m").json["outputs"][0]["data"] == [7.0]
        ask = Http(port)
        assert ask("POST", INFER, infer_body(1)).status == 200
        assert mesh.metadata[-1]["mm-vmodel-id"] == "isvc-1"
        assert ask("GET", "/v2").json["name"].startswith("triton")
