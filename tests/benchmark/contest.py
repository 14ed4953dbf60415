"""Clients beside each other: the same server, the same run, interleaved round by round, medians."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from subprocess import SubprocessError

import grpc

from tests.benchmark.gauge import Figures
from tests.benchmark.report import Finding, Row
from tests.benchmark.rig import BenchServer, Client, Place, WrongBytes, measured
from tests.real.children import PartError

Value = Callable[[Figures], float]
FAILURES = (RuntimeError, WrongBytes, OSError, SubprocessError, PartError, grpc.RpcError)
"""Of a client; the others are measured all the same."""


@dataclass(frozen=True)
class Entry:
    """A client and what it shall pull."""

    client: Client
    server: BenchServer
    prefix: str
    options: Mapping[str, object] = field(default_factory=dict)
    """Of the `Job`."""
    name: str = ""

    @property
    def label(self) -> str:
        """In the table."""
        return self.name or self.client.name

    def run(self, place: Place, *, is_checked: bool) -> Figures:
        """Once."""
        return measured(self.client, self.server, self.server.job(self.prefix, place, **self.options), place, is_checked=is_checked)


@dataclass(frozen=True)
class Rule:
    """What is looked at."""

    value: Value
    unit: str
    is_more_better: bool = True


def contest(finding: Finding, case: str, place: Place, entries: Iterable[Entry], rule: Rule, rounds: int) -> dict[str, list[Figures]]:
    """All rounds of all entries, as rows of the finding. Whoever fails once is out, with a line that says why."""
    running = [entry for entry in entries if entry.client.is_available(place)]
    found: dict[str, list[Figures]] = {entry.label: [] for entry in running}
    for number in range(rounds):
        for entry in list(running):
            try:
                found[entry.label].append(entry.run(place, is_checked=number == 0))
            except FAILURES as error:
                running.remove(entry)
                del found[entry.label]
                finding.wrong.append(f"{case}: {entry.label}: {' / '.join(str(error).strip().splitlines()[-3:])}")
        shown = ", ".join(f"{name} {rule.value(figures[-1]):.0f}" for name, figures in found.items())
        print(f"   {case}, round {number + 1} of {rounds}: {shown} {rule.unit}", flush=True)
    finding.rows += [row(finding.phase, case, name, figures, rule) for name, figures in found.items() if figures]
    return found


def row(phase: str, case: str, name: str, figures: Sequence[Figures], rule: Rule) -> Row:
    """The median of its rounds."""
    ordered = sorted(figures, key=rule.value)
    return Row(
        phase=phase,
        case=case,
        client=name,
        value=statistics.median(rule.value(each) for each in ordered),
        unit=rule.unit,
        is_more_better=rule.is_more_better,
        low=rule.value(ordered[0]),
        high=rule.value(ordered[-1]),
    )
