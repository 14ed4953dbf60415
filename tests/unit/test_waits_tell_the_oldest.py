"""A budget that runs out names what was waited for."""

from adapter.waits import Waits


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_wait_without_progress_for_the_longest_time_is_told() -> None:
    clock = Clock()
    waits = Waits(clock)
    with waits.on("part 1") as first, waits.on("part 2"):
        clock.now = 5.0
        first.progressed()
        clock.now = 12.0
        assert waits.words() == "waiting for part 2 for 12.0 s"


def test_the_last_trouble_is_told_until_there_is_progress() -> None:
    clock = Clock()
    waits = Waits(clock)
    with waits.on("a listing") as wait:
        wait.trouble = "the connection was refused"
        clock.now = 3.0
        assert waits.words() == "waiting for a listing for 3.0 s (last trouble: the connection was refused)"
        wait.progressed()
        assert waits.words() == "waiting for a listing for 0.0 s"


def test_the_longest_silence_is_that_of_the_oldest_wait() -> None:
    """Progress ends it; where nothing is waited for there is none."""
    clock = Clock()
    waits = Waits(clock)
    assert waits.silent_seconds() == 0.0
    with waits.on("part 1"):
        clock.now = 2.0
        with waits.on("part 2") as second:
            clock.now = 5.0
            assert waits.silent_seconds() == 5.0
            second.progressed()
        assert waits.silent_seconds() == 5.0
    with waits.on("part 3"):
        assert waits.silent_seconds() == 0.0
