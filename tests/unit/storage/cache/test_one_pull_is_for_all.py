"""Single flight: what several loads want at once is pulled once, whoever leaves, and whoever may not."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from adapter.errors import DiskFull, SourceChanged, SourceDenied, SourceUnavailable
from adapter.storage.cache.flights import Flights
from adapter.waits import Waits
from tests.builders import a_spec
from tests.unit.storage.beds import folder_content, reached
from tests.unit.storage.cache.conftest import content_of

FILE = {"m/model.onnx": b"abc" * 100}
READ = "read m/model.onnx 0+300"


async def waiting(cache, spec=None, *, seconds=60.0):
    """A load that waits for the pull of another one."""
    task = asyncio.create_task(cache.load(spec, seconds=seconds))
    flights = cache.bed.store._cache._flights._flights
    while not any(flight.members > 1 for flight in flights.values()):
        await asyncio.sleep(0)
        assert not task.done()
    return task


async def pulling(cache, spec=None, *, seconds=60.0):
    """A load whose pull hangs."""
    cache.bucket.hanging.clear()
    cache.bucket.hang("read")
    task = asyncio.create_task(cache.load(spec, seconds=seconds))
    await reached(cache.bucket.hanging)
    return task


async def test_ten_loads_at_once_are_one_pull(cache):
    """Ten ids, one artifact with ten users."""
    cache.put(FILE)
    artifacts = await asyncio.gather(*[cache.load(a_spec("m", model_id=f"m{number}")) for number in range(10)])
    assert len(set(artifacts)) == 1
    assert [call for call in cache.bucket.calls if call.startswith("read")] == [READ]
    for artifact in artifacts[1:]:
        await cache.bed.store.release(artifact)
    assert cache.bed.space.give_way(1) == 0, "one still has it"
    await cache.bed.store.release(artifacts[0])
    assert cache.bed.space.give_way(1) > 300 and cache.artifacts == []


async def test_the_first_may_leave_while_the_second_waits(cache):
    """The pull goes on for the second one."""
    cache.put(FILE)
    first = await pulling(cache)
    second = await waiting(cache, a_spec("m", model_id="b"))
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert cache.bucket.active == 1
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    assert cache.bucket.active == 0, "the last one to leave has waited for the end"
    assert cache.artifacts == [] and folder_content(cache.volume.staging_dir) == []
    assert content_of(await cache.load()) == {"model.onnx": FILE["m/model.onnx"]}


async def test_the_second_gets_what_the_first_had_begun(cache):
    """With the one pull that was under way when the first one left."""
    cache.put({"m/1/model.onnx": b"a" * 10, "m/1/b": b"b" * 9})
    spec = a_spec("m", model_type="onnx")
    held, released = asyncio.Event(), asyncio.Event()
    take_turn = cache.bed.store._pulls.run

    async def slow(*asked):
        held.set()
        await released.wait()
        return await take_turn(*asked)

    cache.bed.store._pulls.run = slow
    first = asyncio.create_task(cache.load(spec))
    await held.wait()
    second = await waiting(cache, spec)
    first.cancel()
    released.set()
    assert sorted(content_of(await second)) == ["1/b", "1/model.onnx"]
    assert len([call for call in cache.bucket.calls if call.startswith("read")]) == 2


async def test_a_pull_may_wait_as_long_as_anybody_who_waits_for_it(cache):
    """The first one's time is up first."""
    cache.put(FILE)
    first = await pulling(cache, seconds=5.0)
    flight = next(iter(cache.bed.store._cache._flights._flights.values()))
    assert flight.waits.left_seconds() < 6
    second = await waiting(cache, seconds=500.0)
    assert flight.waits.left_seconds() > 400
    first.cancel()
    await asyncio.wait({first})
    assert flight.waits.left_seconds() > 400
    second.cancel()
    await asyncio.wait({second})


async def test_who_waits_for_the_pull_of_another_says_for_what(cache):
    """The words are those of the pull."""
    cache.put(FILE)
    first = await pulling(cache)
    waits = Waits(time.monotonic)
    model = await cache.bed.store.open(a_spec("m"), waits)
    second = asyncio.create_task(model.fetch(model.listing.files))
    while waits.words() is None:
        await asyncio.sleep(0)
    while "bytes 0-299 of 'm/model.onnx'" not in str(waits.words()):
        await asyncio.sleep(0)
    for task in (first, second):
        task.cancel()
    await asyncio.wait({first, second})


async def test_what_fails_for_one_may_work_for_another(cache):
    """The first one's credentials may not read; the second begins again with its own."""
    cache.put(FILE)
    cache.identity("nosy", may_read=False)
    cache.identity("good")
    gate = asyncio.Event()
    run = cache.bed.store._pulls.run

    async def gated(*asked):
        await gate.wait()
        return await run(*asked)

    cache.bed.store._pulls.run = gated
    first = asyncio.create_task(cache.load(a_spec("m", storage_key="nosy")))
    while not cache.bed.store._cache._flights._flights:
        await asyncio.sleep(0)
    second = await waiting(cache, a_spec("m", storage_key="good"))
    gate.set()
    with pytest.raises(SourceDenied):
        await first
    assert content_of(await second) == {"model.onnx": FILE["m/model.onnx"]}
    assert [call for call in cache.bucket.calls if call.startswith("read")] == [READ]


async def test_who_may_not_read_gets_nothing_of_a_pull_that_works_for_another(cache):
    """It shows that it may, or it does not get it; the other one keeps it."""
    cache.put(FILE)
    cache.identity("nosy", may_read=False)
    gate = asyncio.Event()
    run = cache.bed.store._pulls.run

    async def gated(*asked):
        await gate.wait()
        return await run(*asked)

    cache.bed.store._pulls.run = gated
    first = asyncio.create_task(cache.load())
    while not cache.bed.store._cache._flights._flights:
        await asyncio.sleep(0)
    second = await waiting(cache, a_spec("m", storage_key="nosy"))
    gate.set()
    with pytest.raises(SourceDenied):
        await second
    await cache.bed.store.release(await first)
    assert cache.bed.space.give_way(1) > 0, "nobody holds it"


@pytest.mark.parametrize(
    ("error", "tries"), [(SourceDenied("no"), 2), (SourceUnavailable("away"), 2), (SourceChanged("changed"), 1), (DiskFull("full"), 1)]
)
@pytest.mark.parametrize("who", ["first", "second"])
async def test_each_caller_has_a_failure_of_its_own(error, tries, who):
    """What another one's credentials may change is tried again, by those who have others; each text gets its own model."""
    flights, begun, gate = Flights(None), [], asyncio.Event()

    async def work(waits, members):
        begun.append(1)
        await gate.wait()
        raise error

    async def caller(name, model_id):
        with pytest.raises(type(error)) as caught:
            while await flights.join("key", name, Waits(time.monotonic), work) is None:
                continue
        caught.value.located(model_id, None)
        return caught.value

    tasks = [asyncio.create_task(caller(*args)) for args in (("first", "a"), (who, "b"))]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    gate.set()
    failures = await asyncio.gather(*tasks)
    assert [failure.model_id for failure in failures] == ["a", "b"]
    assert len(begun) == (tries if who == "second" else 1)
    assert not flights._flights


async def test_who_comes_while_a_pull_is_given_up_begins_another(cache):
    """Its files are gone before."""
    cache.put(FILE)
    first = await pulling(cache)
    first.cancel()
    await asyncio.sleep(0)
    assert content_of(await cache.load()) == {"model.onnx": FILE["m/model.onnx"]}
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_what_was_published_just_when_it_was_given_up_is_not_made_again(cache):
    """Made again it would take the folder away from those who have found it meanwhile, and the users that are counted."""
    cache.put(FILE)
    keeping = cache.bed.store._cache._keeping
    publish, names = keeping.publish, []
    begun, go, published, end = (threading.Event() for _ in range(4))

    def slow(staged, entry):
        begun.set()
        assert go.wait(20)
        publish(staged, entry)
        names.append(entry.name)
        published.set()
        assert end.wait(20)

    keeping.publish = slow
    first = asyncio.create_task(cache.load())
    await reached(begun)
    first.cancel()
    flights = cache.bed.store._cache._flights._flights
    while not all(flight.is_ending for flight in flights.values()):
        await asyncio.sleep(0)
    waits = Waits(time.monotonic)
    model = await cache.bed.store.open(a_spec("m"), waits)
    second = asyncio.create_task(model.fetch(model.listing.files))
    while "was given up" not in str(waits.words()):
        await asyncio.sleep(0)
    go.set()
    await reached(published)
    third = await cache.load()
    end.set()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert await second == third and names == [third.key], "the second one has found what the third one has"
    for artifact in (third, third):
        assert cache.bed.space.give_way(1) == 0
        await cache.bed.store.release(artifact)
    assert cache.bed.space.give_way(1) > 0 and cache.artifacts == []


async def test_a_cancel_at_any_await_leaves_nothing(make_cache):
    """Of two loads at once, either one, whenever: with no budget nothing stays, and no user is counted for ever."""
    cache = make_cache(cache_bytes=0)
    outcomes = set()
    for ticks in range(0, 120, 3):
        cache.put({"m/1/model.onnx": b"%d" % ticks, "m/1/b": b"b" * ticks})
        spec = a_spec("m", model_type="onnx")
        tasks = [asyncio.create_task(cache.load(spec)) for _ in range(2)]
        for _ in range(ticks):
            await asyncio.sleep(0.0001)
        tasks[ticks % 2].cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            outcomes.add(type(result).__name__)
            if not isinstance(result, BaseException):
                await cache.bed.store.release(result)
        assert folder_content(cache.volume.staging_dir) == [] and cache.artifacts == []
        assert cache.bed.space.held_bytes() == 0
    assert outcomes == {"CancelledError", "Artifact"}


async def test_a_flight_that_never_began_is_in_nobodys_way():
    """It was given up before its first step, so none of it ran. Whoever came later would ask again and again, without an end."""
    flights = Flights(lambda _: asyncio.sleep(0))
    clock = asyncio.get_running_loop().time
    waits = Waits(clock, clock() + 60)

    async def work(*_):
        return "made"

    flight = flights._begin("key", "a", waits, work)
    flight.is_ending = True
    flight.task.cancel()
    landed = [await flights.join("key", "b", waits, work) for _ in range(3)]
    assert [each.result for each in landed if each] == ["made", "made"]
