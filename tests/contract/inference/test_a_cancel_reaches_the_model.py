"""Whoever stops waiting stops the model: the real Triton's python models see the cancel. None of it ends Triton."""

from __future__ import annotations

import asyncio
import random
import shutil
from contextlib import aclosing
from pathlib import Path

import pytest

from adapter.inference import InferenceFailed, is_final
from adapter.triton.inference.client import TritonInference
from tests.contract.inference.rig import prompt, wait
from tests.real.triton import Triton

pytestmark = pytest.mark.real_triton
SEEN_SECONDS = 10


def _mark(triton: Triton, model: str, name: str) -> Path:
    return triton.repository / model / "1" / name


def _clean(triton: Triton, model: str) -> None:
    for name in ("begun", "cancelled"):
        _mark(triton, model, name).unlink(missing_ok=True)


async def _seen(mark: Path) -> None:
    async with asyncio.timeout(SEEN_SECONDS):
        while not mark.exists():
            await asyncio.sleep(0.01)


async def test_of_an_inference(inference: TritonInference, triton: Triton) -> None:
    _clean(triton, "waiter")
    asking = asyncio.create_task(inference.infer(wait(60)))
    await _seen(_mark(triton, "waiter", "begun"))
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await _seen(_mark(triton, "waiter", "cancelled"))


async def test_of_a_stream_that_waits(inference: TritonInference, triton: Triton) -> None:
    _clean(triton, "vllm_slow")

    async def ask() -> None:
        async with aclosing(inference.stream(prompt("vllm_slow", sampling='{"max_tokens": 2000}'))) as answers:
            async for _ in answers:
                pass

    asking = asyncio.create_task(ask())
    await _seen(_mark(triton, "vllm_slow", "begun"))
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await _seen(_mark(triton, "vllm_slow", "cancelled"))


async def test_of_a_stream_that_its_reader_leaves(inference: TritonInference, triton: Triton) -> None:
    _clean(triton, "vllm_slow")
    async with aclosing(inference.stream(prompt("vllm_slow", sampling='{"max_tokens": 2000}'))) as answers:
        await anext(answers)
    await _seen(_mark(triton, "vllm_slow", "cancelled"))


async def _cancelled_at_any_moment(repository: Path, number_of_try: int) -> bool:
    """Whether a Triton of its own has lived through 800 calls that were cancelled before, at and after their answer."""
    rng = random.Random(number_of_try)
    with Triton(repository, extra_args=[f"--load-model={path.name}" for path in repository.iterdir()]) as triton:
        inference = TritonInference(triton.grpc_target)

        async def one(number: int) -> None:
            async def ask() -> None:
                if number % 2:
                    await inference.infer(wait(0.003))
                    return
                async with aclosing(inference.stream(prompt("vllm", sampling='{"max_tokens": 2}'))) as answers:
                    async for _ in answers:
                        pass

            try:
                async with asyncio.timeout(rng.random() * 0.02):
                    await ask()
            except (TimeoutError, InferenceFailed):
                pass

        try:
            for _ in range(50):
                await asyncio.gather(*(one(number) for number in range(16)))
            if not triton.is_running:
                return False
            assert await inference.is_live()
            return is_final(await inference.infer(wait(0)))
        finally:
            await inference.close()


async def test_at_any_moment(triton: Triton, tmp_path: Path) -> None:
    """Triton 2.51 itself rarely ends with SIGSEGV over cancels: of three one lives through 800."""
    for name in ("vllm", "waiter"):
        shutil.copytree(triton.repository / name, tmp_path / "models" / name)
    for number_of_try in range(3):
        if await _cancelled_at_any_moment(tmp_path / "models", number_of_try):
            return
    raise AssertionError("three Tritons have died")
