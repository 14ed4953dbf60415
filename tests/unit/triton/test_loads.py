"""Loads that Triton has cannot be taken back: they keep their place, not their slot, and can be waited for."""

from __future__ import annotations

import asyncio
import random

import pytest
from structlog.testing import capture_logs

from adapter.errors import BudgetExceeded, ModelRefused, ServerDied
from adapter.triton.client import PortClosed, TritonAway, TritonDied
from tests.unit.triton.scripted import GONE, ScriptedTriton, cancel, serve, unnoticed

pytestmark = pytest.mark.looptime


@pytest.fixture(autouse=True)
def slow(triton: ScriptedTriton) -> None:
    """Each load takes ten seconds."""
    triton.load_seconds = 10


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_slots_bound_the_loads(triton: ScriptedTriton) -> None:
    """The third waits for one of two."""
    server = serve(triton, max_loading=2)

    await asyncio.gather(*(server.load(name, unnoticed) for name in "abcde"))

    assert triton.most_loading == 2
    assert now() == 30


async def test_first_come_first_served(triton: ScriptedTriton) -> None:
    """No load is overtaken."""
    server = serve(triton, max_loading=1)

    await asyncio.gather(*(server.load(name, unnoticed) for name in "abc"))

    assert triton.trace == ["load a", "loaded a", "load b", "loaded b", "load c", "loaded c"]


async def test_a_queued_load_is_cancelled_at_once(triton: ScriptedTriton) -> None:
    """Triton never hears of it, its caller is not told that it was sent, and its turn goes to the next."""
    server = serve(triton, max_loading=1)
    sent: list[str] = []
    a, b, c = (asyncio.create_task(server.load(name, lambda name=name: sent.append(name))) for name in "abc")
    await asyncio.sleep(1)
    await cancel(b)

    await asyncio.gather(a, c)

    assert sent == ["a", "c"]
    assert now() == 20


async def test_a_load_that_waits_for_triton_is_cancelled_at_once(triton: ScriptedTriton) -> None:
    """It was not sent, and its slot is free for the next."""
    triton.is_away = True
    server = serve(triton, max_loading=1)
    sent: list[str] = []
    waiting = asyncio.create_task(server.load("a", lambda: sent.append("a")))
    await asyncio.sleep(30)
    assert server.problem == "Triton does not answer at triton:8001: Connection refused"
    assert server.queue() == "model a has held the only loading slot for 30 s"
    await cancel(waiting)
    assert not sent
    triton.is_away = False

    await server.load("b", unnoticed)

    assert triton.trace == ["load b", "loaded b"]


async def test_a_sent_load_goes_on_and_gives_its_slot_to_the_next(triton: ScriptedTriton) -> None:
    """At once when the caller goes: Triton has more threads."""
    server = serve(triton, max_loading=1)
    a = asyncio.create_task(server.load("a", unnoticed))
    await asyncio.sleep(1)
    b = asyncio.create_task(server.load("b", unnoticed))
    await asyncio.sleep(1)
    assert triton.trace == ["load a"]
    await cancel(a)

    await b

    assert triton.trace == ["load a", "load b", "loaded a", "loaded b"]
    assert now() == 12


async def test_a_sent_load_keeps_its_place_where_triton_has_no_other_thread(triton: ScriptedTriton) -> None:
    """The next one begins when it ends, whoever still waits."""
    server = serve(triton, max_loading=1, load_threads=1)
    a = asyncio.create_task(server.load("a", unnoticed))
    await asyncio.sleep(1)
    b = asyncio.create_task(server.load("b", unnoticed))
    await cancel(a)

    await b

    assert triton.trace == ["load a", "loaded a", "load b", "loaded b"]


async def test_loads_that_never_end_take_all_threads_in_the_end_and_are_named(triton: ScriptedTriton) -> None:
    """Never more in Triton than it has threads. Who waits is told who has them, and has his turn when one ends."""
    server = serve(triton, max_loading=1, load_threads=3)
    triton.load_seconds = 1000
    for name in ("x", "y"):
        load = asyncio.create_task(server.load(name, unnoticed))
        await asyncio.sleep(100)
        await cancel(load)
    z = asyncio.create_task(server.load("z", unnoticed))
    await asyncio.sleep(1)
    assert server.queue() == "model z has held the only loading slot for 1 s"
    await cancel(z)
    waiting = asyncio.create_task(server.load("m", unnoticed))
    await asyncio.sleep(1)

    assert server.queue() == (
        "the loads of models x (202 s), y (102 s), z (2 s) are still in Triton, though nobody waits for the end any more: "
        "Triton has no free load thread (TRITON_LOAD_THREADS is 3)"
    )
    assert triton.loading == 3
    triton.load_seconds = 10
    await waiting
    assert now() == 1010
    assert triton.most_loading == 3


async def test_loads_that_an_earlier_adapter_has_left_have_places(triton: ScriptedTriton) -> None:
    """Else new loads would wait behind them in Triton, where nobody sees them; their ends give the places back."""
    triton.states |= {"x": "LOADING", "y": "LOADING"}
    triton.repository.directories |= {"x", "y"}
    server = serve(triton, max_loading=2, load_threads=2)
    await server.index()
    await asyncio.sleep(100)

    load = asyncio.create_task(server.load("m", unnoticed))
    await asyncio.sleep(20)

    assert "load m" not in triton.trace
    assert str(server.queue()).startswith("the loads of models x (120 s), y (120 s) are still in Triton, though nobody waits")
    triton.states["x"] = "READY"
    await load
    assert server.obstacle("y").startswith("Triton has been loading the model for ")
    await server.close()


async def test_who_waits_for_an_earlier_load_of_the_model_holds_no_slot(triton: ScriptedTriton) -> None:
    """Retries of a model that hangs must not take the slots of others."""
    server = serve(triton, max_loading=1)
    triton.load_seconds = 1000
    hung = asyncio.create_task(server.load("hung", unnoticed))
    await asyncio.sleep(1)
    await cancel(hung)
    again = asyncio.create_task(server.load("hung", unnoticed))
    await asyncio.sleep(1)
    triton.load_seconds = 10

    await server.load("b", unnoticed)

    assert now() == 12
    await again
    assert triton.trace == ["load hung", "load b", "loaded b", "loaded hung", "load hung", "loaded hung"]


async def test_a_restore_that_never_ends_is_given_up(triton: ScriptedTriton) -> None:
    """Nobody calls for it, so nobody would cancel it: after the announced timeout it is left, as that of a caller."""
    server = serve(triton, max_loading=1, load_timeout_seconds=30)
    triton.load_seconds = 1000
    restore = asyncio.create_task(server.load("r", unnoticed, yields=True))
    await asyncio.sleep(1)
    triton.load_seconds = 10
    await server.load("b", unnoticed)

    assert now() == 40
    with pytest.raises(BudgetExceeded, match="Triton has not loaded the model within 30 s"):
        await restore
    assert triton.loading == 1


async def test_a_restore_in_a_triton_that_hangs_is_not_given_up(triton: ScriptedTriton) -> None:
    """Silence is no fault of the model."""
    server = serve(triton, max_loading=1, load_timeout_seconds=5)
    triton.load_seconds = 8
    restore = asyncio.create_task(server.load("r", unnoticed, yields=True))
    await asyncio.sleep(1)
    triton.is_away = True
    watch = asyncio.create_task(server.watch())
    await asyncio.sleep(5)

    await restore

    assert triton.trace == ["load r", "loaded r"]
    watch.cancel()


async def test_a_place_of_a_load_whose_connection_was_cut_is_kept(triton: ScriptedTriton) -> None:
    """Triton has the load still, as its index shows: its thread is taken, and an unload waits for the end."""
    server = serve(triton, max_loading=1, load_threads=2)
    triton.repository.directories.add("a")
    triton.load_seconds = 1000
    load = asyncio.create_task(server.load("a", unnoticed))
    await asyncio.sleep(1)
    await cancel(load)
    triton.cut("a")
    await asyncio.sleep(100)
    b = asyncio.create_task(server.load("b", unnoticed))
    await asyncio.sleep(1)
    await cancel(b)

    assert server.queue() == (
        "the loads of models a (102 s), b (1 s) are still in Triton, though nobody waits for the end any more: "
        "Triton has no free load thread (TRITON_LOAD_THREADS is 2)"
    )
    triton.states["a"] = "READY"
    await server.unload("a")
    assert triton.trace == ["load a", "load b", "unload a", "freed a"]
    await server.close()


async def test_an_unload_waits_for_a_load_that_was_given_up(triton: ScriptedTriton) -> None:
    """And can itself be cancelled meanwhile: that takes nothing with it."""
    server = serve(triton)
    load = asyncio.create_task(server.load("a", unnoticed))
    await asyncio.sleep(1)
    await cancel(load)
    unload = asyncio.create_task(server.unload("a"))
    await asyncio.sleep(1)
    assert server.obstacle("a") == "Triton has been loading the model for 2 s, and a load cannot be cancelled"
    await cancel(unload)

    await server.unload("a")

    assert triton.trace == ["load a", "loaded a", "directory a", "unload a", "freed a"]
    assert triton.states == {"a": GONE}


async def test_a_load_in_a_triton_that_hangs_is_not_the_obstacle(triton: ScriptedTriton) -> None:
    """The call goes on for ever, and Triton does no work: that is what an operator must hear."""
    triton.load_seconds = 1000
    server = serve(triton)
    load = asyncio.create_task(server.load("a", unnoticed))
    await asyncio.sleep(1)
    await cancel(load)
    triton.script["live"] = [TritonAway("no answer within 1 s")]
    watch = asyncio.create_task(server.watch())
    await asyncio.sleep(0.1)
    watch.cancel()

    assert server.obstacle("a") == "Triton does not answer at triton:8001: no answer within 1 s"
    await server.close()


async def test_a_second_load_of_the_model_follows_the_first(triton: ScriptedTriton) -> None:
    """Also when the first was given up."""
    server = serve(triton, max_loading=2)
    a = asyncio.create_task(server.load("a", unnoticed))
    await asyncio.sleep(1)
    await cancel(a)

    await server.load("a", unnoticed)

    assert triton.trace == ["load a", "loaded a"] * 2
    assert triton.most_loading == 1


async def test_a_failure_reaches_the_caller_and_frees_the_slot(triton: ScriptedTriton) -> None:
    """As itself."""
    triton.load_failure = ModelRefused("no weights")
    server = serve(triton, max_loading=1)

    for _ in range(3):
        with pytest.raises(ModelRefused, match="no weights"):
            await server.load("a", unnoticed)


async def test_a_load_that_cannot_be_noted_is_not_sent(triton: ScriptedTriton) -> None:
    """The caller's own error is the answer, and the slot is free."""
    server = serve(triton, max_loading=1)

    def fail() -> None:
        raise ValueError("no such transition")

    with pytest.raises(ValueError, match="no such transition"):
        await server.load("a", fail)

    await server.load("b", unnoticed)
    assert triton.trace == ["load b", "loaded b"]


async def test_a_load_that_was_not_taken_is_repeated_in_its_slot(triton: ScriptedTriton) -> None:
    """Triton has seen nothing of it; its caller hears once that it was sent, and the next one still waits."""
    triton.script["load"] = [TritonAway("Connection refused"), TritonAway("Server not ready")]
    server = serve(triton, max_loading=1)
    sent: list[str] = []

    await asyncio.gather(*(server.load(name, lambda name=name: sent.append(name)) for name in "ab"))

    assert triton.trace == ["load a", "load a", "load a", "loaded a", "load b", "loaded b"]
    assert sent == ["a", "b"]


async def test_a_load_that_is_to_be_repeated_can_be_cancelled(triton: ScriptedTriton) -> None:
    """Triton has nothing of it: no unload waits for it, and the slot is free at once."""
    triton.script["load"] = [TritonAway("Connection refused")]
    server = serve(triton, max_loading=1)
    load = asyncio.create_task(server.load("a", unnoticed))
    await asyncio.sleep(0.01)
    triton.is_away = True
    await asyncio.sleep(5)
    await cancel(load)
    triton.is_away = False

    await server.load("b", unnoticed)
    await server.unload("a")

    assert triton.trace == ["load a", "load b", "loaded b", "directory a", "unload a"]


async def test_a_load_that_triton_died_over_is_not_repeated(triton: ScriptedTriton) -> None:
    """The model may be what killed it. A closed port says so before there is another Triton."""
    server = serve(triton)
    triton.repository.directories.add("a")
    await server.load("a", unnoticed)
    triton.trace.clear()
    triton.script["load"] = [TritonDied("Stream removed (Socket closed)")]
    triton.script["live"] = [PortClosed("Connection refused")]

    with pytest.raises(ServerDied, match=r"Triton died while it was loading the model \(Stream removed \(Socket closed\)\)"):
        await server.load("m", unnoticed)

    assert triton.trace == ["load m"]
    assert server.problem == "Triton does not answer at triton:8001: Connection refused"


async def test_a_triton_that_knows_nothing_of_the_load_has_died(triton: ScriptedTriton) -> None:
    """It came back at once and under the same name: the index tells."""
    server = serve(triton)
    triton.repository.directories.add("m")
    triton.script["load"] = [TritonDied("Socket closed")]

    with pytest.raises(ServerDied):
        await server.load("m", unnoticed)

    assert triton.trace == ["load m"]


async def test_a_triton_of_another_name_has_died(triton: ScriptedTriton) -> None:
    """Whatever its index says."""
    server = serve(triton)
    triton.repository.directories.add("a")
    await server.load("a", unnoticed)
    triton.states["m"] = "READY"
    triton.script["load"] = [TritonDied("Socket closed")]
    triton.server_name = "another"

    with pytest.raises(ServerDied):
        await server.load("m", unnoticed)


@pytest.mark.parametrize("hangs_seconds", [0, 30])
async def test_a_load_goes_on_when_its_connection_alone_has_ended(triton: ScriptedTriton, hangs_seconds: float) -> None:
    """Triton may limit the age of connections: a second call waits for the load that Triton has, in the same slot."""
    server = serve(triton, max_loading=1)
    triton.repository.directories.add("m")
    triton.states["m"] = "LOADING"
    triton.script["load"] = [TritonDied("Socket closed"), TritonDied("Socket closed")]
    sent: list[str] = []
    triton.is_away = bool(hangs_seconds)
    load = asyncio.create_task(server.load("m", lambda: sent.append("m")))
    await asyncio.sleep(hangs_seconds)
    triton.is_away = False

    await load

    assert triton.trace == ["load m", "load m", "load m", "loaded m"]
    assert sent == ["m"]
    assert triton.most_loading == 1


async def test_a_load_whose_connection_has_ended_can_be_given_up(triton: ScriptedTriton) -> None:
    """The slot is free at once; an unload waits until the index shows that Triton no longer has the load."""
    server = serve(triton, max_loading=1)
    triton.repository.directories.add("m")
    triton.script["load"] = [TritonDied("Socket closed")]
    triton.script["live"] = [0.0] + [TritonAway("no answer within 1 s")] * 1000
    load = asyncio.create_task(server.load("m", unnoticed))
    await asyncio.sleep(5)
    triton.states["m"] = "LOADING"
    await cancel(load)
    triton.script["live"] = []
    assert server.queue() is None
    unload = asyncio.create_task(server.unload("m"))
    await asyncio.sleep(5)
    assert server.obstacle("m") == "Triton has been loading the model for 10 s, and a load cannot be cancelled"
    triton.states["m"] = "READY"

    await unload

    assert triton.trace == ["load m", "unload m", "freed m"]


async def test_a_call_gets_the_next_slot_before_a_restore(triton: ScriptedTriton) -> None:
    """Also one that comes later."""
    server = serve(triton, max_loading=1)
    restores = [asyncio.create_task(server.load(name, unnoticed, yields=True)) for name in ("r1", "r2")]
    await asyncio.sleep(1)
    await asyncio.gather(server.load("call", unnoticed), *restores)

    assert triton.trace == ["load r1", "loaded r1", "load call", "loaded call", "load r2", "loaded r2"]


async def test_a_restore_that_waits_for_triton_holds_no_slot(triton: ScriptedTriton) -> None:
    """A call that comes meanwhile is first when Triton is back."""
    server = serve(triton, max_loading=1)
    triton.is_away = True
    restore = asyncio.create_task(server.load("r", unnoticed, yields=True))
    await asyncio.sleep(5)
    call = asyncio.create_task(server.load("c", unnoticed))
    await asyncio.sleep(5)
    triton.is_away = False

    await asyncio.gather(restore, call)

    assert triton.trace == ["load c", "loaded c", "load r", "loaded r"]


async def test_the_end_of_a_given_up_load_is_logged(triton: ScriptedTriton) -> None:
    """Also its failure, which nobody else hears."""
    server = serve(triton)
    with capture_logs() as logs:
        for name, failure in (("a", None), ("b", ValueError("no memory"))):
            triton.load_failure = failure
            load = asyncio.create_task(server.load(name, unnoticed))
            await asyncio.sleep(1)
            await cancel(load)
            await asyncio.sleep(10)

    assert [(log["model_id"], log["seconds"], log["cause"]) for log in logs if log["event"] == "load.ended_unwanted"] == [
        ("a", 10.0, None),
        ("b", 10.0, "no memory"),
    ]


@pytest.mark.parametrize(
    ("slots", "words"),
    [
        (1, "model m0 has held the only loading slot for 2 s"),
        (2, "models m0 (2 s) and m1 (1 s) hold both loading slots"),
        (3, "models m0 (2 s), m1 (1 s) and m2 (0 s) hold all loading slots"),
        (4, None),
    ],
)
async def test_it_says_who_holds_the_slots(triton: ScriptedTriton, slots: int, words: str | None) -> None:
    """With callers."""
    server = serve(triton, max_loading=slots)
    loads = []
    for number in range(3):
        loads.append(asyncio.create_task(server.load(f"m{number}", unnoticed)))
        await asyncio.sleep(0 if number == 2 else 1)
    await asyncio.sleep(0)

    assert server.queue() == words

    await asyncio.gather(*loads)
    assert server.queue() is None


async def test_fewer_threads_than_slots_are_told(triton: ScriptedTriton) -> None:
    """Loads with callers and one without."""
    server = serve(triton, max_loading=4, load_threads=2)
    a, b = (asyncio.create_task(server.load(name, unnoticed)) for name in "ab")
    await asyncio.sleep(2)
    full = "Triton has no free load thread (TRITON_LOAD_THREADS is 2)"

    assert server.queue() == f"the loads of models a (2 s), b (2 s) are under way: {full}"
    await cancel(b)
    assert server.queue() == (
        "the load of model b (2 s) is still in Triton, though nobody waits for the end any more; "
        f"the load of model a (2 s) is under way: {full}"
    )
    await a


@pytest.mark.parametrize("seed", range(20))
async def test_a_storm_of_cancels_never_exceeds_the_slots(triton: ScriptedTriton, seed: int) -> None:
    """ModelMesh cancels dozens of loads under churn, Triton comes and goes; afterwards every slot is free again."""
    chance = random.Random(seed)
    triton.load_seconds = 1.0
    server = serve(triton, max_loading=3, load_threads=5)

    async def one(name: str) -> None:
        await asyncio.sleep(chance.uniform(0, 10))
        task = asyncio.create_task(server.load(name, unnoticed))
        if chance.random() < 0.2:
            triton.script["load"].append(TritonAway("Connection refused"))
        await asyncio.sleep(chance.uniform(0, 4))
        task.cancel()
        await asyncio.wait({task})

    await asyncio.gather(*(one(f"m{number}") for number in range(60)))
    await asyncio.sleep(1)
    triton.script.clear()
    assert triton.most_loading == 5
    began_at = now()
    await asyncio.gather(*(server.load(name, unnoticed) for name in "abc"))

    assert now() == pytest.approx(began_at + 1.0)


async def test_close_gives_up(triton: ScriptedTriton) -> None:
    """At the end of the process nothing is waited for."""
    server = serve(triton)
    load = asyncio.create_task(server.load("a", unnoticed))
    await asyncio.sleep(1)
    await cancel(load)

    await server.close()

    assert asyncio.all_tasks() == {asyncio.current_task()}
    await server.close()
