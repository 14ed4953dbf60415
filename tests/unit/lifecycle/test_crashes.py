"""A content that kills Triton is counted, and not sent to it without an end."""

import asyncio
from unittest import mock

import pytest

from adapter.errors import CrashesTriton, ServerDied, ServerUnavailable
from adapter.lifecycle.facts import MOST_CRASHES, REMEMBERED_SECONDS, Facts
from adapter.lifecycle.lifecycle import RuntimeLifecycle
from adapter.lifecycle.states import State
from adapter.records import Content, Crashes
from tests.builders import a_spec
from tests.fakes.memory import UntoldMemory
from tests.fakes.world import World, ports
from tests.unit.lifecycle.test_restoring import Outcomes, loaded, sent, state_of

pytestmark = pytest.mark.looptime
A = a_spec("models/a", model_id="a", model_type="onnx")
B = a_spec("models/a", model_id="b", model_type="onnx")


async def crashed(lifecycle: RuntimeLifecycle, times: int) -> None:
    for _ in range(times):
        with pytest.raises((ServerDied, CrashesTriton)):
            await lifecycle.load(A)


async def test_after_three_deaths_nothing_is_pulled_or_sent_and_the_text_says_what_ends_it(
    lifecycle: RuntimeLifecycle, world: World
) -> None:
    world.deadly.add("e1")
    await crashed(lifecycle, 3)
    await asyncio.sleep(3600)
    world.trace.clear()

    with pytest.raises(CrashesTriton) as refusal:
        await lifecycle.load(A)

    assert world.trace == ["open a", "remove a"]
    text = refusal.value.text
    assert "the last time 1 h 0 min ago" in text
    assert "type, path, storage key or parameters change, or 23 h" in text or "or 22 h 59 min pass" in text


async def test_a_changed_content_is_sent(lifecycle: RuntimeLifecycle, world: World) -> None:
    world.deadly.add("e1")
    await crashed(lifecycle, 3)
    world.add("models/a", etag="e2")

    await lifecycle.load(A)

    assert world.memory == {"a": "READY"}


async def test_a_success_forgets_the_deaths_before_it(lifecycle: RuntimeLifecycle, world: World) -> None:
    world.deadly.add("e1")
    await crashed(lifecycle, 2)
    world.deadly.clear()
    await lifecycle.load(A)
    await lifecycle.unload("a")
    world.deadly.add("e1")

    await crashed(lifecycle, 2)
    with pytest.raises(CrashesTriton):
        await lifecycle.load(A)


async def test_a_new_process_knows_the_deaths(lifecycle: RuntimeLifecycle, world: World, make: object) -> None:
    world.deadly.add("e1")
    await crashed(lifecycle, 3)
    again = make()  # type: ignore[operator]
    again.start()

    with pytest.raises(CrashesTriton):
        await again.load(A)


async def test_two_innocents_beside_a_deadly_one_are_loaded_in_the_end(lifecycle: RuntimeLifecycle, world: World) -> None:
    """What was in Triton at the same moment is counted as well, until it succeeds."""
    world.add("models/b", etag="innocent")
    world.deadly.add("e1")
    innocent = a_spec("models/b", model_id="b", model_type="onnx")
    for _ in range(2):
        results = await asyncio.gather(lifecycle.load(A), lifecycle.load(innocent), return_exceptions=True)
        assert all(isinstance(result, ServerDied) for result in results)

    await lifecycle.load(innocent)

    assert [crashes.count for crashes in world.crashes.values()] == [2]


async def test_a_death_right_after_the_answer_of_the_load_is_counted(lifecycle: RuntimeLifecycle, world: World) -> None:
    """Triton has answered, and has nothing any more when it is measured."""
    world.hold("measure")
    load = asyncio.create_task(lifecycle.load(A))
    await world.until_held("measure")
    world.restart_triton()
    world.let_go("measure")

    with pytest.raises(ServerUnavailable, match="lost the model just after"):
        await load
    assert [crashes.count for crashes in world.crashes.values()] == [1]
    assert world.is_empty


def test_deaths_are_counted_within_a_day_of_the_last_one() -> None:
    now = 0.0
    world = World()
    journal = ports(world).journal
    journal.now = lambda: now  # type: ignore[method-assign] # a clock of the test's own
    counts = Facts(mock.Mock(), mock.Mock(), journal, UntoldMemory())
    content = Content("spec", "listing", "crash")

    assert [counts.count_death("crash") for _ in range(MOST_CRASHES)] == [1, 2, 3]
    now = REMEMBERED_SECONDS - 1
    with pytest.raises(CrashesTriton, match="23 h 59 min ago"):
        counts.check_deaths(content)
    now = REMEMBERED_SECONDS
    counts.check_deaths(content)
    assert counts.count_death("crash") == 1


def test_counts_of_contents_that_nobody_asks_for_any_more_are_forgotten() -> None:
    now = 0.0
    world = World()
    journal = ports(world).journal
    journal.now = lambda: now  # type: ignore[method-assign] # a clock of the test's own
    counts = Facts(mock.Mock(), mock.Mock(), journal, UntoldMemory())

    for number in range(10):
        now = float(number)
        counts.count_death(f"crash{number}")

    now = REMEMBERED_SECONDS + 5
    counts.count_death("crash")
    assert list(world.crashes) == [*(f"crash{number}" for number in range(6, 10)), "crash"]


def test_a_death_that_is_still_to_come_counts_for_nothing() -> None:
    """Whoever can write the volume can write such a line; it would ban a content for ever."""
    world = World()
    journal = ports(world).journal
    journal.now = lambda: 10.0  # type: ignore[method-assign] # a clock of the test's own
    world.crashes["crash"] = Crashes(digest="crash", count=3, last=1e9)

    Facts(mock.Mock(), mock.Mock(), journal, UntoldMemory()).check_deaths(Content("spec", "listing", "crash"))


# ---- in a restore


async def test_a_content_that_is_banned_is_not_restored(lifecycle: RuntimeLifecycle, world: World) -> None:
    """It serves under this id, and has killed Triton under another one."""
    await lifecycle.load(B)
    counts = Facts(mock.Mock(), mock.Mock(), ports(world).journal, UntoldMemory())
    for _ in range(MOST_CRASHES):
        counts.count_death(world.records["b"].content.crash)
    world.trace.clear()

    world.restart_triton()
    await asyncio.sleep(6)

    assert sent(world) == []
    assert state_of(lifecycle, "b") is State.ABSENT


async def test_a_model_that_kills_triton_in_its_restore_becomes_absent_and_the_others_come_back(
    lifecycle: RuntimeLifecycle, world: World
) -> None:
    outcomes = Outcomes()
    await loaded(lifecycle, world, 6)
    world.deadly.add("e0")

    world.restart_triton()
    await asyncio.sleep(30)

    assert state_of(lifecycle, "m0") is State.ABSENT
    absent = [f"m{number}" for number in range(6) if state_of(lifecycle, f"m{number}") is State.ABSENT]
    assert set(world.memory) == {f"m{number}" for number in range(6)} - set(absent)
    assert len(absent) <= 2, "those that were in Triton at that moment"
    assert sent(world).count("m0") == 1
    assert outcomes.new["crashed"] == len(absent)
    assert lifecycle.notice() is None
    assert world.crashes
