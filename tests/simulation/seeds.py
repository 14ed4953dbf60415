"""Many seeds at once, or one again with its trace: the command line of the simulation."""

from __future__ import annotations

import argparse
import multiprocessing
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor

from tests.simulation.mistakes import MISTAKES, plant

CHUNK = 25
SHOWN = 20

Outcome = tuple[int, list[str], Counter[str], float]


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0 when no rule was broken; with `--plant`, when the mistake was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description="Histories of the adapter in virtual time.")
    parser.add_argument("--seed", type=int, help="one history again")
    parser.add_argument("--trace", action="store_true", help="with all that happens in it")
    parser.add_argument("--seeds", type=int, default=500, help="number of histories")
    parser.add_argument("--from", type=int, default=0, dest="first", help="from this seed on")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument(
        "--plant", choices=sorted(MISTAKES), help="with this mistake in the adapter; the first seed that finds it ends the run"
    )
    options = parser.parse_args(arguments)
    if options.plant is not None:
        plant(options.plant)
    if options.seed is not None:
        problems, met, _ = _one(options.seed, is_traced=options.trace)
        _tell(options.seed, problems, options.plant)
        print(", ".join(f"{what} {count}" for what, count in sorted(met.items())))
        return bool(problems)
    if options.plant is not None:
        return _found(options.plant, options.first, options.seeds)
    return _many(options.first, options.seeds, options.jobs)


def _one(seed: int, *, is_traced: bool = False) -> tuple[list[str], Counter[str], float]:
    from tests.simulation.history import History  # noqa: PLC0415 - after the mistake was planted

    warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)  # of a process that died before its task began
    history = History(seed, is_traced=is_traced).run()
    return history.world.problems, history.world.met, history.seconds


def _some(first: int, count: int) -> list[Outcome]:
    return [(seed, *_one(seed)) for seed in range(first, first + count)]


def _found(name: str, first: int, count: int) -> int:
    for seed in range(first, first + count):
        problems, _, _ = _one(seed)
        if problems:
            print(f"found after {seed - first + 1} seeds: {problems[0]}")
            _tell(seed, problems, name)
            return 0
    print(f"{count} seeds have not found the mistake: {name}")
    return 1


def _many(first: int, count: int, jobs: int) -> int:
    began = time.monotonic()
    met: Counter[str] = Counter()
    failed: list[int] = []
    seconds = 0.0
    for seed, problems, events, lasted in _outcomes(first, count, jobs):
        met += events
        seconds += lasted
        if problems:
            failed.append(seed)
            _tell(seed, problems)
    took = time.monotonic() - began
    for what, number in sorted(met.items()):
        print(f"{number:10}  {what}")
    print(
        f"{count} seeds in {took:.1f} s ({count / took:.1f} each second, {seconds / 3600:.0f} hours lived): "
        f"{len(failed)} failed {failed[:SHOWN] or ''}".rstrip()
    )
    return bool(failed)


def _outcomes(first: int, count: int, jobs: int) -> Iterator[Outcome]:
    starts = range(first, first + count, CHUNK)
    counts = [min(CHUNK, first + count - start) for start in starts]
    if jobs == 1:
        for start, chunk in zip(starts, counts, strict=True):
            yield from _some(start, chunk)
        return
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        for outcomes in pool.map(_some, starts, counts):
            yield from outcomes


def _tell(seed: int, problems: Sequence[str], plant: str | None = None) -> None:
    if problems:
        planted = f" --plant '{plant}'" if plant else ""
        print(f"FAILED: python -m tests.simulation --seed {seed} --trace{planted}")
        for problem in problems[:SHOWN]:
            print(f"    {problem}", flush=True)
