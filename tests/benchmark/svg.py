"""Curves as SVG, for a page that is light or dark: the picture has both colours, and its own ground."""

from __future__ import annotations

import math
from collections.abc import Sequence
from xml.sax.saxutils import escape

from tests.benchmark.report import OURS, Curve

WIDTH, HEIGHT = 760, 420
LEFT, RIGHT, TOP, BOTTOM = 72, 150, 68, 56
COLOURS = (
    ("#0969da", "#58a6ff"), ("#bc4c00", "#f0883e"), ("#1a7f37", "#3fb950"), ("#8250df", "#bc8cff"), ("#bf3989", "#f778ba"),
    ("#9a6700", "#d29922"), ("#57606a", "#8b949e"), ("#cf222e", "#ff7b72"),
)  # fmt: skip
"""Light, dark; the first is ours."""
_STYLE = """
.ground{fill:#ffffff;stroke:#d0d7de}.text{fill:#1f2328}.faint{fill:#59636e}.grid{stroke:#d8dee4}
@media(prefers-color-scheme:dark){.ground{fill:#0d1117;stroke:#30363d}.text{fill:#e6edf3}.faint{fill:#9198a1}.grid{stroke:#262c36}}
text{font-family:-apple-system,BlinkMacSystemFont,"Segoe UI","Noto Sans",Helvetica,Arial,sans-serif;font-size:12px}
.title{font-size:15px;font-weight:600}.line{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}.ours{stroke-width:3.5}
"""


def drawn(curve: Curve) -> str:
    """The whole picture."""
    names = sorted((name for name in curve.series if curve.series[name]), key=lambda name: (name != OURS, list(curve.series).index(name)))
    xs = sorted({x for name in names for x, _ in curve.series[name]})
    steps = _steps(max((y for name in names for _, y in curve.series[name]), default=1.0))
    place = _Place(curve, xs, steps[-1])
    parts = [f'<text class="title text" x="{LEFT - 48}" y="30">{escape(curve.title)}</text>']
    parts += _grid(place, curve, xs, steps)
    ends = _apart([(place.y(curve.series[name][-1][1]), name) for name in names])
    for number, name in enumerate(names):
        points = [(place.x(x), place.y(y)) for x, y in curve.series[name]]
        width = " ours" if name == OURS else ""
        parts.append(f'<polyline class="line l{number}{width}" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}"/>')
        parts += [f'<circle class="d{number}" cx="{x:.1f}" cy="{y:.1f}" r="{4 if name == OURS else 3}"/>' for x, y in points]
        weight = ' font-weight="600"' if name == OURS else ""
        parts.append(f'<text class="d{number}" x="{WIDTH - RIGHT + 12}" y="{ends[name] + 4:.1f}"{weight}>{escape(name)}</text>')
    light, dark = (
        "".join(f".l{n}{{stroke:{each[mode]}}}.d{n}{{fill:{each[mode]}}}" for n, each in enumerate(_colours(len(names)))) for mode in (0, 1)
    )
    style = f"<style>{_STYLE}{light}@media(prefers-color-scheme:dark){{{dark}}}</style>"
    ground = f'<rect class="ground" x="0.5" y="0.5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="6"/>'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(curve.title)}">'
    return "\n".join([head, style, ground, *parts, "</svg>"]) + "\n"


class _Place:
    """Where a point is."""

    def __init__(self, curve: Curve, xs: Sequence[float], top: float) -> None:
        self._scale = (lambda x: math.log2(max(x, 1e-9))) if curve.is_x_log else float
        low, high = (self._scale(xs[0]), self._scale(xs[-1])) if xs else (0.0, 1.0)
        self._low, self._span, self._top = low, (high - low) or 1.0, top or 1.0

    def x(self, value: float) -> float:
        """From the left."""
        return LEFT + 12 + (self._scale(value) - self._low) / self._span * (WIDTH - LEFT - RIGHT - 24)

    def y(self, value: float) -> float:
        """From above."""
        return HEIGHT - BOTTOM - value / self._top * (HEIGHT - TOP - BOTTOM)


def _grid(place: _Place, curve: Curve, xs: Sequence[float], steps: Sequence[float]) -> list[str]:
    right = WIDTH - RIGHT
    parts = []
    for step in steps:
        y = place.y(step)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="faint" text-anchor="end" x="{LEFT - 8}" y="{y + 4:.1f}">{_short(step)}</text>')
    parts += [f'<text class="faint" text-anchor="middle" x="{place.x(x):.1f}" y="{HEIGHT - BOTTOM + 20}">{_short(x)}</text>' for x in xs]
    middle = (LEFT + right) / 2
    parts.append(f'<text class="faint" text-anchor="middle" x="{middle}" y="{HEIGHT - 14}">{escape(curve.x_label)}</text>')
    parts.append(f'<text class="faint" text-anchor="start" x="{LEFT - 48}" y="{TOP - 14}">{escape(curve.y_label)}</text>')
    return parts


def _steps(most: float) -> list[float]:
    """Round numbers from 0 to above the most."""
    rough = max(most, 1e-9) / 4
    size = 10 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor >= rough)
    return [step * number for number in range(math.ceil(most / step) + 1)]


def _apart(ends: Sequence[tuple[float, str]], distance: float = 16) -> dict[str, float]:
    """Names of lines beside their ends, none over another."""
    found: dict[str, float] = {}
    last = -math.inf
    for y, name in sorted(ends):
        last = found[name] = max(y, last + distance)
    over = max(0.0, last - (HEIGHT - BOTTOM)) if found else 0.0
    return {name: y - over for name, y in found.items()}


def _colours(count: int) -> list[tuple[str, str]]:
    return [COLOURS[number % len(COLOURS)] for number in range(count)]


def _short(number: float) -> str:
    if number >= 10_000:
        return f"{number:,.0f}"
    return f"{number:g}"
