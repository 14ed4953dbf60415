"""One owner asks for Triton's index: for all who ask at a time, no more often than is good, and however long it takes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import grpc
import pytest
from structlog.testing import capture_logs

from adapter.errors import AdapterError, ServerError, WrongServer
from adapter.telemetry.metrics import REGISTRY
from adapter.triton.client import CallRefused, PortClosed, TritonDied
from adapter.triton.index import AGAIN_SECONDS
from adapter.triton.pace import CREDIT_SECONDS
from adapter.triton.server import TritonServer
from tests.unit.triton.one_thread import OneThread
from tests.unit.triton.scripted import GONE, ScriptedTriton, serve, unnoticed

pytestmark = pytest.mark.looptime


def now() -> float:
    return asyncio.get_running_loop().time()


@asynccontextmanager
async def watched(triton: ScriptedTriton) -> AsyncIterator[TritonServer]:
    """The server with its watch, after Triton's first answer."""
    server = serve(triton)
    watch = asyncio.create_task(server.watch())
    await asyncio.sleep(0.1)
    yield server
    watch.cancel()
    await asyncio.wait({watch})
    assert watch.cancelled()
    await server.close()
    assert asyncio.all_tasks() == {asyncio.current_task()}


def polls() -> float:
    return REGISTRY.get_sample_value("triton_adapter_index_polls_total") or 0


def index_seconds() -> float:
    seconds = REGISTRY.get_sample_value("triton_adapter_index_seconds")
    assert seconds is not None
    return seconds


# ---- shared


async def test_who_asks_at_a_time_shares_one_question() -> None:
    triton = OneThread(index_seconds=0.1)
    server, before = serve(triton), polls()

    await asyncio.gather(*(server.index() for _ in range(100)))

    assert len(triton.listings) == polls() - before == 1


async def test_who_comes_during_a_question_shares_the_next_one() -> None:
    """The answer to the one that is under way may be older than what he wants to know."""
    triton = OneThread(index_seconds=1.0)
    server = serve(triton)
    first = asyncio.create_task(server.index())
    await asyncio.sleep(0.9)
    triton.repository.directories.add("new")
    later = [asyncio.create_task(server.index()) for _ in range(100)]
    await first
    assert not any(task.done() for task in later)

    assert [[row.name for row in rows] for rows in await asyncio.gather(*later)] == [["new"]] * 100
    assert len(triton.listings) == 2


async def test_each_gets_the_rows_that_he_asked_for() -> None:
    """Of a model, those of its inner models too; of one that nobody has, none."""
    triton = OneThread(index_seconds=0.1)
    triton.repository.directories.update({"a", "a~inner~b", "c"})
    server = serve(triton)

    every, of_a, none = await asyncio.gather(server.index(), server.index(("a",)), server.index(("x",)))

    assert [row.name for row in every] == ["a", "a~inner~b", "c"]
    assert [row.name for row in of_a] == ["a", "a~inner~b"]
    assert none == []
    assert len(triton.listings) == 1


async def test_one_who_goes_leaves_the_question_to_the_others() -> None:
    triton = OneThread(index_seconds=1.0)
    server = serve(triton)
    gone, stays = (asyncio.create_task(server.index()) for _ in range(2))
    await asyncio.sleep(0.5)
    gone.cancel()

    assert await stays == []
    assert gone.cancelled()
    assert len(triton.listings) == 1


async def test_a_question_that_was_sent_goes_on_and_the_next_one_waits_for_its_end() -> None:
    """A cancelled call goes on in Triton: a second one would only come upon it."""
    triton = OneThread(index_seconds=5.0)
    server = serve(triton)
    gone = asyncio.create_task(server.index())
    await asyncio.sleep(1)
    gone.cancel()
    await asyncio.wait({gone})
    began = triton.listings[0][0]

    await server.index()

    assert [at - began for at, _ in triton.listings] == [0, pytest.approx(5 + 40, abs=2)]


async def test_a_question_that_nobody_waits_for_any_more_is_not_sent() -> None:
    """It was in its rest."""
    triton = OneThread(index_seconds=1.0)
    server = serve(triton)
    await server.index()
    asked = [asyncio.create_task(server.index()) for _ in range(3)]
    await asyncio.sleep(5)
    for task in asked:
        task.cancel()
    await asyncio.wait(asked)
    await asyncio.sleep(60)

    assert len(triton.listings) == 1
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_failure_is_told_to_all_who_share_it_and_each_has_his_own() -> None:
    """Each call writes into it which model it was."""
    triton = OneThread(index_seconds=0.1)
    triton.script["index"] = [WrongServer("restricted")]
    server = serve(triton)

    told = await asyncio.gather(*(server.index() for _ in range(3)), return_exceptions=True)

    assert [type(error) for error in told] == [WrongServer] * 3
    assert len(set(map(id, told))) == 3
    assert await server.index() == []


async def test_close_ends_all_questions() -> None:
    triton = OneThread(index_seconds=100.0)
    server = serve(triton)
    asked = asyncio.create_task(server.index())
    await asyncio.sleep(1)
    waiting = asyncio.create_task(server.index())
    await asyncio.sleep(1)

    await server.close()

    await asyncio.wait({asked, waiting})
    assert asked.cancelled() and waiting.cancelled()
    assert asyncio.all_tasks() == {asyncio.current_task()}


# ---- paced


@pytest.mark.parametrize(("seconds", "rest"), [(0.02, 0.2), (0.1, 1.0), (3.0, 30.0), (12.0, 40.0), (100.0, 40.0)])
async def test_a_rest_is_ten_times_the_answer_and_40_s_at_most(seconds: float, rest: float) -> None:
    """For all who ask together; half a second of it may be taken later, once."""
    triton = OneThread(index_seconds=seconds)
    server = serve(triton)

    async def ask() -> None:
        for _ in range(3):
            await server.index()

    await asyncio.gather(ask(), ask(), server.unload("m"))

    rests = [later[0] - earlier[1] for earlier, later in zip(triton.listings, triton.listings[1:], strict=False)]
    assert len(rests) >= 2
    assert all(rest - CREDIT_SECONDS - 1e-3 <= found < rest + 1.1 for found in rests)
    assert sum(rests) >= rest * len(rests) - CREDIT_SECONDS - 1e-3


async def test_who_can_wait_does_so_until_somebody_cannot() -> None:
    """An audit does not take more than a tenth; an unload that joins it is not held up."""
    triton = OneThread(index_seconds=20.0)
    server = serve(triton)
    await server.index()
    end = now()
    audit = asyncio.create_task(server.index(can_wait=True))
    await asyncio.sleep(100)
    assert len(triton.listings) == 1
    await server.index()
    assert audit.done()
    assert now() - end == pytest.approx(120, abs=2)
    end = now()

    await server.index(can_wait=True)

    assert now() - end == pytest.approx(220, abs=2)


async def test_an_unload_of_170_s_holds_three_looks_of_10_s() -> None:
    """The third one still finds it."""
    triton = OneThread(index_seconds=10.0)
    triton.repository.directories.add("m")
    triton.states["m"] = "READY"
    server = serve(triton)
    await server.index()
    triton.unload_seconds = 100
    began = now()

    await server.unload("m")

    assert now() - began < 170
    assert len([1 for at, _ in triton.listings if at > began]) >= 3


async def test_many_unloads_take_a_tenth_of_the_time() -> None:
    """One after the other and at a time."""
    triton = OneThread(index_seconds=0.5)
    names = [f"m{number}" for number in range(60)]
    triton.repository.directories.update(names)
    triton.states.update(dict.fromkeys(names, "READY"))
    server = serve(triton)

    for start in range(0, 60, 6):
        await asyncio.gather(*(server.unload(name) for name in names[start : start + 6]))

    assert set(triton.states.values()) == {GONE}
    assert triton.busy_seconds() / triton.free_at() < 0.12


async def test_another_triton_needs_no_rest() -> None:
    """It has listed nothing yet, and what it has lost is to be known soon."""
    triton = OneThread(index_seconds=8.0)
    server = serve(triton)
    await server.index()
    began = now()
    asked = asyncio.create_task(server.index())
    await asyncio.sleep(2)
    triton.script["live"] = [PortClosed("Connection refused")]
    assert not await server._presence.look()

    await asked

    assert now() - began < 2 + 8 + 2


# ---- however long it takes


@pytest.mark.parametrize("what", ["adoption", "purge", "unload", "verify"])
async def test_an_index_of_700_s_still_has_an_end(what: str) -> None:
    """The first question expires after 600 s, and the next one has twice that; Triton is not called wrong for being slow."""
    triton = OneThread(index_seconds=700.0)
    triton.repository.directories.add("m")
    triton.states["m"] = "READY"
    async with watched(triton) as server:
        works: dict[str, Callable[[], object]] = {
            "adoption": server.index,
            "purge": server.purge,
            "unload": lambda: server.unload("m"),
            "verify": server.verify,
        }
        async with asyncio.timeout(6 * 3600):
            await works[what]()  # type: ignore[misc] # a coroutine each
        assert triton.states["m"] == (GONE if what in ("purge", "unload") else "READY")
        assert server.problem is None


async def test_the_deadline_is_doubled_as_often_as_it_takes_and_forgotten_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    """For an index that was slow for a while."""
    monkeypatch.setattr("adapter.triton.index.DEADLINE_SECONDS", 20)
    triton = OneThread(index_seconds=70.0)
    async with watched(triton) as server:
        with capture_logs() as logs:
            await server.index()
        assert [line["seconds"] for line in logs if line["event"] == "index.expired"] == [20, 40]
        triton.index_seconds = 1.0
        await server.index()
        triton.index_seconds = 30.0
        with capture_logs() as logs:
            await server.index()
        assert [line["seconds"] for line in logs if line["event"] == "index.expired"] == [20]


async def test_an_index_that_is_slow_does_not_accuse_the_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even where the first answers come late and a new directory is seen late."""
    monkeypatch.setattr("adapter.triton.index.DEADLINE_SECONDS", 60)
    triton = OneThread(index_seconds=70.0)
    triton.lists_our_folder = False
    async with watched(triton) as server:
        verifying = asyncio.create_task(server.verify())
        await asyncio.sleep(220)
        assert not verifying.done()
        assert "--model-repository" not in str(server.problem)
        triton.lists_our_folder = True
        assert await verifying == "2.51.0"


# ---- told in words


async def test_a_slow_index_is_a_problem_while_somebody_waits_for_it_and_a_notice_else() -> None:
    triton = OneThread(index_seconds=30.0)
    async with watched(triton) as server:
        asked = asyncio.create_task(server.index())
        await asyncio.sleep(5)
        assert server.problem is None
        await asyncio.sleep(7)
        words = "Triton has needed 12 s to list its model repository, and has not done so yet"
        assert server.problem == words
        assert server.obstacle("m") == words
        asked.cancel()
        await asyncio.wait({asked})
        assert server.problem is None
        assert server.notice == words
        await asyncio.sleep(20)
        assert server.problem is None
        assert server.notice == (
            "Triton is slow: it has needed 30 s to list its model repository, which takes 43% of its time while unloads wait for it"
        )
        triton.index_seconds = 0.5
        await server.index()
        assert server.notice is None


async def test_the_metric_tells_the_newest_listing_and_one_that_still_runs() -> None:
    triton = OneThread(index_seconds=2.0)
    server = serve(triton)

    await server.index()
    assert index_seconds() == pytest.approx(2)
    triton.index_seconds = 30.0
    asked = asyncio.create_task(server.index())
    await asyncio.sleep(40)
    assert 2 < index_seconds() < 30
    await asked
    assert index_seconds() == pytest.approx(30)


async def test_more_than_a_tenth_is_logged_once_and_so_is_its_end() -> None:
    triton = OneThread(index_seconds=6.0)
    server = serve(triton)
    with capture_logs() as logs:
        for _ in range(3):
            await server.index()
        triton.index_seconds = 1.0
        for _ in range(3):
            await server.index()

    told = [(line["event"], line["seconds"]) for line in logs if line["event"].startswith("index.")]
    assert told == [("index.slow", 6.0), ("index.quick", 1.0)]


async def test_a_listing_that_failed_is_asked_for_again_where_nobody_asks() -> None:
    """The problem has passed, and no call would tell."""
    triton = OneThread(index_seconds=0.01)
    triton.script["index"] = [CallRefused(grpc.StatusCode.INTERNAL, "failed to stat file /x")]
    async with watched(triton) as server:
        assert await server._index.look({"m"}) is None
        assert server.problem == "Triton cannot list its model repository: failed to stat file /x"
        assert "sweep" in triton.trace

        await asyncio.sleep(AGAIN_SECONDS + 1)

        assert server.problem is None
        assert len(triton.listings) == 2
        await asyncio.sleep(600)
        assert len(triton.listings) == 2


@pytest.mark.parametrize("failure", [AdapterError("the volume is gone"), RuntimeError("a defect")])
async def test_a_folder_that_cannot_be_swept_does_not_end_the_watch(failure: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a root task."""
    triton = OneThread(index_seconds=0.01)
    triton.script["index"] = [CallRefused(grpc.StatusCode.INTERNAL, "failed to stat file /x")] * 3
    sweep, failures = triton.repository.sweep, [failure] * 2

    async def swept() -> None:
        if failures:
            raise failures.pop()
        await sweep()

    monkeypatch.setattr(triton.repository, "sweep", swept)
    async with watched(triton) as server:
        with pytest.raises(type(failure)):
            await server._index.look({"m"})

        await asyncio.sleep(4 * AGAIN_SECONDS)

        assert server.problem is None


async def test_what_was_wrong_is_looked_at_again_where_nobody_asks() -> None:
    """Triton has been started with the right folder meanwhile."""
    triton = OneThread(index_seconds=0.01)
    triton.lists_our_folder = False
    async with watched(triton) as server:
        with pytest.raises(WrongServer):
            await server.verify()
        await asyncio.sleep(200)
        assert "--model-repository" in str(server.problem)
        triton.lists_our_folder = True

        await asyncio.sleep(100)

        assert server.problem is None
        asked = len(triton.listings)
        await asyncio.sleep(600)
        assert len(triton.listings) == asked


async def test_a_folder_that_cannot_be_listed_is_told_in_triton_s_words() -> None:
    triton = OneThread(index_seconds=0.01)
    triton.script["index"] = [CallRefused(grpc.StatusCode.INTERNAL, "failed to stat file /x")] * 5

    with pytest.raises(ServerError, match="failed to stat file /x"):
        await serve(triton).verify()


# ---- silence


async def test_a_triton_that_lists_is_not_away() -> None:
    """Loads wait, and nothing breaks: what was known of it still holds."""
    triton = OneThread(index_seconds=9.0)
    triton.repository.directories.add("m")
    async with watched(triton) as server:
        presence = server._presence
        asked = asyncio.create_task(server.index())
        await asyncio.sleep(2)
        load, ready = asyncio.create_task(server.load("m", unnoticed)), asyncio.create_task(server.is_ready("m"))
        for _ in range(5):
            await asyncio.sleep(1)
            assert server.problem is None
            assert presence.is_live
            assert presence.silent_seconds() < 4
            assert not load.done() and not ready.done()
        await asked
        await load
        assert not await ready
        returned = asyncio.create_task(server.returned())
        await asyncio.sleep(10)
        assert not returned.done()
        returned.cancel()
        await asyncio.wait({returned})
        assert triton.trace.count("load m") == 1
        assert await server.is_ready("m")


async def test_a_call_with_a_deadline_that_falls_into_a_listing_is_no_break() -> None:
    """A question for readiness has 10 s."""
    triton = OneThread(index_seconds=15.0)
    async with watched(triton) as server:
        await server._presence.wait()
        asked = asyncio.create_task(server.index())
        await asyncio.sleep(0.1)
        ready = asyncio.create_task(server.is_ready("m"))
        await asyncio.sleep(13)
        assert "does not answer" not in str(server.problem)
        assert not ready.done()
        await asked
        assert not await ready


@pytest.mark.parametrize("failure", [PortClosed("Connection refused"), TritonDied("Socket closed")])
async def test_a_death_in_a_listing_is_a_break(failure: Exception) -> None:
    triton = OneThread(index_seconds=0.1)
    async with watched(triton) as server:
        await server.index()
        triton.script["index"] = [failure]
        await server.index()

        async with asyncio.timeout(5):
            assert await server.returned() is isinstance(failure, PortClosed)


async def test_a_hang_between_two_listings_is_noticed_and_no_listing_is_asked_for() -> None:
    """The question that comes before has a deadline of a second."""
    triton = OneThread(index_seconds=0.1)
    async with watched(triton) as server:
        presence = server._presence
        await server.index()
        triton.hangs = True
        asked = asyncio.create_task(server.index())
        await asyncio.sleep(3)
        assert server.problem == "Triton does not answer at triton:8001: no answer within 1 s"
        assert not presence.is_live
        await asyncio.sleep(57)
        assert presence.silent_seconds() == pytest.approx(60, abs=2)
        assert len(triton.listings) == 1
        triton.hangs = False
        await asked
        assert presence.silent_seconds() < 2


async def test_a_process_that_stops_in_a_listing_is_noticed_and_its_silence_counts_from_then() -> None:
    """The listing may last: what runs greets new connections all the time."""
    triton = OneThread(index_seconds=400.0)
    async with watched(triton) as server:
        presence = server._presence
        asked = asyncio.create_task(server.index())
        await asyncio.sleep(200)
        assert presence.is_live
        triton.is_stopped = True
        await asyncio.sleep(5)
        assert server.problem == "Triton does not answer at triton:8001: no answer within 1 s"
        assert not presence.is_live
        await asyncio.sleep(60)
        assert 58 < presence.silent_seconds() < 70
        assert str(server.health().why).startswith("Triton accepts connections and has answered nothing for 6")
        triton.is_stopped = False
        await asyncio.sleep(5)
        assert presence.silent_seconds() < 4
        assert server.health().why is None
        await asked
        await asyncio.sleep(1)
        assert presence.is_live


async def test_the_time_of_a_hang_is_no_time_of_a_listing() -> None:
    """Else an unload would wait 40 s for its next look, and Triton be called slow."""
    triton = OneThread(index_seconds=9.0)
    async with watched(triton) as server:
        asked = asyncio.create_task(server.index())
        await asyncio.sleep(2)
        triton.is_stopped = True
        await asyncio.sleep(5)
        triton.is_stopped = False
        await asked
        began = now()
        triton.index_seconds = 0.1
        await server.index()
        assert now() - began < 3
        assert server.notice is None


async def test_a_triton_that_nobody_can_connect_to_is_not_silent() -> None:
    """It starts, or is dead: no reason to kill it."""
    triton = OneThread(index_seconds=0.1)
    async with watched(triton) as server:
        triton.script["live"] = [PortClosed("Connection refused")] * 100_000
        await asyncio.sleep(300)
        assert server._presence.silent_seconds() == 0
        triton.script["live"].clear()
        triton.hangs = True
        await asyncio.sleep(60)
        assert server._presence.silent_seconds() == pytest.approx(60, abs=3)


async def test_a_refusal_is_an_answer() -> None:
    """Also of a Triton that is called away for it."""
    triton = OneThread(index_seconds=0.1)
    async with watched(triton) as server:
        triton.script["live"] = [CallRefused(grpc.StatusCode.UNIMPLEMENTED, "no")] * 100_000
        await asyncio.sleep(100)
        assert not server._presence.is_live
        assert server._presence.silent_seconds() < 1


async def test_a_listing_that_expired_excuses_silence_as_long_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton may be at it; then it is asked with more patience. One that hangs for good is told in the end."""
    monkeypatch.setattr("adapter.triton.index.DEADLINE_SECONDS", 60)
    triton = OneThread(index_seconds=110.0)
    async with watched(triton) as server:
        asked = asyncio.create_task(server.index())
        for _ in range(110):
            await asyncio.sleep(1)
            assert server._presence.silent_seconds() < 4
        await asked
        triton.index_seconds = 100_000
        asked = asyncio.create_task(server.index())
        await asyncio.sleep(150)
        assert server._presence.silent_seconds() < 4
        await asyncio.sleep(250)
        assert server._presence.silent_seconds() > 60
        asked.cancel()
        await asyncio.wait({asked})
