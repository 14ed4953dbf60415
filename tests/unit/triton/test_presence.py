"""Waiting for Triton: patient, not eager, and said once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import grpc
import pytest
from structlog.testing import capture_logs

from adapter.errors import ModelRefused, WrongServer
from adapter.telemetry.metrics import REGISTRY
from adapter.triton.client import AnswerLost, CallRefused, PortClosed, TritonAway, TritonDied
from adapter.triton.presence import Presence

pytestmark = pytest.mark.looptime


class Asked:
    """Is away until `live_from`; every question is noted."""

    target = "triton:8001"

    def __init__(self, live_from: float = 0.0) -> None:
        self.live_from = live_from
        self.asked_at: list[float] = []
        self.failure: Exception = TritonAway("Connection refused")
        self.names: list[str | Exception] = ["triton"]
        """What the next questions for the name bring; the last one for ever."""
        self.names_asked = 0
        self.answer_seconds = 0.0
        self.on_change: Callable[[bool], None] | None = None

    async def live(self, timeout_seconds: float) -> None:
        now = asyncio.get_running_loop().time()
        self.asked_at.append(round(now, 4))
        if self.answer_seconds:
            await asyncio.sleep(self.answer_seconds)
        if now < self.live_from:
            raise self.failure

    async def name(self, timeout_seconds: float) -> str:
        self.names_asked += 1
        name = self.names.pop(0) if len(self.names) > 1 else self.names[0]
        if isinstance(name, Exception):
            raise name
        return name

    async def runs(self, timeout_seconds: float) -> bool:
        return True

    async def follow_connection(self, on_change: Callable[[bool], None]) -> None:
        self.on_change = on_change
        await asyncio.Event().wait()

    def change(self, is_connected: bool) -> None:
        assert self.on_change is not None
        self.on_change(is_connected)


def presence_of(asked: Asked) -> Presence:
    return Presence(asked)


def restarts() -> float:
    return REGISTRY.get_sample_value("triton_adapter_triton_restarts_total") or 0


@asynccontextmanager
async def watched(asked: Asked) -> AsyncIterator[Presence]:
    """With its watch, after the first question."""
    presence = Presence(asked)
    watch = asyncio.create_task(presence.watch())
    await asyncio.sleep(0)
    await asyncio.sleep(0.1)
    yield presence
    watch.cancel()
    await asyncio.wait({watch})
    assert watch.cancelled()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def has_returned(presence: Presence, seconds: float = 1.0) -> bool | None:
    """What is told within the time; None: nothing."""
    try:
        async with asyncio.timeout(seconds):
            return await presence.returned()
    except TimeoutError:
        return None


async def test_a_live_triton_costs_one_question() -> None:
    """And for a quarter of a second none."""
    asked = Asked()
    presence = presence_of(asked)

    await presence.wait()
    await asyncio.sleep(0.2)
    await presence.wait()
    await asyncio.sleep(0.2)
    await presence.wait()

    assert asked.asked_at == [0.0, 0.4]


async def test_an_answer_to_a_call_is_an_answer() -> None:
    """So calls that follow each other ask nothing in between."""
    asked = Asked()
    presence = presence_of(asked)

    async def call() -> int:
        await asyncio.sleep(0.2)
        return 7

    for _ in range(5):
        assert await presence.until_taken(call) == 7
        await asyncio.sleep(0.2)
    assert asked.asked_at == [0.0]

    await asyncio.sleep(0.1)
    await presence.wait()
    assert asked.asked_at == [0.0, 2.1]


async def test_who_waits_after_a_question_that_was_asked_ahead_has_its_answer() -> None:
    """Whether it has come already or not; asked ahead again while it is on its way, or fresh, nothing is asked."""
    asked = Asked()
    asked.answer_seconds = 0.2
    presence = presence_of(asked)

    presence.ask_ahead()
    await asyncio.sleep(0.1)
    presence.ask_ahead()
    await presence.wait()
    presence.ask_ahead()
    await asyncio.sleep(0.1)
    await presence.wait()

    assert asyncio.get_running_loop().time() == pytest.approx(0.3)
    assert asked.asked_at == [0.0]


async def test_a_question_asked_ahead_that_finds_nobody_is_no_answer() -> None:
    """Who waits asks again, until there is one."""
    asked = Asked(live_from=1.0)
    presence = presence_of(asked)

    presence.ask_ahead()
    await asyncio.sleep(0.5)
    assert not presence.is_live
    await presence.wait()

    assert presence.is_live
    assert asyncio.get_running_loop().time() >= 1.0
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_an_answer_from_before_a_break_proves_nothing_after_it() -> None:
    """Triton was another process when it was asked."""
    asked = Asked()
    presence = presence_of(asked)

    async def call() -> None:
        presence.lost(TritonDied("Socket closed"))
        await presence.wait()
        await asyncio.sleep(0.2)

    await presence.until_taken(call)
    await asyncio.sleep(0.1)
    await presence.wait()

    assert asked.asked_at == [0.0, 0.0, 0.3]


async def test_the_questions_become_rarer() -> None:
    """From 50 ms to 200 ms: a question to a closed port costs nothing."""
    asked = Asked(live_from=1.0)

    await presence_of(asked).wait()

    pauses = [round(later - earlier, 4) for earlier, later in zip(asked.asked_at, asked.asked_at[1:], strict=False)]
    assert pauses == [0.05, 0.1, 0.2, 0.2, 0.2, 0.2, 0.2]


async def test_a_change_is_said_once() -> None:
    """However many questions it took."""
    asked = Asked(live_from=10.0)
    presence = presence_of(asked)
    with capture_logs() as logs:
        first = asyncio.create_task(presence.wait())
        await asyncio.sleep(5)
        assert presence.problem == "Triton does not answer at triton:8001: Connection refused"
        assert REGISTRY.get_sample_value("triton_adapter_triton_up") == 0
        await first
        assert presence.problem is None
        assert REGISTRY.get_sample_value("triton_adapter_triton_up") == 1
        asked.live_from = 20.0
        await asyncio.sleep(1)
        await presence.wait()

    assert [(log["event"], log["target"], log.get("cause")) for log in logs] == [
        ("triton.away", "triton:8001", "Connection refused"),
        ("triton.answered", "triton:8001", None),
    ] * 2


async def test_before_the_first_question_it_is_not_there() -> None:
    """Readiness must not be green by default."""
    presence = presence_of(Asked())

    assert presence.problem == "Triton at triton:8001 was not asked yet"


async def test_something_else_on_the_port_is_waited_for_too() -> None:
    """Its words are in the problem."""
    asked = Asked(live_from=1.0)
    asked.failure = AnswerLost("Triton's answer cannot be parsed")
    presence = presence_of(asked)
    waiting = asyncio.create_task(presence.wait())
    await asyncio.sleep(0.3)

    assert presence.problem == "Triton does not answer at triton:8001: Triton's answer cannot be parsed"
    asked.failure = WrongServer("it is restricted")
    await waiting


@pytest.mark.parametrize("failure", [TritonAway("Server exiting"), TritonDied("Socket closed")])
async def test_a_call_that_was_not_taken_is_repeated(failure: TritonAway) -> None:
    """With pauses, also when Triton says that it is live all the while."""
    asked = Asked()
    called_at: list[float] = []

    async def call() -> str:
        called_at.append(round(asyncio.get_running_loop().time(), 4))
        if len(called_at) < 4:
            raise failure
        return "answer"

    assert await presence_of(asked).until_taken(call) == "answer"
    assert called_at == [0.0, 0.05, 0.15, 0.35]


async def test_other_failures_come_through() -> None:
    """They are answers."""

    async def call() -> None:
        raise ModelRefused("no")

    with pytest.raises(ModelRefused, match="no"):
        await presence_of(Asked()).until_taken(call)


async def test_a_call_that_found_nobody_makes_the_next_one_ask() -> None:
    """The quarter of a second is over then."""
    asked = Asked()
    presence = presence_of(asked)
    await presence.wait()
    presence.lost(TritonDied("Socket closed"))
    assert presence.problem is not None

    await presence.wait()

    assert asked.asked_at == [0.0, 0.0]
    assert presence.problem is None


async def test_the_watch_asks_for_ever() -> None:
    """Every 1.5 s a Triton that answers, every 0.2 s one that is away."""
    asked = Asked(live_from=0.5)
    async with watched(asked) as presence:
        await asyncio.sleep(4.0)
        assert presence.problem is None

    assert asked.asked_at == [0.0, 0.2, 0.4, 0.6, 2.1, 3.6]


async def test_a_connection_that_ends_is_noticed_at_once() -> None:
    """Not by the next question, which may be 1.5 s away."""
    asked = Asked()
    async with watched(asked) as presence:
        asked.live_from = 10.0
        asked.change(False)
        await asyncio.sleep(0.03)

        assert presence.problem is not None


async def test_a_connection_that_comes_is_noticed_at_once() -> None:
    """Also by those who wait."""
    asked = Asked(live_from=5.01)
    async with watched(asked) as presence:
        await asyncio.sleep(4.92)
        asked.change(True)
        await presence.wait()

        assert asyncio.get_running_loop().time() < 5.1


async def test_a_connection_that_flaps_is_no_reason_to_spin() -> None:
    """Something on the port may take connections and break them."""
    asked = Asked()
    async with watched(asked):
        for _ in range(1000):
            asked.change(True)
            asked.change(False)
            await asyncio.sleep(0.001)

    assert len(asked.asked_at) < 60


async def test_the_first_answer_is_no_return() -> None:
    """Nothing was known of Triton before, whatever was met on its port."""
    asked = Asked(live_from=3.0)
    asked.failure = PortClosed("Connection refused")
    before = restarts()
    async with watched(asked) as presence:
        asked.change(True)

        assert await has_returned(presence, 10) is None
    assert restarts() == before


async def test_a_connection_that_broke_is_a_return_that_proves_nothing() -> None:
    """Triton may limit the age of connections."""
    before = restarts()
    asked = Asked()
    async with watched(asked) as presence:
        asked.change(False)

        assert await has_returned(presence) is False
        assert await has_returned(presence, 10) is None
        assert asked.names_asked == 2
        assert presence.restarts == 0
    assert restarts() == before


async def test_a_silence_is_a_return_that_proves_nothing() -> None:
    """As after SIGSTOP for 20 s."""
    asked = Asked()
    async with watched(asked) as presence:
        asked.failure = TritonAway("no answer within 1 s")
        asked.live_from = 20.0

        assert await has_returned(presence, 15) is None
        assert await has_returned(presence, 10) is False
        assert presence.restarts == 0


async def test_a_closed_port_proves_another_process() -> None:
    """Known before the new one answers; counted once, however often it is confirmed."""
    before = restarts()
    asked = Asked()
    async with watched(asked) as presence:
        asked.failure = PortClosed("Connection refused")
        asked.live_from = 5.0
        asked.change(False)
        await asyncio.sleep(1)
        assert presence.restarts == 1

        assert await has_returned(presence, 10) is True
        assert presence.restarts == 1
        presence.confirm_restart()
        presence.confirm_restart()
    assert restarts() == before + 1


async def test_another_name_proves_another_process() -> None:
    """A restart so quick that nobody met a closed port."""
    before = restarts()
    asked = Asked()
    asked.names = ["a", "b"]
    async with watched(asked) as presence:
        asked.change(False)

        assert await has_returned(presence) is True
        assert presence.restarts == 1
    assert restarts() == before + 1


async def test_what_the_index_confirms_is_counted_once_for_each_return() -> None:
    """Where neither port nor name has told."""
    before = restarts()
    asked = Asked()
    async with watched(asked) as presence:
        for _ in range(2):
            asked.change(False)
            assert await has_returned(presence) is False
            presence.confirm_restart()
            presence.confirm_restart()
    assert restarts() == before + 2


async def test_returns_while_nobody_waits_are_told_as_one() -> None:
    """If any of them was certainly another process, that is told."""
    asked = Asked()
    async with watched(asked) as presence:
        asked.names = ["b"]
        asked.change(False)
        await asyncio.sleep(1)
        asked.change(False)
        await asyncio.sleep(1)

        assert await has_returned(presence, 0.001) is True
        assert await has_returned(presence, 10) is None


async def test_whoever_gives_up_waiting_takes_no_return_along() -> None:
    """The next one is told."""
    asked = Asked()
    async with watched(asked) as presence:
        waiting = asyncio.create_task(presence.returned())
        await asyncio.sleep(0)
        asked.change(False)
        waiting.cancel()
        await asyncio.wait({waiting})

        assert await has_returned(presence) is False


async def test_an_answer_that_may_be_older_than_the_break_is_not_taken() -> None:
    """The Triton that gave it may be gone: its return would be told before the new one is there."""
    asked = Asked()
    asked.names = ["a", "a", "b"]
    asked.answer_seconds = 0.05
    async with watched(asked) as presence:
        asked.change(False)
        await asyncio.sleep(0.03)
        asked.change(False)

        assert await has_returned(presence) is True
        assert asked.names_asked == 3


@pytest.mark.parametrize("failure", [CallRefused(grpc.StatusCode.INTERNAL, "no"), AnswerLost("cannot be parsed")])
async def test_a_name_that_is_not_told_proves_nothing(failure: Exception) -> None:
    """Triton answers all the same."""
    asked = Asked()
    asked.names = ["a", failure, "a"]
    async with watched(asked) as presence:
        for _ in range(2):
            asked.change(False)
            assert await has_returned(presence) is False
        assert presence.problem is None


async def test_a_triton_that_goes_before_it_tells_its_name_is_away() -> None:
    """It has not come back yet."""
    asked = Asked()
    asked.names = ["a", TritonDied("Socket closed"), "a"]
    async with watched(asked) as presence:
        asked.change(False)
        await asyncio.sleep(0.01)
        assert presence.problem == "Triton does not answer at triton:8001: Socket closed"

        assert await has_returned(presence) is False


@pytest.mark.parametrize("seed", range(10))
async def test_every_break_is_followed_by_a_return(seed: int) -> None:
    """However deaths, silences and questions fall together: after the last break one is told, and all processes are told apart."""
    chance = random.Random(seed)
    asked = Asked()
    asked.answer_seconds = 0.01
    told: list[bool] = []

    async def listen(presence: Presence) -> None:
        while True:
            told.append(await presence.returned())

    async with watched(asked) as presence:
        listening = asyncio.create_task(listen(presence))
        for number in range(30):
            asked.names = [f"process {number}"]
            asked.change(False)
            questions = [asyncio.create_task(presence.wait()) for _ in range(chance.randrange(4))]
            await asyncio.sleep(chance.choice([0, 0.005, 0.011, 0.5]))
            for question in questions[::2]:
                question.cancel()
            await asyncio.wait([*questions, asyncio.create_task(asyncio.sleep(chance.choice([0, 0.02, 1.0])))])
        await asyncio.sleep(1)
        assert told
        assert presence.restarts >= 10
        count = len(told)
        asked.change(False)
        await asyncio.sleep(1)
        assert told[count:] == [False]
        listening.cancel()
        await asyncio.wait({listening})


async def test_thousands_who_wait_share_one_question() -> None:
    """Else none of them would get an answer in time, and each would ask again."""
    asked = Asked()
    asked.answer_seconds = 0.05
    presence = presence_of(asked)
    gone, *stay = (asyncio.create_task(presence.wait()) for _ in range(3000))
    await asyncio.sleep(0.01)
    gone.cancel()

    await asyncio.gather(*stay)

    assert asked.asked_at == [0.0]
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_question_that_nobody_waits_for_any_more_ends() -> None:
    """The next one who waits asks anew."""
    asked = Asked()
    asked.answer_seconds = 0.5
    presence = presence_of(asked)
    waiting = [asyncio.create_task(presence.wait()) for _ in range(2)]
    await asyncio.sleep(0.1)
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}

    await presence.wait()

    assert asked.asked_at == [0.0, 0.1]
