"""The real parts themselves: what the other tests take for granted."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
from onnx import TensorProto
from tritonclient.grpc import service_pb2

from tests.real import ports
from tests.real.children import TOP, PartError, bare_environment, is_alive
from tests.real.mesh import Mesh
from tests.real.models import digits_classifier, identity_onnx, sleeper, write
from tests.real.polls import until
from tests.real.s3 import S3Server
from tests.real.triton import SHM, Triton

OWNER = """
import os, signal, sys, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a run in the background ignores it
from pathlib import Path
from tests.real.mesh import Mesh
from tests.real.s3 import S3Server
from tests.real.triton import Triton
from tritonclient.grpc import service_pb2
started = []
def start():  # in a thread that ends: the kernel's watch must not end with it
    started.extend([S3Server().start(), Triton(Path(sys.argv[1])).start()])
thread = threading.Thread(target=start)
thread.start()
thread.join()
s3, triton = started
mesh = Mesh("127.0.0.1:1", triton.grpc_target)
mesh.triton.RepositoryModelLoad(service_pb2.RepositoryModelLoadRequest(model_name="m"))
print(s3._started().pid, triton.pid, flush=True)
time.sleep(60)
"""


def wait_until_gone(*pids: int) -> None:
    until(lambda: not any(map(is_alive, pids)), f"the processes {pids} have ended")


def stubs_of(pid: int) -> list[int]:
    """Python stubs that a Triton has started."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=["kill", "terminate", "Ctrl-C"])
def test_parts_end_with_their_owner(tmp_path: Path, number: signal.Signals) -> None:
    """Whatever ends a test run, its servers and Triton's stubs end too."""
    write(sleeper(), tmp_path / "m")
    env = bare_environment() | {"PYTHONPATH": str(TOP)}
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path)], env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as owner:
        assert owner.stdout is not None
        pids = [int(word) for word in owner.stdout.readline().split()]
        stubs = stubs_of(pids[1])
        owner.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            owner.wait(10)
        has_ended = owner.poll() is not None
        owner.kill()

    assert (len(pids), len(stubs), has_ended) == (2, 1, True)
    wait_until_gone(*pids, *stubs)


def test_a_killed_triton_leaves_no_stub_and_no_shared_memory(tmp_path: Path) -> None:
    """Also when somebody else killed it: the next start clears up."""
    write(sleeper(), tmp_path / "m")
    with Triton(tmp_path) as triton, Mesh("127.0.0.1:1", triton.grpc_target) as mesh:
        _load(mesh, "m")
        first, stubs = triton.server_id, stubs_of(triton.pid)
        regions = list(SHM.glob(f"{triton.shm_prefix}*"))
        os.kill(triton.pid, signal.SIGKILL)
        target = triton.grpc_target
        triton.start()

        assert (len(stubs), len(regions)) == (1, 1)
        wait_until_gone(*stubs)
        assert not [region for region in regions if region.exists()]
        assert (triton.grpc_target, triton.server_id != first) == (target, True)


def test_a_lost_port_is_chosen_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the choice of a port and its use somebody may take it; that one's answers are not ours."""
    with Triton(tmp_path / "one") as first:
        taken = [[first.grpc_port, first.http_port, first.metrics_port]]
        choose = ports.free_ports
        monkeypatch.setattr(ports, "free_ports", lambda count: taken.pop() if taken else choose(count))
        with Triton(tmp_path / "two") as second:
            assert taken == []
            assert second.http_port != first.http_port
            assert first.is_live() and second.is_live()


def test_a_start_that_fails_shows_why(tmp_path: Path) -> None:
    with pytest.raises(PartError, match=r"(?s)triton ended with code .*--no-such-option"):
        Triton(tmp_path, extra_args=["--no-such-option"]).start()


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (TensorProto.STRING, np.array([["a", ""], ["é", "日本"]], dtype=np.object_)),
        (TensorProto.BOOL, np.array([[True, False]])),
        (TensorProto.UINT8, np.array([[0, 255]], dtype=np.uint8)),
        (TensorProto.INT64, np.array([[-1, 2**40]], dtype=np.int64)),
        (TensorProto.DOUBLE, np.array([[0.1, -1e300]])),
    ],
    ids=["strings", "booleans", "bytes", "integers", "doubles"],
)
def test_the_onnx_backend_keeps_values(onnx_triton: Triton, kind: int, values: np.ndarray) -> None:
    write({"1/model.onnx": identity_onnx(kind, ["n", 2])}, onnx_triton.repository / "same")
    with Mesh("127.0.0.1:1", onnx_triton.grpc_target) as mesh:
        _load(mesh, "same")
        answer = mesh.triton.ModelInfer(mesh.infer_request("same", {"x": values}))
        assert answer.raw_output_contents[0] == mesh.infer_request("same", {"x": values}).raw_input_contents[0]
        assert list(answer.outputs[0].shape) == list(values.shape)


def test_the_onnx_backend_fills_in_a_config(onnx_triton: Triton) -> None:
    """Inputs and outputs come from the file; with batching, without their first dimension."""
    config = b'backend: "onnxruntime" max_batch_size: 4 instance_group [{ kind: KIND_CPU count: 1 }]'
    write({"1/model.onnx": digits_classifier().onnx_bytes(), "config.pbtxt": config}, onnx_triton.repository / "digits")
    with Mesh("127.0.0.1:1", onnx_triton.grpc_target) as mesh:
        _load(mesh, "digits")
        images = digits_classifier().images[:4]
        filled = mesh.triton.ModelConfig(service_pb2.ModelConfigRequest(name="digits")).config
        answer = mesh.infer("digits", {"image": images})["probabilities"]

    assert [(t.name, list(t.dims)) for t in [*filled.input, *filled.output]] == [("image", [64]), ("probabilities", [10])]
    np.testing.assert_allclose(answer, digits_classifier().predict(images), atol=1e-5)


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"1/model.onnx": b"not ONNX"}, "ONNX Runtime cannot load model.onnx"),
        ({"1/other.onnx": b"", "config.pbtxt": b'backend: "onnxruntime"'}, "there is no ONNX file at 1/model.onnx"),
    ],
    ids=["broken", "missing"],
)
def test_the_onnx_backend_says_what_is_wrong(onnx_triton: Triton, files: dict[str, bytes], words: str) -> None:
    write(files, onnx_triton.repository / f"bad-{len(words)}")
    with Mesh("127.0.0.1:1", onnx_triton.grpc_target) as mesh, pytest.raises(Exception, match=words):
        _load(mesh, f"bad-{len(words)}")


def test_https_needs_the_private_authority() -> None:
    with S3Server(tls=True) as s3:
        assert s3.ca_pem is not None
        with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
            urllib.request.urlopen(s3.endpoint_url, timeout=5)
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(s3.endpoint_url, timeout=5, context=ssl.create_default_context(cadata=s3.ca_pem))
        refused.value.close()
        assert refused.value.code < 500  # it is the unsigned request that is refused


@pytest.fixture(scope="module")
def onnx_triton(tmp_path_factory: pytest.TempPathFactory):
    with Triton(tmp_path_factory.mktemp("repository"), completes=True) as triton:
        yield triton


def _load(mesh: Mesh, name: str) -> None:
    mesh.triton.RepositoryModelUnload(service_pb2.RepositoryModelUnloadRequest(model_name=name))
    mesh.triton.RepositoryModelLoad(service_pb2.RepositoryModelLoadRequest(model_name=name), timeout=60)


def test_a_part_waits_for_its_port() -> None:
    """It is to come back where it was; a program that looks for a free port may have taken that one for a moment."""
    with S3Server() as s3:
        port = urlsplit(s3.endpoint_url).port
        s3.kill()
        with socket.create_server(("127.0.0.1", port or 0)) as taken:
            timer = threading.Timer(0.5, taken.close)
            timer.start()
            s3.start()
            timer.join()
        assert urlsplit(s3.endpoint_url).port == port
