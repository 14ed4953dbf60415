"""
Models that were never loaded before, one by one and then four at once, on the real Triton: what each is said to take, and what it takes.

What the adapter sees meanwhile is recorded, so the same loads are attributed a second time without a word of processes: as of models
that Triton has in its own process. `tests/unit/memory` does so with such a record.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from adapter.journal import NAME, JournalProblem, read
from adapter.memory import report
from adapter.memory.ledger import Ledger
from adapter.memory.report import Report, Stub
from adapter.records import Measure
from adapter.volume.boot import boot_id
from tests.prove.pods import Kind, is_near, kinds, load, looking, pod, show, sizes, true_of_all

Events = Sequence[Mapping[str, Any]]
"""In the order of time: reports (`used`, `stubs`, `later`), and models that came into a state (`model`, `state`, `size`)."""
LOOK_SECONDS = 0.03
AT_ONCE = 4
WITHIN = {"alone": 0.10, "four at once": 0.25}
"""Share of the truth by which what is called measured may differ from it."""


@dataclass(frozen=True)
class Line:
    """What was found of a model, in bytes."""

    model: str
    loaded: str
    told: int
    source: str
    by_growth: int
    """Without a word of processes."""
    source_by_growth: str
    true: int

    @property
    def problems(self) -> Iterator[str]:
        """What does not hold."""
        if self.source != "measured" or (self.loaded == "alone" and self.source_by_growth != "measured"):
            yield f"{self.model}, {self.loaded}: {self.source}, {self.source_by_growth} by growth"
        for size, source in ((self.told, self.source), (self.by_growth, self.source_by_growth)):
            if source == "measured" and not is_near(size, self.true, WITHIN[self.loaded]):
                yield f"{self.model}, {self.loaded}: measured {show(size)}, true {show(self.true)}"


def groups() -> list[list[Kind]]:
    """Of different kinds, in each group four."""
    chosen = [kind for kind in kinds(is_whole=True) if kind.name.startswith(("onnx-", "load-"))]
    count = len(chosen) // AT_ONCE
    return [chosen[first::count][:AT_ONCE] for first in range(count)]


def lines_of(record: Mapping[str, Any]) -> list[Line]:
    """What is found in a record."""
    seen, growth = (attributed(record["events"], sees_processes=sees) for sees in (True, False))
    return [
        Line(name, how, seen[name].size_bytes, seen[name].source, growth[name].size_bytes, growth[name].source, record["true"][name])
        for name, how in record["loaded"].items()
    ]


def loaded(folder: Path) -> dict[str, Any]:
    """A record: `events`, how each model was `loaded`, and what it takes in truth (`true`, bytes). Blocks for a minute."""
    chosen = groups()
    with pod(folder, list(chain.from_iterable(chosen))) as (running, group), recorded(running.volume) as events:
        for number, each in enumerate(chosen):
            with ThreadPoolExecutor(AT_ONCE if number else 1) as pool:
                list(pool.map(lambda kind: load(running.mesh, kind), each))
        told, true = sizes(running.volume), true_of_all(group)
    how = {kind.name: "four at once" if number else "alone" for number, each in enumerate(chosen) for kind in each}
    record = {"events": events, "loaded": how, "true": {name: true[name] for name in how}}
    replayed = {line.model: line.told for line in lines_of(record)}
    assert replayed == {name: told[name].size_bytes for name in how}, "the record leaves out what the adapter has seen"
    return record


@contextmanager
def recorded(volume: Path) -> Iterator[list[dict[str, Any]]]:
    """What the adapter sees meanwhile; sorted at the end."""
    events, seen = list[dict[str, Any]](), set[object]()

    def look() -> None:
        with suppress(OSError):
            told = report.read(volume / "_adapter" / "triton-memory")
            if told is not None and told.at not in seen:
                seen.add(told.at)
                stubs = {pid: [stub.model, stub.size_bytes] for pid, stub in told.stubs.items()}
                later = None if told.later is None else sorted(told.later)
                events.append({"at": told.at, "used": told.used_bytes, "stubs": stubs, "later": later})
        with suppress(JournalProblem):
            for name, record in read(volume / "_adapter" / NAME, boot_id()).records.items():
                if (name, record.state) not in seen:
                    seen.add((name, record.state))
                    events.append({"at": record.since, "model": name, "state": record.state, "size": record.size_bytes})

    with looking(look, LOOK_SECONDS):
        yield events
    events.sort(key=lambda event: event["at"])


def attributed(events: Events, *, sees_processes: bool) -> dict[str, Measure]:
    """What the ledger makes of them."""
    ledger, told = Ledger(), dict[str, Measure]()
    ledger.on_measured = told.__setitem__
    for event in events:
        if "model" in event:
            ledger.moved(event["model"], event["state"], event["at"], event["size"])
            continue
        stubs = {int(pid): Stub(*stub) for pid, stub in event["stubs"].items()} if sees_processes else {}
        later = event["later"] if sees_processes else ()
        ledger.seen(Report(event["at"], event["used"], None, 0, stubs, None if later is None else frozenset(later)), 0)
    return told
