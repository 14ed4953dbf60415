"""The index is busy with us a tenth of the time at most; of the rest a little may be taken later."""

from __future__ import annotations

import random

import pytest

from adapter.triton.pace import CREDIT_SECONDS, LONGEST_REST_SECONDS, REST_FACTOR, Pace


class Asked:
    """Asks as soon as it may, in a time of its own."""

    def __init__(self) -> None:
        self.pace = Pace()
        self.now = 100.0
        self.questions: list[tuple[float, float]] = []

    def ask(self, seconds: float, *, can_wait: bool = False) -> float:
        """One question that is answered so soon; returns the rest before it."""
        began = max(self.now, self.pace.due(can_wait=can_wait))
        rest, self.now = began - self.now, began + seconds
        self.pace.ended(began, self.now)
        self.questions.append((began, self.now))
        return rest


@pytest.mark.parametrize("seed", range(50))
def test_between_any_two_questions_triton_was_left_alone_for_ten_times_what_lies_between(seed: int) -> None:
    """Less the credit: so the share over a second is a tenth and 50 ms, and over a minute a tenth."""
    decide, asked = random.Random(seed), Asked()
    for _ in range(200):
        asked.now += decide.choice((0.0, 0.0, 0.02, 0.05, 1.0))
        asked.ask(decide.choice((0.0005, 0.003, 0.006, 0.05, 2.0)) * decide.uniform(0.5, 1.5), can_wait=decide.random() < 0.2)

    for first in range(len(asked.questions)):
        busy = 0.0
        for later in range(first + 1, len(asked.questions)):
            began, ended = asked.questions[later - 1]
            busy += ended - began
            alone = asked.questions[later][0] - asked.questions[first][0] - busy
            assert alone >= REST_FACTOR * busy - CREDIT_SECONDS - 1e-6


def test_ten_quick_questions_need_not_wait() -> None:
    """Ten unloads that end one after the other. Whoever goes on so waits."""
    asked = Asked()

    rests = [asked.ask(0.004) for _ in range(20)]

    assert rests[:10] == [0.0] * 10
    assert rests[-1] == pytest.approx(0.04)


def test_what_was_taken_comes_back_with_time() -> None:
    asked = Asked()
    for _ in range(20):
        asked.ask(0.004)
    asked.now += CREDIT_SECONDS + 0.04

    assert asked.ask(0.004) == 0.0
    assert asked.ask(0.004) == 0.0


def test_who_can_wait_has_no_credit() -> None:
    asked = Asked()
    asked.ask(0.004)

    assert asked.ask(0.004, can_wait=True) == pytest.approx(0.04)


def test_rests_that_were_cut_do_not_add_up() -> None:
    """Answers of 20 s, with rests of 40 s for those who cannot wait: the next one that can waits for its own 200 s."""
    asked = Asked()
    assert [asked.ask(20.0) for _ in range(5)] == [0.0, *[LONGEST_REST_SECONDS] * 4]

    assert asked.ask(20.0, can_wait=True) == pytest.approx(200, abs=2 * CREDIT_SECONDS)


def test_a_hang_is_not_measured_and_is_followed_by_the_rest_of_the_last_answer() -> None:
    asked = Asked()
    asked.ask(1.0)
    asked.now += 100
    asked.pace.ended(asked.now, asked.now + 60, has_hung=True)
    asked.now += 60

    assert asked.ask(1.0) == pytest.approx(10, abs=1.01 * CREDIT_SECONDS)
    assert asked.pace.notice is None


def test_another_triton_is_owed_nothing() -> None:
    asked = Asked()
    for _ in range(20):
        asked.ask(0.5)
    asked.pace.forget()

    assert asked.ask(0.5) == 0.0
