"""
Draws the dashboard as one SVG: `python -m tests.observability.picture [--minutes 4]`.

Grafana itself cannot be had here. Places, titles, legends, units, stacks and limits are read from the dashboard, and every
question is answered by the real Prometheus over a real run; fonts, colours and steps of axes are ours.
"""

from __future__ import annotations

import argparse
import math
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from tests.observability.files import Panel, Query, dashboard, filled, panels
from tests.observability.scene import scene
from tests.observability.server import Prometheus
from tests.real.children import TOP

PICTURE = TOP / "deploy" / "docs" / "pictures" / "dashboard.svg"
PODS = ("modelmesh-serving-triton-2.x-5d8f7c9b6d-x2x9q", "modelmesh-serving-triton-2.x-5d8f7c9b6d-k7wpn")
COLUMN, UNIT, GAP, HEAD = 54.0, 30.0, 8.0, 44.0
"""Width of one of 24 columns, height of one unit of a place, space between panels, height of the head."""
POINTS = 100
RATE_SECONDS = 20
LIMIT = ("#cf222e", "#ff7b72")
COLOURS = (
    ("#0969da", "#58a6ff"), ("#bc4c00", "#f0883e"), ("#1a7f37", "#3fb950"), ("#8250df", "#bc8cff"), ("#bf3989", "#f778ba"),
    ("#9a6700", "#d29922"), ("#57606a", "#8b949e"), ("#cf222e", "#ff7b72"),
)  # fmt: skip
"""Light, dark."""
_STYLE = """
.page{fill:#f6f8fa}.panel{fill:#ffffff;stroke:#d0d7de}.text{fill:#1f2328}.faint{fill:#59636e;font-size:10px}.grid{stroke:#e4e8ec}
@media(prefers-color-scheme:dark){.page{fill:#010409}.panel{fill:#0d1117;stroke:#30363d}
.text{fill:#e6edf3}.faint{fill:#9198a1}.grid{stroke:#262c36}}
text{font-family:-apple-system,BlinkMacSystemFont,"Segoe UI","Noto Sans",Helvetica,Arial,sans-serif;font-size:11px}
.head{font-size:18px;font-weight:600}.row{font-size:13px;font-weight:600}.title{font-size:12px;font-weight:600}
.big{font-size:26px;font-weight:600}
.line{fill:none;stroke-width:1.5;stroke-linejoin:round}.limit{stroke-dasharray:6 4}.area{stroke:none;opacity:.35}
"""
_PLAIN = {"none", "short", "opm", "reqps"}

Line = tuple[str, list[tuple[float, float]]]
"""A legend, and points of time and value."""


class Canvas:
    """What is drawn, of one time range."""

    def __init__(self, prometheus: Prometheus, start: float, end: float) -> None:
        self._prometheus = prometheus
        self._start, self._end = start, end
        self.parts: list[str] = []

    def panel(self, panel: Panel) -> None:
        """Its frame, and in it numbers or curves."""
        place = panel.place
        x, y = place["x"] * COLUMN + GAP, place["y"] * UNIT + HEAD
        width, height = place["w"] * COLUMN - GAP, place["h"] * UNIT - GAP
        self.parts.append(f'<g transform="translate({x:g},{y:g})"><title>{escape(panel.raw["description"])}</title>')
        self.parts.append(f'<rect class="panel" width="{width:g}" height="{height:g}" rx="4"/>')
        self.text("title text", 10, 18, panel.title)
        if panel.kind == "stat":
            self._numbers(panel, width, height)
        else:
            self._curves(panel, width, height)
        self.parts.append("</g>")

    def text(self, kind: str, x: float, y: float, text: str, anchor: str = "start") -> None:
        """Words at a place."""
        self.parts.append(f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>')

    def _filled(self, query: Query) -> str:
        return filled(query.expression, rate_seconds=RATE_SECONDS, range_seconds=round(self._end - self._start))

    def _numbers(self, panel: Panel, width: float, height: float) -> None:
        for number, query in enumerate(panel.queries):
            found = self._prometheus.query(self._filled(query), time=self._end)
            value = shown(float(found[0]["value"][1]), panel.unit) if found else "–"
            x = width * (number + 0.5) / len(panel.queries)
            self.text("big text", x, height / 2 + 18, value, "middle")
            self.text("faint", x, height / 2 + 36, query.legend, "middle")

    def _curves(self, panel: Panel, width: float, height: float) -> None:
        lines = [line for query in panel.queries for line in self._lines(query)]
        if not lines:
            self.text("faint", width / 2, height / 2, "no data in this run", "middle")
            return
        left, right, top, bottom = 62.0, width - 10, 34.0, height - 52
        curves = _stacked(lines, panel.lines) if panel.is_stacked else lines
        steps = _steps(max(max(value for _, value in points) for _, points in curves), is_binary=panel.unit in ("bytes", "Bps"))
        for step in steps:
            y = bottom - step / steps[-1] * (bottom - top)
            self.parts.append(f'<line class="grid" x1="{left}" x2="{right:g}" y1="{y:.1f}" y2="{y:.1f}"/>')
            self.text("faint", left - 6, y + 3, shown(step, panel.unit), "end")
        for part in range(5):
            at = left + (right - left) * part / 4
            label = time.strftime("%H:%M:%S", time.gmtime(self._start + (self._end - self._start) * part / 4))
            self.text("faint", at, bottom + 13, label, ("start", "middle", "middle", "middle", "end")[part])
        below = [(when, 0.0) for when, _ in curves[0][1]]
        for number, (name, points) in enumerate(curves):
            colour = _colour(number, name, panel.lines)
            at_points = self._placed(points, steps[-1], (left, right, top, bottom))
            if panel.is_stacked and name not in panel.lines:
                area = " ".join([*at_points, *reversed(self._placed(below, steps[-1], (left, right, top, bottom)))])
                self.parts.append(f'<polygon class="area {colour.replace("c", "f")}" points="{area}"/>')
                below = points
            self.parts.append(f'<polyline class="line {colour}" points="{" ".join(at_points)}"/>')
        self._legend([name for name, _ in curves], panel.lines, width, height)

    def _placed(self, points: Sequence[tuple[float, float]], most: float, box: tuple[float, float, float, float]) -> list[str]:
        left, right, top, bottom = box
        span = self._end - self._start
        return [
            f"{left + (when - self._start) / span * (right - left):.1f},{bottom - min(value / most, 1) * (bottom - top):.1f}"
            for when, value in points
        ]

    def _legend(self, names: Sequence[str], limits: frozenset[str], width: float, height: float) -> None:
        x, y = 10.0, height - 24
        for number, name in enumerate(names):
            colour = _colour(number, name, limits)
            room = 28 + 6.1 * len(name)
            if x > 10 and x + room > width:
                x, y = 10.0, y + 14
            self.parts.append(f'<line class="line {colour}" x1="{x:.1f}" x2="{x + 12:.1f}" y1="{y:g}" y2="{y:g}"/>')
            self.text("faint", x + 16, y + 3, name)
            x += room

    def _lines(self, query: Query) -> Iterator[Line]:
        found = self._prometheus.query_range(self._filled(query), self._start, self._end, (self._end - self._start) / POINTS)
        for series in found:
            points = [(float(when), float(value)) for when, value in series["values"] if math.isfinite(float(value))]
            if points:
                yield legend(query.legend, series["metric"]), points


def legend(template: str, labels: dict[str, Any]) -> str:
    """A legend as Grafana writes it; of a pod's name the end, as there is little room."""
    written = re.sub(r"\{\{(\w+)\}\}", lambda match: str(labels.get(match[1], "")), template)
    return re.sub(r"modelmesh-serving-\S+-(\w{5})\b", r"…\1", written)


def shown(value: float, unit: str) -> str:
    """A number with its unit, short."""
    if unit in _PLAIN:
        return f"{value:,.0f}" if value >= 100 or value == round(value) else f"{value:.1f}"
    if unit == "percentunit":
        return f"{value:.0%}"
    if unit in ("s", "µs"):
        seconds = value if unit == "s" else value / 1e6
        scale, name = next(((scale, name) for scale, name in ((60, "min"), (1, "s"), (1e-3, "ms")) if seconds >= scale), (1e-6, "µs"))
        return f"{seconds / scale:.3g} {name}" if value else "0 s"
    power = min(int(math.log(value, 1024)), 4) if value >= 1 else 0
    return f"{value / 1024**power:.3g} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[power]}{'/s' if unit == 'Bps' else ''}"


def _colour(number: int, name: str, limits: frozenset[str]) -> str:
    """The class of a curve and of its sign in the legend."""
    return "limit l" if name in limits else f"c{number % len(COLOURS)}"


def _stacked(lines: Sequence[Line], limits: frozenset[str]) -> list[Line]:
    """Each on top of those before; limits as they are, last."""
    below: dict[float, float] = {}
    every = sorted({when for name, points in lines for when, _ in points if name not in limits})
    found = []
    for name, points in lines:
        if name not in limits:
            own = dict(points)
            below = {when: below.get(when, 0.0) + own.get(when, 0.0) for when in every}
            found.append((name, list(below.items())))
    return found + [line for line in lines if line[0] in limits]


def _steps(most: float, *, is_binary: bool) -> list[float]:
    """Round numbers from 0 to above the most."""
    base = 1024 ** int(math.log(most, 1024)) if is_binary and most >= 1 else 1
    rough = max(most / base, 1e-9) / 4
    size = 10 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor >= rough) * base
    return [step * number for number in range(max(math.ceil(most / step), 1) + 1)]


def drawn(prometheus: Prometheus, start: float, end: float) -> str:
    """The whole picture."""
    board = dashboard()
    canvas = Canvas(prometheus, start, end)
    for row in board["panels"]:
        if row["type"] == "row":
            canvas.text("row text", GAP, row["gridPos"]["y"] * UNIT + HEAD + 18, row["title"])
    for panel in panels():
        canvas.panel(panel)
    width = 24 * COLUMN + GAP
    height = max(panel.place["y"] + panel.place["h"] for panel in panels()) * UNIT + HEAD
    canvas.text("head text", GAP, 28, board["title"])
    colours = [
        "".join(f".c{n}{{stroke:{pair[mode]}}}.f{n}{{fill:{pair[mode]}}}" for n, pair in enumerate(COLOURS)) + f".l{{stroke:{LIMIT[mode]}}}"
        for mode in (0, 1)
    ]
    style = f"<style>{_STYLE}{colours[0]}@media(prefers-color-scheme:dark){{{colours[1]}}}</style>"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(board["title"])}">'
    return "\n".join([head, style, f'<rect class="page" width="{width:g}" height="{height:g}"/>', *canvas.parts, "</svg>"]) + "\n"


def main() -> None:
    """Run, draw, write."""
    parser = argparse.ArgumentParser(description="Draw the dashboard over a real run.")
    parser.add_argument("--minutes", type=float, default=4)
    parser.add_argument("--to", type=Path, default=PICTURE)
    given = parser.parse_args()
    with scene(PODS) as running:
        started = time.time()
        running.play(60 * given.minutes)
        given.to.write_text(drawn(running.prometheus, started, time.time()))


if __name__ == "__main__":
    main()
