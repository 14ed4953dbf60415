"""The unload watch: gone means listed and free, asked as rarely as possible, and never believed too early."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from adapter.errors import AdapterError
from adapter.model import ServerModel
from adapter.triton.unload_watch import UnloadWatch

pytestmark = pytest.mark.looptime

Rows = Sequence[ServerModel] | None


class ScriptedIndex:
    """Answers with the steps in turn, the last one for ever, and notes when it was asked."""

    def __init__(self, *steps: Rows | Exception, seconds: float = 0.0) -> None:
        self.steps = list(steps)
        self.seconds = seconds
        self.asked_at: list[float] = []
        self.asked_for: list[frozenset[str]] = []
        self.restored: list[str] = []
        self.rest = 0.0
        """Seconds that pass before a question is sent."""

    async def look(self, choose: Callable[[], frozenset[str]]) -> Rows:
        if self.rest:
            await asyncio.sleep(self.rest)
        names = choose()
        self.asked_at.append(asyncio.get_running_loop().time())
        self.asked_for.append(names)
        step = self.steps.pop(0) if len(self.steps) > 1 else self.steps[0]
        await asyncio.sleep(self.seconds)
        if isinstance(step, Exception):
            raise step
        return step

    async def restore(self, name: str) -> None:
        self.restored.append(name)

    def pauses(self) -> list[float]:
        """Seconds from the end of each call to the next one."""
        return [round(later - earlier - self.seconds, 4) for earlier, later in zip(self.asked_at, self.asked_at[1:], strict=False)]


def row(name: str = "m", state: str = "UNLOADING", version: str = "1") -> ServerModel:
    return ServerModel(name, version, state, "")


HELD = [row()]
GONE = [row(state="UNAVAILABLE")]


def watch_of(index: ScriptedIndex) -> UnloadWatch:
    return UnloadWatch(look=index.look, restore=index.restore)


async def test_no_directory_is_made_for_a_wait_that_has_been_given_up() -> None:
    """Its caller has gone while the index was asked: nobody would take the directory out again."""
    index = ScriptedIndex([], seconds=1.0)
    waiting = asyncio.create_task(watch_of(index).gone("m"))
    while len(index.asked_at) < 3:
        await asyncio.sleep(0.1)
    waiting.cancel()
    await asyncio.sleep(5)

    assert index.restored == []


async def test_the_first_look_is_at_once() -> None:
    """A model that is gone costs one call and no wait."""
    index = ScriptedIndex(GONE)

    await watch_of(index).gone("m")

    assert len(index.asked_at) == 1
    assert asyncio.get_running_loop().time() == index.asked_at[0]


@pytest.mark.parametrize("state", ["READY", "LOADING", "UNLOADING", "SOMETHING NEW"])
async def test_every_state_but_two_holds_memory(state: str) -> None:
    """A state that we do not know is no reason to free the space."""
    index = ScriptedIndex([row(state=state)], GONE)

    await watch_of(index).gone("m")

    assert len(index.asked_at) == 2


async def test_an_empty_state_is_gone() -> None:
    """A directory that was never loaded, or a Triton that has restarted."""
    index = ScriptedIndex([row(state="", version="")])

    await watch_of(index).gone("m")

    assert len(index.asked_at) == 1


async def test_all_versions_must_be_gone() -> None:
    """One that is left holds memory."""
    half = [row(state="UNAVAILABLE", version="1"), row(version="2")]
    index = ScriptedIndex(half, half, [row(state="UNAVAILABLE", version="1"), row(state="UNAVAILABLE", version="2")])

    await watch_of(index).gone("m")

    assert len(index.asked_at) == 3


async def test_other_models_do_not_matter() -> None:
    """Only rows of the name count."""
    index = ScriptedIndex([row("other", "READY"), *GONE])

    await watch_of(index).gone("m")

    assert len(index.asked_at) == 1


async def test_the_pause_grows_to_a_tenth_of_a_second() -> None:
    """5, 10, 20, 40, 80, then 100 ms."""
    index = ScriptedIndex(*[HELD] * 8, GONE)

    await watch_of(index).gone("m")

    assert index.pauses() == [0.005, 0.01, 0.02, 0.04, 0.08, 0.1, 0.1, 0.1]


async def test_a_failed_call_is_repeated() -> None:
    """It is never taken as gone."""
    index = ScriptedIndex(None, None, None, GONE)

    await watch_of(index).gone("m")

    assert len(index.asked_at) == 4


async def test_a_missing_row_proves_nothing() -> None:
    """The directory is made again after three looks, and the wait goes on until the row says so."""
    index = ScriptedIndex([], [], [], HELD, GONE)

    await watch_of(index).gone("m")

    assert index.restored == ["m"]
    assert len(index.asked_at) == 5


async def test_a_row_that_is_missing_now_and_then_restores_nothing() -> None:
    """A listing races with renames."""
    index = ScriptedIndex([], [], HELD, [], [], HELD, GONE)

    await watch_of(index).gone("m")

    assert index.restored == []


async def test_one_poller_serves_all() -> None:
    """A hundred waiters cost the calls of one."""
    names = [f"m{number}" for number in range(100)]
    index = ScriptedIndex([row(name) for name in names], [row(name, "UNAVAILABLE") for name in names])
    watch = watch_of(index)

    await asyncio.gather(*(watch.gone(name) for name in names))

    assert len(index.asked_at) == 2
    assert index.asked_for[0] == frozenset(names)


async def test_a_new_waiter_does_not_wait_for_the_pause_of_the_others() -> None:
    """Its model may be gone at once. That look serves the others too."""
    index = ScriptedIndex([row("old"), row("new")])
    watch = watch_of(index)
    old = asyncio.create_task(watch.gone("old"))
    await asyncio.sleep(1.03)
    index.steps = [[row("old"), row("new", "UNAVAILABLE")]]
    joined_at = asyncio.get_running_loop().time()

    await watch.gone("new")

    assert asyncio.get_running_loop().time() == joined_at
    await asyncio.sleep(0.09)
    assert [round(at - joined_at, 4) for at in index.asked_at if at >= joined_at] == [0.0]
    old.cancel()
    await asyncio.wait({old})


async def test_an_answer_from_before_the_wait_is_not_believed() -> None:
    """It could show the state before the load that was just unloaded."""
    index = ScriptedIndex([row("old"), row("new", "UNAVAILABLE")], [row("old"), row("new")], seconds=0.01)
    watch = watch_of(index)
    old = asyncio.create_task(watch.gone("old"))
    await asyncio.sleep(0.005)
    new = asyncio.create_task(watch.gone("new"))
    await asyncio.sleep(0.5)

    assert not new.done()
    index.steps = [[row("old", "UNAVAILABLE"), row("new", "UNAVAILABLE")]]
    await asyncio.gather(old, new)


async def test_nobody_waits_nobody_asks() -> None:
    """Neither after the end nor after a cancel."""
    index = ScriptedIndex(HELD)
    watch = watch_of(index)
    waiting = asyncio.create_task(watch.gone("m"))
    await asyncio.sleep(1)
    waiting.cancel()
    await asyncio.wait({waiting})
    await asyncio.sleep(1)
    asked = len(index.asked_at)

    await asyncio.sleep(100)

    assert len(index.asked_at) == asked
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_cancelled_waiter_leaves_the_others() -> None:
    """Each waits for itself."""
    index = ScriptedIndex([row("a"), row("b")])
    watch = watch_of(index)
    a, b = asyncio.create_task(watch.gone("a")), asyncio.create_task(watch.gone("b"))
    await asyncio.sleep(0.5)
    a.cancel()
    await asyncio.wait({a})
    index.steps = [[row("a"), row("b", "UNAVAILABLE")]]

    await b

    assert a.cancelled()


async def test_a_waiter_cancelled_during_the_call_does_not_disturb_its_answer() -> None:
    """The row is there for one that has gone."""
    index = ScriptedIndex([row("a", "UNAVAILABLE"), row("b", "UNAVAILABLE")], seconds=0.01)
    watch = watch_of(index)
    a, b = asyncio.create_task(watch.gone("a")), asyncio.create_task(watch.gone("b"))
    await asyncio.sleep(0.005)
    a.cancel()

    await b

    assert len(index.asked_at) == 1


async def test_a_failure_reaches_every_waiter() -> None:
    """What is no answer of Triton's must not become an endless wait; the next waiter begins anew."""
    index = ScriptedIndex(AdapterError("not ours"), GONE)
    watch = watch_of(index)

    results = await asyncio.gather(watch.gone("a"), watch.gone("b"), return_exceptions=True)

    assert [str(result) for result in results] == ["not ours", "not ours"]
    await watch.gone("m")


async def test_a_directory_that_cannot_be_made_fails_its_own_waiter() -> None:
    """The others go on."""
    index = ScriptedIndex([row("b")])

    async def refuse(name: str) -> None:
        raise AdapterError(f"no directory for {name}")

    watch = UnloadWatch(look=index.look, restore=refuse)
    b = asyncio.create_task(watch.gone("b"))

    with pytest.raises(AdapterError, match="no directory for a"):
        await watch.gone("a")

    index.steps = [[row("b", "UNAVAILABLE")]]
    await b


async def test_it_says_what_it_saw_last() -> None:
    """For the text of an unload that did not end."""
    index = ScriptedIndex([row(state="READY")], [row(version="1"), row(version="2")])
    watch = watch_of(index)
    assert watch.sight("m") is None

    waiting = asyncio.create_task(watch.gone("m"))
    await asyncio.sleep(12.2)
    waiting.cancel()
    await asyncio.wait({waiting})

    assert watch.sight("m") == "version 1 has been UNLOADING and version 2 has been UNLOADING for 12 s"


async def test_a_row_that_never_comes_is_said() -> None:
    """Triton may look at another folder."""
    watch = watch_of(ScriptedIndex([]))
    waiting = asyncio.create_task(watch.gone("m"))
    await asyncio.sleep(5.1)
    waiting.cancel()
    await asyncio.wait({waiting})

    assert watch.sight("m") == "the model has been missing from Triton's index for 5 s"


async def test_close_ends_the_wait() -> None:
    """At the end of the process."""
    watch = watch_of(ScriptedIndex(HELD))
    waiting = asyncio.create_task(watch.gone("m"))
    await asyncio.sleep(1)

    await watch.close()

    await asyncio.wait({waiting})
    assert waiting.cancelled()
    assert asyncio.all_tasks() == {asyncio.current_task()}


# ---- when it looks


class Freed:
    """An index that shows each model as freed so long after it was unloaded."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.told_at: dict[str, float] = {}
        self.asked_at: list[float] = []
        self.rest = 0.0

    async def look(self, choose: Callable[[], frozenset[str]]) -> Rows:
        await asyncio.sleep(self.rest)
        names, at = choose(), asyncio.get_running_loop().time()
        self.asked_at.append(at)
        await asyncio.sleep(0.003)
        return [row(name, "UNAVAILABLE" if at >= self.told_at[name] + self.seconds else "UNLOADING") for name in names]

    async def restore(self, name: str) -> None:
        raise AssertionError

    async def known(self, kind: str = "kind") -> UnloadWatch:
        """It knows how long models of this kind take."""
        watch = UnloadWatch(look=self.look, restore=self.restore)
        for _ in range(2):
            await self.unload(watch, kind, kind)
        return watch

    async def unload(self, watch: UnloadWatch, name: str = "m", kind: str | None = "kind") -> tuple[float, int]:
        """Seconds from the answer to the end of the wait, and looks."""
        now = asyncio.get_running_loop().time
        looks = len(self.asked_at)
        told_at = self.told_at[name] = now()
        await watch.gone(name, kind)
        return now() - told_at, len(self.asked_at) - looks


@pytest.mark.parametrize("seconds", [0.0, 0.002, 0.008, 0.05, 1.2])
async def test_looks_are_aimed_at_the_end_once_a_kind_is_known(seconds: float) -> None:
    """The wait is little longer than it must be, with two looks where pauses that double from 5 ms on need up to sixteen."""
    index = Freed(seconds)
    watch = UnloadWatch(look=index.look, restore=index.restore)
    for _ in range(5):
        await index.unload(watch)

    seen = [await index.unload(watch) for _ in range(50)]

    waits, looks = [wait for wait, _ in seen], [looks for _, looks in seen]
    assert sum(waits) / len(waits) < 1.05 * seconds + 0.007
    assert sum(looks) / len(looks) < 2.1


async def test_each_kind_is_learned_for_itself() -> None:
    """A light model does not wait for what a heavy one needs."""
    index = Freed(1.0)
    watch = UnloadWatch(look=index.look, restore=index.restore)
    for _ in range(5):
        await index.unload(watch, kind="heavy")
    index.seconds = 0.0

    assert await index.unload(watch, kind="light") == (pytest.approx(0.003), 1)


async def test_a_load_that_was_refused_is_looked_after_at_once_and_teaches_nothing() -> None:
    index = Freed(1.0)
    watch = UnloadWatch(look=index.look, restore=index.restore)
    for _ in range(5):
        await index.unload(watch)
    index.seconds = 0.0
    for _ in range(20):
        assert await index.unload(watch, kind=None) == (pytest.approx(0.003), 1)
    index.seconds = 1.0

    _, looks = await index.unload(watch)

    assert looks <= 3


async def test_one_unload_that_took_long_does_not_make_the_next_one_late() -> None:
    """An inference had to end first."""
    index = Freed(0.01)
    watch = UnloadWatch(look=index.look, restore=index.restore)
    for _ in range(5):
        await index.unload(watch)
    index.seconds = 60.0
    await index.unload(watch)
    index.seconds = 0.01

    wait, looks = await index.unload(watch)

    assert wait < 0.02
    assert looks <= 2


async def test_a_kind_is_not_known_by_one_unload_alone() -> None:
    """The very first one may be the one that waits for an inference."""
    index = Freed(60.0)
    watch = UnloadWatch(look=index.look, restore=index.restore)
    await index.unload(watch)
    index.seconds = 0.0

    assert await index.unload(watch) == (pytest.approx(0.003), 1)


async def test_a_kind_that_has_become_quick_is_learned_anew() -> None:
    index = Freed(1.0)
    watch = await index.known()
    index.seconds = 0.0

    waits = [(await index.unload(watch))[0] for _ in range(60)]

    assert waits == sorted(waits, reverse=True)
    assert waits[20] < 0.2
    assert waits[-1] < 0.006


async def test_a_look_that_had_to_wait_for_its_rest_teaches_nothing() -> None:
    """It came much later than it was due: whether an earlier one would have been in vain is not known."""
    index = Freed(0.05)
    watch = await index.known()
    index.rest = 1.0
    for _ in range(50):
        await index.unload(watch)
    index.rest = 0.0

    assert (await index.unload(watch))[1] == 1


async def test_one_look_serves_all_also_those_that_are_not_due_yet() -> None:
    """And what is not due yet is not asked for sooner next time."""
    index = Freed(0.5)
    watch = await index.known("slow")
    asked = len(index.asked_at)
    slow = asyncio.create_task(index.unload(watch, "slow", "slow"))
    await asyncio.sleep(0.1)
    index.seconds = 0.0

    await index.unload(watch, "quick", "quick")
    await asyncio.sleep(0.001)

    assert slow.done(), "the look for the other one has shown it too"
    assert len(index.asked_at) == asked + 1


async def test_a_wait_that_is_given_up_before_its_look_costs_none() -> None:
    """And leaves nothing running."""
    index = Freed(1.0)
    watch = await index.known()
    asked = len(index.asked_at)
    waiting = asyncio.create_task(index.unload(watch))
    await asyncio.sleep(0.1)
    waiting.cancel()
    await asyncio.wait({waiting})
    await asyncio.sleep(0)

    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert len(index.asked_at) == asked


async def test_those_who_wait_for_long_share_their_looks() -> None:
    """However they came; and the longer they have waited, the rarer they are."""
    index = Freed(1e9)
    watch = UnloadWatch(look=index.look, restore=index.restore)
    unloads = []
    for number in range(50):
        unloads.append(asyncio.create_task(index.unload(watch, f"m{number}", f"kind {number}")))
        await asyncio.sleep(0.013)
    await asyncio.sleep(1)
    looks = len(index.asked_at)
    await asyncio.sleep(10)
    assert len(index.asked_at) - looks <= 101
    await asyncio.sleep(40)
    looks = len(index.asked_at)
    await asyncio.sleep(10)
    assert 9 <= len(index.asked_at) - looks <= 11
    for unload in unloads:
        unload.cancel()
    await asyncio.wait(unloads)


async def test_a_failed_call_that_was_not_sent_is_repeated_after_a_pause() -> None:
    """Triton is away: who waits must not spin."""
    asked_at: list[float] = []

    async def look(choose: Callable[[], frozenset[str]]) -> Rows:
        asked_at.append(asyncio.get_running_loop().time())
        if len(asked_at) < 4:
            return None
        choose()
        return GONE

    await UnloadWatch(look=look, restore=ScriptedIndex(GONE).restore).gone("m")

    assert asked_at == [pytest.approx(at) for at in (0.0, 0.005, 0.015, 0.035)]
