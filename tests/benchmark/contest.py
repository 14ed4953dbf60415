"""Clients beside each other: the same server, the same run, interleaved round by round, medians."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from subprocess import SubprocessError
from typing import Any

import grpc

from tests.benchmark.gauge import Figures
from tests.benchmark.report import Finding
from tests.benchmark.rig import BenchServer, Client, WrongBytes, measured
from tests.real.children import PartError

FAILURES = (RuntimeError, WrongBytes, OSError, SubprocessError, PartError, grpc.RpcError)
"""Of a client; the others are measured all the same."""


@dataclass(frozen=True)
class Entry:
    """A client and what it shall pull."""

    client: Client
    server: BenchServer
    prefix: str
    options: dict[str, Any] = field(default_factory=dict)
    """Of the `Job`."""
    name: str = ""

    @property
    def label(self) -> str:
        """In the table."""
        return self.name or self.client.name


@dataclass(frozen=True)
class Rule:
    """What is looked at."""

    value: Callable[[Figures], float]
    unit: str
    is_more_better: bool = True


def contest(finding: Finding, case: str, entries: Iterable[Entry], rule: Rule, rounds: int) -> dict[str, list[Figures]]:
    """All rounds of all entries, as rows of the finding. A client that fails once is out, with a line that says why."""
    running = [entry for entry in entries if entry.client.is_available()]
    found: dict[str, list[Figures]] = {entry.label: [] for entry in running}
    for number in range(rounds):
        for entry in list(running):
            try:
                job = entry.server.job(entry.prefix, **entry.options)
                found[entry.label].append(measured(entry.client, entry.server, job, is_checked=number == 0))
            except FAILURES as error:
                running.remove(entry)
                del found[entry.label]
                finding.wrong.append(f"{case}: {entry.label}: {' / '.join(str(error).strip().splitlines()[-3:])}")
        shown = ", ".join(f"{name} {rule.value(figures[-1]):.0f}" for name, figures in found.items())
        print(f"   {case}, round {number + 1} of {rounds}: {shown} {rule.unit}", flush=True)
    for name, figures in found.items():
        values = [rule.value(each) for each in figures]
        finding.add(case, name, statistics.median(values), rule.unit, values, is_more_better=rule.is_more_better)
    return found
