"""
Thirty models of different kinds on the real Triton in a control group of its own: predicted, measured, and true.

True is what the kernel says of each model's own processes (`smaps_rollup`), when all are loaded and were asked. Each is loaded alone,
then all are loaded again, four at once, by their remembered sizes: the second prediction must not be below the truth. Others that were
never loaded are loaded four at once (`memory_at_once`), and what measuring costs is measured (`memory_cost`).
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from tests.prove import memory_at_once, memory_cost
from tests.prove.memory_picture import drawn
from tests.prove.pods import CLAIM, Kind, cells, is_near, kinds, load, pod, show, sizes, true_of_all
from tests.prove.report import columns

WITHIN = 0.10
"""Share of the truth by which a measured size may differ from it."""


@dataclass
class Line:
    """What was found of it, in bytes."""

    model: str
    predicted_first: int
    told: int
    measured: int
    source: str
    predicted_again: int
    true: int

    @property
    def problems(self) -> Iterator[str]:
        """What does not hold."""
        if self.source != "measured":
            yield f"{self.model}: {self.source}"
        elif not is_near(self.measured, self.true, WITHIN):
            yield f"{self.model}: measured {show(self.measured)}, true {show(self.true)}"
        if self.predicted_again < self.true:
            yield f"{self.model}: predicted {show(self.predicted_again)}, true {show(self.true)}"


def measured(chosen: list[Kind], folder: Path, *, look_seconds: float = 20) -> list[Line]:
    """Load, ask and load again. Blocks for a minute or two."""
    with pod(folder, chosen) as (running, group):
        mesh, first, told = running.mesh, {}, {}
        for kind in chosen:
            key = (kind.name, kind.model_type, kind.name)
            first[kind.name] = mesh.predict(*key, **CLAIM)
            told[kind.name] = load(mesh, kind)
            if kind.asks:
                for _ in range(8):  # of several instances each one
                    mesh.infer(kind.name, {"X": kind.asked})
        time.sleep(look_seconds)
        known, true, lines = sizes(running.volume), true_of_all(group), []
        for name, model_type in ((kind.name, kind.model_type) for kind in chosen):
            again = mesh.predict(name, model_type, name, **CLAIM)
            lines.append(Line(name, first[name], told[name], known[name].size_bytes, known[name].source, again, true.get(name, 0)))
        print(columns([cells(line) for line in lines]), flush=True)
        for kind in chosen:
            mesh.unload(kind.name)
        with ThreadPoolExecutor(memory_at_once.AT_ONCE) as pool:
            again_told = list(pool.map(lambda kind: mesh.load(kind.name, kind.model_type, kind.name, **CLAIM).sizeInBytes, chosen))
        for line, size in zip(lines, again_told, strict=True):
            assert size >= line.measured, f"{line.model}: told {show(size)} when it was loaded again"
    return lines


def found(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """
    All of it: tables as texts, in MiB; what does not hold, of each table; and sentences for a page. And the record of the loads at once.
    """
    alone, record = measured(kinds(is_whole=True), folder / "alone"), memory_at_once.loaded(folder / "at-once")
    at_once, cost = memory_at_once.lines_of(record), memory_cost.cost(folder / "cost")
    four, others = ([line for line in at_once if (line.loaded != "alone") is is_four] for is_four in (True, False))
    by_growth = [summary([(line.by_growth, line.source_by_growth, line.true) for line in each]) for each in (four, others)]
    return {
        "rows": [cells(line) for line in alone],
        "at_once": [cells(line) for line in at_once],
        "cost": [{"cost": name, "": str(value)} for name, value in cost.items()],
        "wrong": {
            "rows": [text for line in alone for text in line.problems],
            "at_once": [text for line in at_once for text in line.problems],
            "cost": memory_cost.problems(cost),
        },
        "notes": [
            f"Loaded one by one: {summary([(line.measured, line.source, line.true) for line in alone])}",
            f"Loaded four at once: {summary([(line.told, line.source, line.true) for line in four])}",
            f"The same, had Triton told no processes, as of models in Triton's own process: {'; loaded one by one: '.join(by_growth)}",
            memory_cost.sentence(cost),
        ],
    }, record


def summary(sizes: Sequence[tuple[int, str, int]]) -> str:
    """Of measured sizes, their sources, and the truth."""
    off = [abs(size - true) for size, source, true in sizes if source == "measured"]
    near = f", at most {show(max(off))} MiB from the truth" if off else ""
    return f"{len(off)} of {len(sizes)} models are measured{near}"


def main() -> int:
    """`python -m tests.prove.memory [--json FILE] [--plot FILE] [--record FILE]`."""
    parser = argparse.ArgumentParser(prog="python -m tests.prove.memory", description=(__doc__ or "").strip().splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was found to this file")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the table of the thirty to this SVG")
    parser.add_argument("--record", type=Path, metavar="FILE", help="write what the adapter saw of loads at once, for the unit test")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        said, record = found(Path(name))
    wrong = said["wrong"]
    print("\n".join([columns(said["at_once"]), columns(said["cost"]), *said["notes"], *chain.from_iterable(wrong.values())]))
    if given.json:
        given.json.write_text(json.dumps(said))
    if given.plot:
        given.plot.write_text(drawn(said["rows"]))
    if given.record:
        events = ",\n".join(json.dumps(event) for event in record.pop("events"))
        given.record.write_text(f'{json.dumps(record)[:-1]}, "events": [\n{events}\n]}}\n')
    return 1 if len(wrong.pop("rows")) > len(said["rows"]) // 6 or any(wrong.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
