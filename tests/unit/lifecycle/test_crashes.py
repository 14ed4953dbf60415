"""A content that kills Triton is counted, and not sent to it without an end."""

import asyncio
from unittest import mock

import pytest

from adapter.errors import CrashesTriton, ServerDied, ServerUnavailable
from adapter.lifecycle.facts import MOST_CRASHES, REMEMBERED_SECONDS, Facts
from adapter.lifecycle.lifecycle import RuntimeLifecycle
from adapter.records import Content, Crashes
from tests.builders import a_spec
from tests.fakes.memory import UntoldMemory
from tests.fakes.world import World, ports

pytestmark = pytest.mark.looptime
A = a_spec("models/a", model_id="a", model_type="onnx")


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


def test_a_death_that_is_still_to_come_counts_for_nothing() -> None:
    """Whoever can write the volume can write such a line; it would ban a content for ever."""
    world = World()
    journal = ports(world).journal
    journal.now = lambda: 10.0  # type: ignore[method-assign] # a clock of the test's own
    world.crashes["crash"] = Crashes(digest="crash", count=3, last=1e9)

    Facts(mock.Mock(), mock.Mock(), journal, UntoldMemory()).check_deaths(Content("spec", "listing", "crash"))


# ---- in a restore
