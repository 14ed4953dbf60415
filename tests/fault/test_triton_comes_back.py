"""
Triton dies, hangs and comes back empty: what ModelMesh believes loaded answers inference again, by itself.

Each test adds rows of models to a table that is printed at the end.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from adapter._pb import model_runtime_pb2 as spi
from adapter.memory.watch import NOT_TOLD
from tests.builders import load_request
from tests.fault.pod import FaultPod
from tests.real.models import affine, sleeper
from tests.real.polls import until
from tests.real.s3 import S3Server

pytestmark = [pytest.mark.real_triton, pytest.mark.timeout(300)]

Code = grpc.StatusCode
Start = Callable[..., FaultPod]
TITLE = "Triton dies: models (scripts/test tests/fault/test_triton_comes_back.py)"


@pytest.fixture
def start(tmp_path: Path, config_for_pods: Path, s3: S3Server, shown: Callable[..., None]) -> Iterator[Start]:
    """Start a pod, with settings as keywords."""
    with ExitStack() as stack:

        def begin(*, name: str | None = None, **env: str) -> FaultPod:
            made = FaultPod(tmp_path / "volume", config_for_pods, s3, partial(shown, TITLE), name=name, **env)
            pod = stack.enter_context(made)
            pod.mesh.start()
            return pod

        yield begin


def all_are_back(pod: FaultPod, fault: str, *, since: float | None = None, note: str = "") -> None:
    """Every loaded model answers, without a call from ModelMesh and without a byte pulled; one row."""
    pulled = pod.metric("pulled_bytes_total")
    found = pod.serving()
    seconds = "" if since is None else f"all answer {time.monotonic() - since:.2f} s after Triton is live"
    pod.row(fault, len(pod.loaded), len(found), "; ".join(filter(None, (seconds, note))))
    assert found == set(pod.loaded)
    assert pod.metric("pulled_bytes_total") == pulled


def until_settled(pod: FaultPod) -> None:
    """The adapter has nothing left to restore, and says so."""
    until(lambda: pod.ready() == (200, f"ready; {NOT_TOLD}\n"), f"/readyz is plainly ready: {pod.ready()}")


def failure(call: Any) -> tuple[grpc.StatusCode, str]:
    """How a call under way fails."""
    with pytest.raises(grpc.RpcError):
        call.result(60)
    return call.code(), call.details()


@pytest.mark.parametrize("away_seconds", [0, pytest.param(3, marks=pytest.mark.long)])
def test_ten_models_come_back_after_a_kill(start: Start, away_seconds: float) -> None:
    """Noticed without any call; `runtimeStatus`, loads and unloads have no part in it."""
    pod = start()
    pod.load_many(10)
    pod.triton.kill()
    noticed = pod.until_missed()
    time.sleep(away_seconds)
    pod.triton.start()

    note = f"noticed after {noticed:.2f} s; a load takes {statistics.median(pod.load_seconds):.2f} s"
    all_are_back(pod, f"killed idle, back after {away_seconds:g} s", since=time.monotonic(), note=note)

    until_settled(pod)
    until(lambda: pod.metric("restores_total", outcome="restored") == 10, "ten restores are counted")
    assert pod.metric("triton_restarts_total") == 1
    loads = pod.loads_of_triton()
    pod.mesh.load("m0", "python", "adds0")
    assert pod.loads_of_triton() == loads, "an equal load of a restored model is a look"


def test_triton_dies_in_a_load(start: Start) -> None:
    """That load belongs to ModelMesh: it ends with words, and nothing sends it again without a new call."""
    pod = start()
    pod.load_many(3)
    pod.put("slow", dict(sleeper(start_seconds=10)))
    load = pod.mesh.start_load("slow", "python", "slow")
    pod.triton.kill()

    code, text = failure(load)
    assert (code, "Triton died while it was loading the model" in text) == (Code.UNAVAILABLE, True)
    pod.triton.start()
    all_are_back(pod, "killed in a load (the others)", since=time.monotonic())
    until_settled(pod)
    assert pod.states().get("slow", "") == ""
    pod.put("slow", dict(sleeper()))
    pod.mesh.load("slow", "python", "slow")
    pod.row("killed in a load (that model, by a new call)", 1, 1)


@pytest.mark.long
def test_triton_dies_in_an_unload(start: Start) -> None:
    """The unload ends, for the memory is free; the model does not come back."""
    pod = start()
    pod.load_many(3)
    with serving_long(pod) as inference:
        unload = pod.mesh.runtime.unloadModel.future(spi.UnloadModelRequest(modelId="busy"))
        until(lambda: pod.states().get("busy") == "UNLOADING", "Triton unloads")
        pod.triton.kill()
        assert inference.exception(60) is not None
        pod.triton.start()
        unload.result(60)

    all_are_back(pod, "killed in an unload (the others)", since=time.monotonic())
    until_settled(pod)
    pod.row("killed in an unload (the unload ends)", 1, 1)
    assert set(pod.states()) == set(pod.loaded)


@pytest.mark.long
def test_triton_dies_in_a_purge(start: Start) -> None:
    """ModelMesh begins anew: the purge ends, and nothing of before is loaded again."""
    pod = start()
    pod.load_many(3)
    with serving_long(pod) as inference:
        assert pod.mesh.status().status == spi.RuntimeStatusResponse.STARTING
        until(lambda: pod.states().get("busy") == "UNLOADING", "Triton unloads")
        pod.triton.kill()
        assert inference.exception(60) is not None
        pod.triton.start()
        pod.mesh.start()

    assert pod.states() == {}
    assert pod.metric("restore_pending") == 0
    pod.row("killed in a purge (the purge ends, nothing is left)", 1, 1)
    pod.loaded.clear()
    pod.load_many(2)
    assert pod.serving() == set(pod.loaded)


def test_calls_while_triton_is_down_wait_and_succeed(start: Start) -> None:
    """Within their budget: a failure would brand the model for minutes."""
    pod = start()
    pod.load_many(4)
    pod.put("new", dict(affine(1, 100)))
    pod.triton.kill()
    new = pod.mesh.runtime.loadModel.future(load_request("new", "python", "new"))
    equal = pod.mesh.runtime.loadModel.future(load_request("m1", "python", "adds1"))
    unload = pod.mesh.runtime.unloadModel.future(spi.UnloadModelRequest(modelId="m2"))
    calls = [new, equal, unload]
    pod.until_missed()
    assert not any(call.done() for call in calls)
    pod.triton.start()

    for call in calls:
        call.result(60)
    pod.row("calls while Triton is down (load, equal load, unload)", len(calls), len(calls))
    del pod.loaded["m2"]
    pod.loaded["new"] = 100
    all_are_back(pod, "killed with calls waiting")
    until_settled(pod)
    assert "m2" not in pod.states()


@pytest.mark.long
def test_a_triton_that_stood_still_has_lost_nothing(start: Start) -> None:
    """SIGSTOP for 20 s: noticed, waited for, and not a single model is loaded again."""
    pod = start()
    pod.load_many(10)
    loads = pod.loads_of_triton()
    pod.triton.freeze()
    noticed = pod.until_missed()
    time.sleep(max(0.0, 20 - noticed))
    began = time.monotonic()
    pod.triton.thaw()

    until(lambda: pod.ready() == (200, f"ready; {NOT_TOLD}\n"), "/readyz is green")
    noticed_return = time.monotonic() - began
    all_are_back(pod, "SIGSTOP for 20 s", note=f"noticed after {noticed:.2f} s, the return after {noticed_return:.2f} s")
    assert pod.loads_of_triton() == loads
    assert pod.metric("restores_total") == pod.metric("triton_restarts_total") == 0


@pytest.mark.long
@pytest.mark.parametrize("first", ["triton", "adapter"])
def test_both_containers_die(start: Start, first: str) -> None:
    """What was loaded is in the journal; whichever of the two comes first."""
    pod = start()
    pod.load_many(5)
    pod.adapter.kill()
    pod.triton.kill()
    starts = [pod.triton.start, pod.adapter.start]
    for begin in starts if first == "triton" else reversed(starts):
        begin()

    all_are_back(pod, f"both containers killed, {first} back first", since=time.monotonic())
    until_settled(pod)
    loads = pod.loads_of_triton()
    pod.mesh.runtime.loadModel(load_request("m0", "python", "adds0"), timeout=60, wait_for_ready=True)
    assert pod.loads_of_triton() == loads
    assert pod.metric("pulled_bytes_total") == 0


@contextmanager
def serving_long(pod: FaultPod) -> Iterator[Any]:
    """While inside, the model `busy` works on an inference that does not end before Triton does."""
    pod.put("busy", dict(sleeper()))
    pod.mesh.load("busy", "python", "busy")
    request = pod.mesh.infer_request("busy", {"SECONDS": np.array([100], np.float32)})
    call = pod.mesh.triton.ModelInfer.future(request, timeout=200)
    until(lambda: list(pod.repository.glob("busy/1/busy")), "the inference has begun")
    yield call
    call.cancel()
