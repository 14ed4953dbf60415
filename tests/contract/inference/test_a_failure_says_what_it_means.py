"""Failures of the real Triton: what they mean, in Triton's words, without what is only Triton's own. No failure ends Triton."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from adapter.inference import Failure, InferenceFailed
from adapter.triton.inference.client import TritonInference
from tests.contract.inference.rig import all_of, numbers, of, prompt, texts, wait
from tests.real.triton import Triton

pytestmark = pytest.mark.real_triton

WRONG: list[tuple[Any, Failure, str]] = [
    (of("unknown"), Failure.NOT_FOUND, "Request for unknown model: 'unknown' is not found"),
    (wait(0, version="7"), Failure.NOT_FOUND, "Request for unknown model: 'waiter' version 7 is not found"),
    (wait(0, version="x"), Failure.INVALID, "failed to get model version from specified version string 'x'"),
    (of("waiter"), Failure.INVALID, "expected 1 inputs but got 0 inputs for model 'waiter'"),
    (of("waiter", id="mine"), Failure.INVALID, "expected 1 inputs but got 0 inputs for model 'waiter'"),
    (of("waiter", id="two\nlines] and more"), Failure.INVALID, "expected 1 inputs but got 0 inputs for model 'waiter'"),
    (of("waiter", texts("SECONDS", "a")), Failure.INVALID, "inference input 'SECONDS' data-type is 'BYTES'"),
    (of("waiter", texts("OTHER", "a")), Failure.INVALID, "unexpected inference input 'OTHER' for model 'waiter'"),
]


async def unary(inference: TritonInference, request: Any) -> object:
    return await inference.infer(request)


@pytest.mark.parametrize("ask", [unary, all_of])
@pytest.mark.parametrize(("request_", "failure", "beginning"), WRONG)
async def test_a_wrong_request(
    inference: TritonInference, ask: Callable[..., object], request_: Any, failure: Failure, beginning: str
) -> None:
    """The same over both ways, though an error within a stream has no code."""
    with pytest.raises(InferenceFailed) as failed:
        await ask(inference, request_)  # type: ignore[misc]
    assert failed.value.failure is failure
    assert failed.value.text.startswith(beginning)
    assert "\n" not in failed.value.text


async def test_triton_lives_through_streams_that_fail(inference: TritonInference, triton: Triton) -> None:
    """Triton 2.51 dies of the first, if it is told to give errors of streams as gRPC's status."""

    async def fail() -> Failure:
        with pytest.raises(InferenceFailed) as failed:
            await all_of(inference, prompt("vllm_failing"))
        return failed.value.failure

    failures = [failure for _ in range(10) for failure in await asyncio.gather(*(fail() for _ in range(8)))]
    assert set(failures) == {Failure.INTERNAL}
    assert await inference.is_live()
    assert triton.is_running


async def test_a_full_queue_is_for_later(inference: TritonInference) -> None:
    request = of("narrow", numbers("SECONDS", "FP32", 0.5, shape=(1, 1)))
    found = await asyncio.gather(*(inference.infer(request) for _ in range(6)), return_exceptions=True)
    failures = {one.failure: one.text for one in found if isinstance(one, InferenceFailed)}
    assert failures == {Failure.UNAVAILABLE: "Exceeds maximum queue size"}
    assert any(not isinstance(one, BaseException) for one in found)
    streams = await asyncio.gather(*(all_of(inference, request) for _ in range(6)), return_exceptions=True)
    failures = {one.failure: one.text for one in streams if isinstance(one, InferenceFailed)}
    assert failures == {Failure.UNAVAILABLE: "Exceeds maximum queue size"}
