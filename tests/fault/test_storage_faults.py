"""What goes wrong with storage, seen from ModelMesh: code, words, and nothing left."""

from __future__ import annotations

import asyncio
import json
import re
import time
from pathlib import Path

import grpc
import pytest

from tests.builders import load_request, predict_request
from tests.fakes.hell import Hell, honest
from tests.fakes.s3_proxy import Fault, S3Proxy
from tests.fault.conftest import BUCKET, MODEL, PART_BYTES, System

Code = grpc.StatusCode


@pytest.mark.parametrize(
    ("fault", "code", "words"),
    [
        (Fault(status=403, code="AccessDenied"), Code.PERMISSION_DENIED, "AccessDenied"),
        (Fault(status=403, code="SignatureDoesNotMatch"), Code.PERMISSION_DENIED, "SignatureDoesNotMatch"),
        (Fault(status=400, code="ExpiredToken"), Code.PERMISSION_DENIED, "ExpiredToken"),
        (Fault(status=401, code="Unauthorized"), Code.PERMISSION_DENIED, "401"),
        (Fault(status=404, code="NoSuchBucket"), Code.NOT_FOUND, "bucket"),
    ],
    ids=lambda value: getattr(value, "code", None),
)
async def test_a_final_answer_is_told_by_meaning(system: System, fault: Fault, code: Code, words: str) -> None:
    """Not repeated: it would be the same again. After a refusal of the path the folder is listed, once."""
    system.put("m", model=MODEL)
    system.proxy.next(fault, times=2)
    before = len(system.proxy.requests)

    failure = await system.failure("m", "m")
    system.proxy.heal()

    assert len(system.proxy.requests) - before == (2 if code is Code.PERMISSION_DENIED else 1)
    assert failure.code() is code
    assert words in failure.details()
    assert system.s3.access_key not in failure.details()
    assert system.s3.secret_key not in failure.details()
    assert system.leftovers() == []


@pytest.mark.parametrize("settings", [{"LOADTIME_TIMEOUT": "4000"}])
async def test_a_store_that_stays_away_is_unavailable(system: System) -> None:
    """In the store's words, before the budget's own text: the last cause, and what was tried."""
    system.put("m", model=MODEL)
    system.proxy.next(Fault(status=503, code="SlowDown"), times=100)

    failure = await system.failure("m", "m")

    assert failure.code() is Code.UNAVAILABLE
    assert re.search(r"cannot be read now \(SlowDown, HTTP 503\); tried [3-9] times in [1-3]\.\d s", failure.details())
    assert "list" in failure.details()
    assert system.leftovers() == []


@pytest.mark.parametrize("settings", [{"LOADTIME_TIMEOUT": "4000"}])
async def test_a_last_try_cut_short_does_not_hide_the_answers_before_it(system: System) -> None:
    """A silence as short as that proves nothing."""
    system.put("m", model=MODEL)
    system.proxy.next(Fault(status=503, code="SlowDown"), times=3)
    system.proxy.next(Fault(hang_after_bytes=-1), times=100)

    failure = await system.failure("m", "m")

    assert failure.code() is Code.UNAVAILABLE
    assert re.search(r"cannot be read now \(SlowDown, HTTP 503\); tried 4 times in", failure.details()), failure.details()


@pytest.mark.parametrize("settings", [{"LOADTIME_TIMEOUT": "4000"}])
@pytest.mark.parametrize("kind", ["refuses", "is silent"])
async def test_a_dead_store_does_not_take_the_loading_threads(system: System, config: Path, kind: str) -> None:
    """The first load uses its budget; those that follow are told at once or share a short probe; another store's load at once."""
    system.put("m", model=MODEL)
    with S3Proxy(system.s3.endpoint_url) as dead:
        fault = Fault(status=503, code="SlowDown") if kind == "refuses" else Fault(hang_after_bytes=-1)
        dead.next(fault, times=1000)
        values = system.s3.storage_config(BUCKET) | {"endpoint_url": dead.endpoint_url}
        (config / "dead").write_text(json.dumps(values))
        begun = time.monotonic()
        first = await system.failure("first", "m", storage_key="dead")
        budget = time.monotonic() - begun
        for _ in range(3):  # on a busy machine a load may end in the pause between two tries, and its thread says nothing then
            if "has been away" in (await system.failure("first", "m", storage_key="dead")).details():
                break
        await system.settled()
        for number in range(2):
            begun = time.monotonic()
            failures = asyncio.gather(*(system.failure(f"later-{number}-{each}", "m", storage_key="dead") for each in range(2)))
            await asyncio.sleep(0)
            await system.load(f"well-{number}", "m")
            assert kind == "refuses" or not failures.done()
            for failure in await failures:
                assert failure.code() is Code.UNAVAILABLE
                assert re.search(r"127\.0\.0\.1:\d+ has been away for \d+ s", failure.details()), failure.details()
            if kind == "refuses":
                assert time.monotonic() - begun < budget / 2
        assert first.code() in (Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED)
        dead.heal()
        await system.load("first", "m", storage_key="dead")
    await system.settled()


@pytest.mark.parametrize("settings", [{"LOADTIME_TIMEOUT": "2000"}])
async def test_a_slow_pull_ends_in_our_words(system: System) -> None:
    """The budget is below the announced timeout; the phases say what was slow."""
    system.put("m", model=MODEL, weights=b"w" * PART_BYTES)
    system.proxy.next(Fault(hang_after_bytes=10), having="weights.bin", times=10)

    failure = await system.failure("m", "m")

    assert failure.code() is Code.DEADLINE_EXCEEDED
    assert re.search(r"; (list \d+\.\d s, )?pull \d+\.\d s\)$", failure.details())
    await system.settled()
    assert system.leftovers() == []


async def test_a_hanging_store_does_not_hold_a_prediction(system: System) -> None:
    """Within 500 ms, whatever storage does; the default when nothing could be learned."""
    system.proxy.next(Fault(hang_after_bytes=-1), times=50)
    answers = [await system.runtime.predictModelSize(predict_request("m", "python", "m"), timeout=0.5) for _ in range(6)]

    assert {answer.sizeInBytes for answer in answers} == {1_000_000}


async def test_a_store_with_one_answer_too_late_serves_any_number_of_loads(system: System) -> None:
    """The endpoint is in use all the time: each load gives back what it had of the requests that may be under way."""
    system.put("late", model=MODEL)
    system.put("m", model=MODEL)
    system.proxy.next(Fault(hang_after_bytes=-1), times=100, having="late")
    late = system.load("late", "late")
    assert await asyncio.to_thread(system.proxy.hanging.wait, 10)
    async with asyncio.timeout(20):
        for number in range(20):
            await system.load(f"m{number}", "m")
    late.cancel()


async def test_a_header_may_be_a_list_under_a_dotted_name(system: System, config: Path) -> None:
    """ModelMesh's controller wants flat objects; what is in them need not be a text."""
    with Hell(honest(b"onnx", {"ETag": '"v"'})) as server:
        web = {"type": "http", "url": server.url, "headers.Authorization": ["Bearer of-a-list"], "headers.X-Two": ["1", "2"]}
        (config / "web").write_text(json.dumps(web))
        await system.runtime.loadModel(load_request("m", "onnx", "model.onnx", storage_key="web"))
        assert {request.headers.get("authorization") for request in server.requests} == {"Bearer of-a-list"}
        assert {request.headers.get("x-two") for request in server.requests} == {"1, 2"}
