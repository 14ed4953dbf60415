"""Waiting for Triton: patient, not eager, and said once."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from adapter.errors import ModelRefused, WrongServer
from adapter.telemetry.metrics import REGISTRY
from adapter.triton.client import AnswerLost, TritonAway, TritonDied
from adapter.triton.presence import Presence

pytestmark = pytest.mark.looptime


class Asked:
    """Is away until `live_from`; every question is noted."""

    def __init__(self, live_from: float = 0.0) -> None:
        self.live_from = live_from
        self.asked_at: list[float] = []
        self.failure: Exception = TritonAway("Connection refused")

    async def live(self, timeout_seconds: float) -> None:
        now = asyncio.get_running_loop().time()
        self.asked_at.append(round(now, 4))
        if now < self.live_from:
            raise self.failure


def presence_of(asked: Asked) -> Presence:
    return Presence(ask=asked.live, target="triton:8001")


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


async def test_the_questions_become_rarer() -> None:
    """From 50 ms to one second."""
    asked = Asked(live_from=4.0)

    await presence_of(asked).wait()

    pauses = [round(later - earlier, 4) for earlier, later in zip(asked.asked_at, asked.asked_at[1:], strict=False)]
    assert pauses == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0]


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


async def test_the_watch_asks_every_two_seconds() -> None:
    """Alive or not, and never ends by itself."""
    asked = Asked(live_from=5.0)
    presence = presence_of(asked)
    watch = asyncio.create_task(presence.watch())
    await asyncio.sleep(8.5)

    assert asked.asked_at == [0.0, 2.0, 4.0, 6.0, 8.0]
    assert presence.problem is None
    watch.cancel()
    await asyncio.wait({watch})
