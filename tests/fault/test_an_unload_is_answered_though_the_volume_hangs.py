"""The adapter's own volume hangs, under the journal or under the models' directories: unloads are answered in time, and name it."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import grpc
import pytest

from adapter.journal import Journal
from adapter.triton.repository import THREADS, Repository
from tests.fault.conftest import MODEL, Hold, System


@pytest.fixture
def settings() -> dict[str, str]:
    return {"UNLOAD_TIMEOUT_SECONDS": "6"}


@pytest.mark.parametrize(
    ("place", "method", "words", "least"),
    [
        (Journal, "_write", "waiting for the volume to take what the journal writes", 8),
        (Repository, "_discard", "waiting for the volume to give up the model's files", THREADS - 1),
    ],
)
async def test_it_is_named_and_heals(
    system: System, monkeypatch: pytest.MonkeyPatch, place: type, method: str, words: str, least: int
) -> None:
    system.put("m", model=MODEL)
    names = [f"m{number}" for number in range(8)]
    await asyncio.gather(*(system.load(name, "m") for name in names))
    hold, honest = Hold(), getattr(place, method)

    def hanging(*args: Any) -> Any:
        hold()
        return honest(*args)

    monkeypatch.setattr(place, method, hanging)
    began = time.monotonic()
    answers = await asyncio.gather(*map(system.unload, [*names, "absent"]), return_exceptions=True)
    seconds = time.monotonic() - began
    hold.release()

    assert 5 < seconds < 40
    *of_models, of_absent = answers
    assert {type(answer) for answer in of_models} == {grpc.aio.AioRpcError}
    told = [str(answer.details()) for answer in of_models]
    assert all("waiting for the volume to" in text for text in told), told
    assert sum(words in text for text in told) >= least, "who finds no thread free waits at an earlier step, and names that"
    if isinstance(of_absent, grpc.aio.AioRpcError):  # where it has found a thread free, the volume does not hang for it
        assert "the volume to take" in str(of_absent.details()), "its directory is made first, and Triton is not blamed"
    for _ in range(5):  # a busy machine may take longer than the bound: ModelMesh asks again, too
        again = await asyncio.gather(*map(system.unload, [*names, "absent"]), return_exceptions=True)
        if not any(isinstance(answer, BaseException) for answer in again):
            break
    await system.settled()
    assert system.leftovers() == []
