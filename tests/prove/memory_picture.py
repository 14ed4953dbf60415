"""The table of the thirty models as an SVG: what was predicted, measured and true of each, from the texts of the record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import StringIO

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

GROUND, GRID, TEXT = "#f6f8fa", "#d0d7de", "#1f2328"
"""It has a ground of its own, so it reads on a light page and on a dark one."""
SHOWN = (("predicted_first", "x", "#bc4c00"), ("measured", "o", "#0969da"), ("true", "|", TEXT))
ROW_INCHES, LEAST_MIB = 0.19, 0.1


def drawn(rows: Sequence[Mapping[str, str]]) -> str:
    """Rows of `tests.prove.memory`, the largest on top, on a logarithmic scale of MiB."""
    mpl.rcParams.update({"font.size": 8, "svg.fonttype": "none", "svg.hashsalt": "sizes", "text.color": TEXT})
    chosen = sorted(rows, key=lambda row: _mib(row["true"]))
    figure = Figure(figsize=(8, 0.9 + ROW_INCHES * len(chosen)), facecolor=GROUND, layout="constrained")
    axes = figure.add_subplot(facecolor=GROUND)
    for name, marker, color in SHOWN:
        sizes = [max(LEAST_MIB, _mib(row[name])) for row in chosen]
        label = "predicted before the first load" if name == "predicted_first" else name
        axes.plot(sizes, range(len(chosen)), marker, color=color, label=label, fillstyle="none", markersize=7, markeredgewidth=1.4)
    axes.set_yticks(range(len(chosen)), [f"{row['model']}  {row['true']}" for row in chosen])
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda mib, _: f"{mib:g} MiB"))
    axes.grid(visible=True, color=GRID)
    axes.set_axisbelow(True)
    axes.margins(y=0.02)
    axes.legend(loc="upper left", facecolor=GROUND, edgecolor=GRID)
    axes.set_title("Model and its true MiB", loc="left", fontsize=8)
    written = StringIO()
    figure.savefig(written, format="svg", metadata={"Date": None})
    return written.getvalue()


def _mib(text: str) -> float:
    return float(text.replace(",", ""))
