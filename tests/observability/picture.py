"""The dashboard as one SVG: places, titles, units, legends and limits from its file, answers from the real Prometheus."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator, Mapping
from io import StringIO

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, MultipleLocator

from tests.observability.files import Panel, dashboard, filled, panels
from tests.observability.server import Prometheus

COLUMNS, COLUMN_INCHES, ROW_INCHES = 24, 0.6, 0.34
POINTS = 60
RATE_SECONDS = 20
LONGEST_LEGEND = 34
BYTES = ("B", "KiB", "MiB", "GiB", "TiB")

Series = tuple[str, list[float], list[float]]
"""Legend, times in seconds since 1970, values."""


def drawn(prometheus: Prometheus, start: float, end: float) -> str:
    """The dashboard over this time (seconds since 1970)."""
    mpl.rcParams.update({"font.size": 7, "svg.fonttype": "none", "svg.hashsalt": "dashboard"})
    parts = dashboard()["panels"]
    rows = max(part["gridPos"]["y"] + part["gridPos"]["h"] for part in parts) + 1
    figure = Figure(figsize=(COLUMNS * COLUMN_INCHES, rows * ROW_INCHES), facecolor="#f6f8fa")
    for part in parts:
        if part["type"] == "row":
            figure.text(0.01, 1 - (part["gridPos"]["y"] + 0.7) / rows, part["title"], fontsize=10, fontweight="bold")
    for panel in panels():
        x, y, width, height = (panel.raw["gridPos"][name] for name in "xywh")
        box = ((x + 1.3) / COLUMNS, 1 - (y + height - 1.9) / rows, (width - 1.6) / COLUMNS, (height - 3.0) / rows)
        axes = figure.add_axes(box)
        axes.set_title(panel.title, loc="left", fontsize=8, fontweight="bold")
        (_numbers if panel.kind == "stat" else _curves)(axes, panel, list(_series(prometheus, panel, start, end)))
    written = StringIO()
    figure.savefig(written, format="svg", metadata={"Date": None})
    return written.getvalue()


def shown(value: float, unit: str) -> str:
    """A number with its unit, short."""
    if unit == "percentunit":
        return f"{value:.0%}"
    if unit in ("bytes", "Bps"):
        power = min(int(math.log(value, 1024)), len(BYTES) - 1) if value >= 1 else 0
        return f"{value / 1024**power:.3g} {BYTES[power]}{'/s' if unit == 'Bps' else ''}"
    if unit in ("s", "µs"):
        return f"{value if unit == 's' else value / 1e6:.3g} s"
    return f"{value:,.4g}"


def _series(prometheus: Prometheus, panel: Panel, start: float, end: float) -> Iterator[Series]:
    for query in panel.queries:
        expression = filled(query.expression, rate_seconds=RATE_SECONDS, range_seconds=round(end - start))
        for found in prometheus.query_range(expression, start, end, (end - start) / POINTS):
            points = [(float(when), float(value)) for when, value in found["values"] if math.isfinite(float(value))]
            if points:
                yield _legend(query.legend, found["metric"]), [when for when, _ in points], [value for _, value in points]


def _legend(template: str, labels: Mapping[str, str]) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda name: labels.get(name[1], ""), template)


def _numbers(axes: Axes, panel: Panel, series: list[Series]) -> None:
    """The last value of each."""
    axes.set_axis_off()
    for number, (legend, _, values) in enumerate(series):
        place = (number + 0.5) / len(series)
        axes.text(place, 0.5, shown(values[-1], panel.unit), ha="center", fontsize=14, transform=axes.transAxes)
        axes.text(place, 0.05, legend, ha="center", transform=axes.transAxes)


def _curves(axes: Axes, panel: Panel, series: list[Series]) -> None:
    """Lines, areas on top of each other where the panel stacks; limits are dashed."""
    axes.grid(visible=True, color="#e4e8ec")
    axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 4, 5, 8, 10]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: shown(value, panel.unit)))
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda when, _: time.strftime("%H:%M:%S", time.gmtime(when))))
    if not series:
        axes.text(0.5, 0.5, "no data in this run", ha="center", transform=axes.transAxes)
        return
    is_stacked = panel.raw["fieldConfig"]["defaults"]["custom"].get("stacking", {}).get("mode") == "normal"
    every = sorted({when for _, times, _ in series for when in times})
    lower = dict.fromkeys(every, 0.0)
    for legend, times, values in series:
        label = legend[-LONGEST_LEGEND:]
        if legend in panel.lines:
            axes.plot(times, values, "--", color="#cf222e", label=label)
        elif is_stacked:
            own = dict(zip(times, values, strict=True))
            upper = {when: low + own.get(when, 0.0) for when, low in lower.items()}
            axes.fill_between(every, list(lower.values()), list(upper.values()), alpha=0.4, label=label)
            lower = upper
        else:
            axes.plot(times, values, label=label, linewidth=1)
    axes.set_ylim(bottom=0)
    if panel.unit in ("bytes", "Bps"):
        axes.yaxis.set_major_locator(MultipleLocator(2.0 ** math.ceil(math.log2(axes.get_ylim()[1] / 4))))
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=3, frameon=False, fontsize=6)
