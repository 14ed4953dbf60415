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

    async def look(self, choose: Callable[[], frozenset[str]]) -> Rows:
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


async def test_a_new_waiter_resets_the_pause() -> None:
    """Its model may be gone at once."""
    index = ScriptedIndex([row("old"), row("new")])
    watch = watch_of(index)
    old = asyncio.create_task(watch.gone("old"))
    await asyncio.sleep(1.03)
    index.steps = [[row("old"), row("new", "UNAVAILABLE")]]
    joined_at = asyncio.get_running_loop().time()

    await watch.gone("new")

    assert asyncio.get_running_loop().time() == joined_at
    await asyncio.sleep(0.04)
    assert [round(at - joined_at, 4) for at in index.asked_at if at >= joined_at] == [0.0, 0.005, 0.015, 0.035]
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
