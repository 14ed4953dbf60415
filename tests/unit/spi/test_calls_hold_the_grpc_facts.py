"""What the caller is answered whatever leaves a call, and what is counted and logged of it."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import grpc
import pytest
from grpc import aio
from structlog.testing import capture_logs

from adapter._pb import model_runtime_pb2 as pb
from adapter.errors import Abandoned, AdapterError, ModelRefused, SourceDenied, UnloadUnfinished, WrongServer
from adapter.model import ModelSpec
from adapter.spi import codec
from adapter.telemetry.logs import note
from adapter.telemetry.metrics import REGISTRY
from tests.fakes.lifecycle import FakeLifecycle
from tests.unit.spi.serving import ScriptedLifecycle, serving

Logs = list[dict[str, Any]]


@pytest.fixture
def logs() -> Iterator[Logs]:
    with capture_logs() as lines:
        yield lines


def line_of(logs: Logs) -> dict[str, Any]:
    """The one canonical line."""
    (line,) = [line for line in logs if line["event"] == "rpc"]
    return line


async def answer_of(load: Callable[[ModelSpec], Awaitable[Any]], timeout_seconds: float = 10) -> tuple[grpc.StatusCode, str]:
    async with serving(ScriptedLifecycle(load)) as runtime:
        with pytest.raises(aio.AioRpcError) as caught:
            await runtime.loadModel(pb.LoadModelRequest(modelId="m1"), timeout=timeout_seconds)
    return caught.value.code(), caught.value.details() or ""


async def test_cancelled_child_is_answered_at_once_as_aborted(logs: Logs) -> None:
    """An unload that cancels the load's task must not leave the load's caller without an answer."""

    async def load(_: ModelSpec) -> None:
        child = asyncio.create_task(asyncio.Event().wait())
        asyncio.get_running_loop().call_soon(child.cancel)
        await child

    code, text = await answer_of(load)

    assert code is grpc.StatusCode.ABORTED
    assert text == "a later call for the same model overtook this one (model 'm1')"
    assert line_of(logs)["reason"] == "superseded"


async def test_cancel_by_the_peer_goes_on_into_the_call(logs: Logs) -> None:
    """The lifecycle sees the CancelledError and undoes; the line says who it was."""
    started, cancelled = asyncio.Event(), asyncio.Event()

    async def load(_: ModelSpec) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async with serving(ScriptedLifecycle(load)) as runtime:
        call = runtime.loadModel(pb.LoadModelRequest(modelId="m1"))
        await started.wait()
        call.cancel()
        await cancelled.wait()

    assert line_of(logs) == {
        "event": "rpc", "log_level": "info", "method": "loadModel", "model_id": "m1",
        "code": "CANCELLED", "reason": "cancelled", "seconds": line_of(logs)["seconds"],
    }  # fmt: skip


async def test_failure_after_the_peer_has_gone_disturbs_no_other_call(logs: Logs) -> None:
    """What is left of the call ends with an error of ours, which is not sent."""
    started, ended = asyncio.Event(), asyncio.Event()

    async def load(_: ModelSpec) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise Abandoned("its last caller has gone") from None
        finally:
            ended.set()

    async with serving(ScriptedLifecycle(load)) as runtime:
        call = runtime.loadModel(pb.LoadModelRequest(modelId="m1"))
        await started.wait()
        call.cancel()
        await ended.wait()
        assert await runtime.unloadModel(pb.UnloadModelRequest(modelId="m1"), timeout=5) == pb.UnloadModelResponse()

    assert {line["code"] for line in logs if line["event"] == "rpc"} == {"ABORTED", "OK"}


async def test_text_of_an_unforeseen_exception_stays_inside(logs: Logs) -> None:
    """The peer hears a fixed text; the log has the traceback."""

    async def load(_: ModelSpec) -> None:
        raise ValueError("hunter2")

    code, text = await answer_of(load)

    assert code is grpc.StatusCode.INTERNAL
    assert text == "internal error of the adapter; its log has the details (model 'm1')"
    assert line_of(logs)["log_level"] == "error"
    assert isinstance(line_of(logs)["exc_info"], ValueError)


@pytest.mark.parametrize(
    ("error", "code", "level"),
    [
        (SourceDenied("403"), grpc.StatusCode.PERMISSION_DENIED, "warning"),
        (ModelRefused("no backend"), grpc.StatusCode.INTERNAL, "warning"),
        (WrongServer("not explicit"), grpc.StatusCode.FAILED_PRECONDITION, "error"),
        (UnloadUnfinished("still there"), grpc.StatusCode.UNAVAILABLE, "error"),
    ],
)
async def test_failure_has_its_code_and_its_level(error: AdapterError, code: grpc.StatusCode, level: str, logs: Logs) -> None:
    """A user's bad model is a warning; an error is for operators."""

    async def load(_: ModelSpec) -> None:
        raise error

    assert await answer_of(load) == (code, f"{error.text} (model 'm1')")
    assert line_of(logs)["log_level"] == level
    assert line_of(logs)["error"] == f"{error.text} (model 'm1')"


async def test_line_has_what_was_noted_inside(logs: Logs) -> None:
    """Also by a task that the call has started; a note outside of a call is lost without harm."""

    async def work() -> None:
        note(phases={"pull": 1.5})

    async def load(_: ModelSpec) -> None:
        note(bytes=12)
        await asyncio.create_task(work())

    note(outside="lost")
    async with serving(ScriptedLifecycle(load)) as runtime:
        await runtime.loadModel(pb.LoadModelRequest(modelId="m1"), timeout=10)

    line = line_of(logs)
    assert line.pop("seconds") >= 0
    assert line == {
        "event": "rpc", "log_level": "info", "method": "loadModel", "model_id": "m1", "code": "OK",
        "bytes": 12, "phases": {"pull": 1.5}, "size_bytes": 10_000,
    }  # fmt: skip


async def test_calls_and_failures_are_counted() -> None:
    """One histogram by method and code, one counter by method and reason."""

    def count(name: str, **labels: str) -> float:
        return REGISTRY.get_sample_value(f"triton_adapter_{name}", labels) or 0.0

    async def load(_: ModelSpec) -> None:
        raise ModelRefused("no")

    calls = {"method": "loadModel", "code": "INTERNAL"}
    failures = {"method": "loadModel", "reason": "model_refused"}
    before = count("rpc_seconds_count", **calls), count("failures_total", **failures)
    await answer_of(load)

    assert (count("rpc_seconds_count", **calls), count("failures_total", **failures)) == (before[0] + 1, before[1] + 1)


async def test_every_reason_is_counted_from_0_on() -> None:
    """Prometheus sees no increase in a series that begins with 1, so the first failure of a pod would raise no alert."""
    async with serving(FakeLifecycle()):
        counted = {
            (sample.labels["method"], sample.labels["reason"])
            for family in REGISTRY.collect()
            for sample in family.samples
            if sample.name == "triton_adapter_failures_total"
        }

    methods = ("loadModel", "unloadModel", "predictModelSize", "modelSize", "runtimeStatus")
    raised = {kind.reason for kind in codec.KINDS}
    assert {(method, reason) for method in methods[:2] for reason in raised} <= counted
    assert {(method, "internal") for method in methods} <= counted
