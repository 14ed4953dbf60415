"""The exit code and the words of a run, against a runtime in this process."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from adapter._pb import model_runtime_pb2 as spi
from tests.mesh import __main__ as command
from tests.mesh.runtime import CallError
from tests.mesh.scripted import Script, ScriptedRuntime
from tests.mesh.times import Times

GIVEN = ["--adapter", "a", "--triton", "t", "--purge", "--path", "p", "--models", "1", "--seconds", "0.5"]


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> ScriptedRuntime:
    """Whatever the targets are."""
    scripted = ScriptedRuntime(time.monotonic)

    @asynccontextmanager
    async def connected(*_: str) -> AsyncIterator[ScriptedRuntime]:
        yield scripted

    monkeypatch.setattr(command, "GrpcRuntime", connected)
    return scripted


def test_an_honest_runtime_ends_with_0(runtime: ScriptedRuntime, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(GIVEN) == command.HELD

    assert "every rule held" in capsys.readouterr().out
    assert runtime.holding == {}


def test_a_lie_ends_with_1_and_says_which(runtime: ScriptedRuntime, capsys: pytest.CaptureFixture[str]) -> None:
    runtime.scripts["sim-0"] = Script(stays=True)

    assert command.main(GIVEN) == command.BROKEN

    text = capsys.readouterr().out
    assert "BROKEN: what was unloaded is gone: sim-0 is READY in Triton's index" in text
    assert "--seed 1" in text


@pytest.mark.parametrize(
    ("status", "says"),
    [
        (spi.RuntimeStatusResponse.FAILING, "neither STARTING nor READY"),
        (CallError("DEADLINE_EXCEEDED", "Triton is slow"), "Triton is slow"),
    ],
    ids=["FAILING", "DEADLINE_EXCEEDED"],
)
def test_a_runtime_that_ends_modelmesh_ends_with_2(
    runtime: ScriptedRuntime, capsys: pytest.CaptureFixture[str], status: object, says: str
) -> None:
    runtime.statuses = [status]

    assert command.main(GIVEN) == command.CANNOT

    assert says in capsys.readouterr().err


def test_without_the_index_no_rule_can_be_judged(runtime: ScriptedRuntime, capsys: pytest.CaptureFixture[str]) -> None:
    """As where Triton restricts it: `--grpc-restricted-protocol`."""
    runtime.is_away = True

    assert command.main(GIVEN) == command.CANNOT

    assert "without Triton's index: UNAVAILABLE: connection refused" in capsys.readouterr().err


def test_a_runtime_that_is_never_ready_is_waited_for_in_words(
    runtime: ScriptedRuntime, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime.statuses = [CallError("UNAVAILABLE", "nobody listens")] * 1000
    monkeypatch.setattr(command, "Times", lambda: Times(start=0.1, poll=0.05))

    assert command.main(GIVEN) == command.CANNOT

    told = capsys.readouterr()
    assert "ModelMesh starts: asks the adapter at a for the runtime's status" in told.out
    assert "its last answer: UNAVAILABLE: nobody listens" in told.err


def test_a_model_that_cannot_be_loaded_ends_with_2(runtime: ScriptedRuntime, capsys: pytest.CaptureFixture[str]) -> None:
    runtime.scripts["sim-0"] = Script(load_fails=CallError("NOT_FOUND", "no such folder"))

    assert command.main(GIVEN) == command.CANNOT

    assert "p: NOT_FOUND: no such folder" in capsys.readouterr().err
