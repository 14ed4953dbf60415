"""Each table of `deploy/docs/sizing.md`: the chart is rendered with the values above it, and every number is computed again."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from adapter.settings.capacity import CapacitySettings
from adapter.units import MIB, parse_bytes
from tests.chart.controller import assemble
from tests.chart.pod.env import quantity
from tests.chart.render import render, the_runtime
from tests.chart.soundness import TRITON, PodView

PAGE = Path(__file__).parents[2] / "deploy" / "docs" / "sizing.md"
EXAMPLE = re.compile(r"```yaml\n(.*?)```\n\n\| what \| comes to \| because \|\n\|---\|---\|---\|\n((?:\|[^\n]*\n)+)", re.DOTALL)


@dataclass(frozen=True)
class Figures:
    """What can be computed of one rendered runtime."""

    runtime: Mapping[str, Any]

    @cached_property
    def pod(self) -> PodView:
        return PodView(assemble(self.runtime), {})

    @property
    def capacity(self) -> CapacitySettings:
        return self.pod.settings.capacity

    def limit(self, path: str) -> float:
        volume, _ = self.pod.place(TRITON, path) or ("", "")
        return parse_bytes(self.pod.volume(volume)["emptyDir"]["sizeLimit"]) / MIB

    def memory_of(self, mebibytes: str) -> float:
        return float(mebibytes.replace(",", "")) * self.capacity.multiplier

    def fitting(self, mebibytes: str) -> int:
        return int(self.capacity.usable_bytes / MIB // self.memory_of(mebibytes))

    def pods(self, models: str, mebibytes: str) -> int:
        return math.ceil(int(models.replace(",", "")) / self.fitting(mebibytes))

    def budget(self) -> float:
        budget = self.pod.settings.volume.max_bytes
        assert budget is not None
        return budget / MIB

    def least_volume(self, mebibytes: str) -> int:
        files = self.capacity.usable_bytes / MIB / self.capacity.multiplier
        return math.ceil((files + self.capacity.max_loading * float(mebibytes)) * MIB / (0.9 * MIB))

    def churn(self) -> str:
        seconds = 10 * max(3.0, self.capacity.load_timeout_ms / 3000)
        return f"{seconds / 60:.0f} min" if seconds % 60 == 0 else f"{seconds:.0f} s"

    def requested(self, resource: str) -> Decimal:
        """By all containers of the pod, ModelMesh's own too."""
        return sum((quantity(each["resources"]["requests"][resource]) for each in self.pod.spec["containers"]), Decimal())


def mib(value: float | Decimal) -> str:
    return f"{math.floor(value):,} MiB"


RULES: dict[str, Callable[..., str]] = {
    r"capacity": lambda f: mib(f.capacity.capacity_bytes / MIB),
    r"usable for models": lambda f: mib(f.capacity.usable_bytes / MIB),
    r"memory of a model of ([\d.]+) MiB": lambda f, size: mib(f.memory_of(size)),
    r"models of ([\d.]+) MiB in a pod": lambda f, size: f"{f.fitting(size):,}",
    r"pods for ([\d,]+) models of ([\d.]+) MiB": lambda f, models, size: str(f.pods(models, size)),
    r"size of the volume": lambda f: mib(f.limit(str(f.pod.settings.volume.root))),
    r"the adapter's budget on the volume": lambda f: mib(f.budget()),
    r"least size of the volume, with models up to ([\d.]+) MiB": lambda f, size: mib(f.least_volume(size)),
    r"limit of `/models`": lambda f: mib(f.limit("/models")),
    r"loads at once": lambda f: str(f.capacity.max_loading),
    r"loads that may hang before loads stop": lambda f: str(f.pod.settings.triton.load_threads),
    r"churn protection": lambda f: f.churn(),
    r"`/dev/shm`": lambda f: mib(f.limit("/dev/shm")),
    r"memory that the scheduler sees": lambda f: mib(f.requested("memory") / MIB),
    r"CPU that the scheduler sees": lambda f: f"{f.requested('cpu') * 1000:.0f} m",
}


def examples() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    for values, table in EXAMPLE.findall(PAGE.read_text()):
        rows = [[cell.strip() for cell in line.split("|")[1:3]] for line in table.splitlines()]
        yield values, [(what, told) for what, told in rows]


EXAMPLES = list(examples())


def test_every_values_block_of_the_page_is_an_example() -> None:
    assert len(EXAMPLES) == PAGE.read_text().count("```yaml") > 4


@pytest.mark.parametrize(("values", "rows"), EXAMPLES, ids=range(len(EXAMPLES)))
def test_each_number_is_what_the_rendered_runtime_gives(values: str, rows: list[tuple[str, str]], tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(values)
    figures = Figures(the_runtime(render(file)))

    computed = [
        (what, rule(figures, *match.groups())) for what, _ in rows for words, rule in RULES.items() if (match := re.fullmatch(words, what))
    ]

    assert rows == computed


def test_every_rule_is_used() -> None:
    told = {what for _, rows in EXAMPLES for what, _ in rows}

    assert [words for words in RULES if not any(re.fullmatch(words, what) for what in told)] == []
