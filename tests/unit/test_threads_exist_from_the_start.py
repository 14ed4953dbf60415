"""A pool has all its threads at once or none; it holds neither the process nor what it has done."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from functools import partial
from pathlib import Path

import pytest

from adapter import threads
from adapter.errors import StartError
from adapter.threads import Threads
from adapter.workers import Workers


def running(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith(f"{name}_")]


def wait_for_the_end(name: str) -> None:
    for thread in running(name):
        thread.join(10)
    assert running(name) == []


def until_idle(pool: Threads, count: int) -> None:
    for _ in range(1000):
        if len(pool._desk._idle) == count:
            return
        time.sleep(0.01)
    raise AssertionError("the threads do not become idle")


@pytest.fixture
def pool() -> Iterator[Threads]:
    made = Threads("pool", 2)
    yield made
    made.shutdown()
    wait_for_the_end("pool")


def failing_from(number: int) -> Callable[[threading.Thread], None]:
    started = []
    original = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        if len(started) + 1 >= number:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        original(thread)

    return start


def test_all_threads_exist_before_the_first_call(pool: Threads) -> None:
    assert len(running("pool")) == 2
    assert all(thread.daemon for thread in running("pool"))


@pytest.mark.parametrize("number", [1, 3])
def test_a_thread_that_cannot_start_fails_the_pool_and_ends_the_others(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """In one sentence, at the start."""
    monkeypatch.setattr(threading.Thread, "start", failing_from(number))

    with pytest.raises(StartError, match=rf"^thread {number} of 3 for 'short' cannot start: can't start new thread"):
        Workers("short", 3)

    wait_for_the_end("short")


async def test_no_thread_is_needed_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit that is met later is somebody else's."""
    workers = Workers("later", 2)
    monkeypatch.setattr(threading.Thread, "start", failing_from(1))

    assert await asyncio.gather(*(workers.run(lambda _, n=n: n * n) for n in range(4))) == [0, 1, 4, 9]

    workers.close()
    wait_for_the_end("later")


def test_a_failure_reaches_who_asked_and_the_thread_lives_on(pool: Threads) -> None:
    for _ in range(5):
        with pytest.raises(SystemExit):
            pool.submit(sys.exit, 3).result(10)
    assert pool.submit(int, "7", base=8).result(10) == 7


def test_the_thread_that_became_idle_last_has_the_next_call() -> None:
    """Its stack is still in the processor's caches."""
    pool = Threads("warm", 8)
    names = set()
    for _ in range(20):
        until_idle(pool, 8)
        names.add(pool.submit(lambda: threading.current_thread().name).result(10))

    assert len(names) == 1
    pool.shutdown()
    wait_for_the_end("warm")


def test_calls_that_found_no_thread_are_begun_in_their_order(pool: Threads) -> None:
    both, go = threading.Barrier(3), threading.Event()
    for _ in range(2):
        pool.submit(lambda: both.wait(10) >= 0 and go.wait(10))
    both.wait(10)
    begun: list[int] = []
    waiting = [pool.submit(begun.append, number) for number in range(50)]
    go.set()
    for future in waiting:
        future.result(10)

    assert sorted(begun) == list(range(50))
    assert all(abs(place - number) <= 1 for place, number in enumerate(begun))


def test_a_shutdown_cancels_what_no_thread_has_begun(pool: Threads) -> None:
    """What has begun is left to end by itself."""
    both, go = threading.Barrier(3), threading.Event()
    begun = [pool.submit(lambda: both.wait(10) >= 0 and go.wait(10)) for _ in range(2)]
    both.wait(10)
    waiting = pool.submit(int)
    pool.shutdown()
    pool.shutdown()

    with pytest.raises(CancelledError):
        waiting.result(10)
    with pytest.raises(RuntimeError, match="take no more work"):
        pool.submit(int)
    go.set()
    assert [future.result(10) for future in begun] == [True, True]


async def test_whoever_waits_for_a_call_that_a_close_has_cancelled_is_cancelled() -> None:
    """As by its task: the standard library's executors have an exception of their own, which nobody would take for an end."""
    workers, busy, go = Workers("closed", 1), threading.Event(), threading.Event()
    begun = asyncio.create_task(workers.run(lambda _: (busy.set(), go.wait(10))))
    waiting = [asyncio.create_task(run(lambda _: None)) for run in (workers.run, workers.run_to_end)]
    await asyncio.sleep(0)
    busy.wait(10)
    workers.close()
    go.set()
    await asyncio.wait({begun, *waiting}, timeout=10)

    assert [task.cancelled() for task in (begun, *waiting)] == [False, True, True]


@pytest.mark.parametrize("fails", [False, True])
def test_an_idle_thread_holds_nothing(pool: Threads, fails: bool) -> None:
    """Neither the work nor its outcome: a model's bytes would live as long as the pool."""

    class Work:
        def __call__(self) -> Work:
            if fails:
                raise ValueError
            return Work()

    gc.collect()
    gc.disable()
    try:
        work = Work()
        seen = weakref.ref(work)
        pool.submit(work).exception(10)
        del work
        pool.submit(int).result(10)
        pool.submit(int).result(10)
        assert seen() is None
    finally:
        gc.enable()


def test_a_finalizer_may_ask_for_work_at_any_moment(pool: Threads, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python runs finalizers wherever memory is allocated, also in the middle of `submit`."""

    class Cycle:
        def __init__(self) -> None:
            self.me = self

    def collecting(*arguments: Callable[[], object]) -> Callable[[], object]:
        gc.collect()
        return partial(*arguments)

    cleaned = threading.Event()
    gc.disable()
    try:
        weakref.finalize(Cycle(), pool.submit, cleaned.set)
        monkeypatch.setattr(threads, "partial", collecting)
        asking = threading.Thread(target=pool.submit, args=(int,), daemon=True)
        asking.start()
        assert cleaned.wait(10), "submit waits for itself"
    finally:
        gc.enable()


def test_a_hung_call_does_not_hold_the_process() -> None:
    code = (
        "import threading; from adapter.workers import Workers; workers = Workers('hung', 1); begun = threading.Event();"
        "workers.start(lambda _: (begun.set(), threading.Event().wait())); begun.wait(); workers.close()"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, cwd=Path(__file__).parents[2], timeout=30, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")


async def test_a_library_may_use_the_same_threads() -> None:
    workers = Workers("shared", 1)

    name = await asyncio.get_running_loop().run_in_executor(workers.executor, lambda: threading.current_thread().name)

    assert name == "shared_0"
    workers.close()
    wait_for_the_end("shared")


def test_a_finalizer_may_submit_whenever_the_collector_runs():
    """It may run in a thread that is inside of `submit` just then."""
    threads, limits = Threads("few", 1), gc.get_threshold()

    class Garbage:
        def __init__(self):
            self.me = self
            weakref.finalize(self, dying).atexit = False

    def dying():
        threads.submit(int)
        if len(born) < 50:
            born.append(1)
            Garbage()

    def submitting():
        Garbage()
        gc.set_threshold(1)
        for _ in range(10):
            threads.submit(int)
        gc.set_threshold(*limits)

    born: list[int] = []
    submitter = threading.Thread(target=submitting, daemon=True)
    try:
        submitter.start()
        submitter.join(10)
        assert not submitter.is_alive() and born
    finally:
        gc.set_threshold(*limits)
    threads.shutdown()


def test_a_finalizer_may_take_the_thread_that_is_about_to_take_a_call(pool: Threads) -> None:
    """Python 3.12 collects garbage after calls, also after the one that makes a thread idle."""

    class Seats(list[object]):
        def append(self, seat: object) -> None:
            super().append(seat)
            if not finalized:
                finalized.append(pool.submit(int, "8"))

    finalized: list[Future[int]] = []
    both, go = threading.Barrier(3), threading.Event()
    for _ in range(2):
        pool.submit(lambda: both.wait(10) >= 0 and go.wait(10))
    both.wait(10)
    waiting = [pool.submit(int, "7") for _ in range(2)]
    pool._desk._idle = Seats()
    go.set()

    assert [future.result(10) for future in waiting] == [7, 7]
    assert finalized[0].result(10) == 8
    assert len(running("pool")) == 2
