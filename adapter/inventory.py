"""
What is believed of a model, what Triton's index shows, and what lies in the folder: whether they agree.

Pure. Asked where a process takes over, after Triton has returned, for the metric of drift, and by `models`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Literal

from adapter.model import Placed, ServerModel, owner_of

Drift = Literal["lost", "not_serving", "no_folder", "unknown"]
"""
Label of the metric, word of `models`. `lost`: loaded, but this Triton never had it, so Triton has restarted. `not_serving`:
loaded, and Triton had it, but does not serve it. `no_folder`: loaded, but nothing lies in the folder. `unknown`: Triton has
it, or it lies in the folder, and no call has asked for it.
"""


def by_owner(rows: Iterable[ServerModel]) -> dict[str, list[ServerModel]]:
    """The index's rows by model id, those of a bundle's inner models under the id of the bundle."""
    found: dict[str, list[ServerModel]] = defaultdict(list)
    for row in rows:
        found[owner_of(row.name)].append(row)
    return dict(found)


def serves(model_id: str, rows: Sequence[ServerModel]) -> bool:
    """Whether Triton serves the model, of a bundle every model, and nothing of it is under way."""
    serving = {row.name for row in rows if row.state == "READY"}
    names = {row.name for row in rows}
    is_whole = bool(serving) if len(names) == 1 else serving == names | {model_id}
    return is_whole and not any(row.state in ("LOADING", "UNLOADING") for row in rows)


def is_untouched(rows: Sequence[ServerModel]) -> bool:
    """Whether this Triton lists the model's directory and was never asked for it since Triton started."""
    return bool(rows) and not any(row.state for row in rows)


def drift_of(model_id: str, state: str | None, rows: Sequence[ServerModel], placed: Placed | None) -> Drift | None:
    """What registry (None: it does not know the model), index and folder disagree on; None where they agree, or may soon."""
    if state is None:
        return "unknown" if placed is not None or any(row.holds_memory for row in rows) else None
    if state == "lost":
        return "lost"
    if state != "loaded":
        return None
    if placed is None:
        return "no_folder"
    if serves(model_id, rows):
        return None
    return "lost" if is_untouched(rows) else "not_serving"
