"""
What becomes of each model when a process takes over: records of the journal × Triton's index × folder → a verdict.

Pure. A record is believed only where the folder still holds the very directory that it tells of: a model that was
placed again meanwhile, without a note in this journal, is another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from adapter.inventory import is_untouched, serves
from adapter.model import Placed, Record, ServerModel


class Verdict(Enum):
    """What becomes of one model id."""

    SERVES = "Triton serves it: LOADED"
    LOST = "it was loaded, and this Triton has none of it: to be loaded again"
    RESIDUE = "half done: taken down through Triton"
    FORGOTTEN = "it is nowhere: its record goes"


@dataclass(frozen=True)
class Finding:
    """One model id as a process finds it at its start."""

    model_id: str
    verdict: Verdict
    record: Record | None
    """What is still true of the model; None: the content is unknown."""
    placed: Placed | None
    """Its directory, if there is one."""
    crash: str | None = None
    """Triton died while it was loading this content (`Content.crash`)."""


def findings(records: Mapping[str, Record], rows: Mapping[str, Sequence[ServerModel]], placed: Mapping[str, Placed]) -> list[Finding]:
    """
    One for each id that the journal or Triton's index knows. A directory that neither knows is not ours to touch.

    Args:
        records: of an earlier process, by model id.
        rows: of the index, by model id (`inventory.by_owner`).
        placed: the repository folder, by model id.
    """
    has_restarted = any(
        record.state == "loaded" and _is_of(record, placed.get(name)) and is_untouched(rows.get(name, ()))
        for name, record in records.items()
    )
    return [
        _finding(name, records.get(name), rows.get(name, ()), placed.get(name), has_restarted=has_restarted) for name in _ids(rows, records)
    ]


def _finding(model_id: str, record: Record | None, rows: Sequence[ServerModel], placed: Placed | None, *, has_restarted: bool) -> Finding:
    if not rows and placed is None:
        return Finding(model_id, Verdict.FORGOTTEN, record, None)
    known = record if record is not None and _is_of(record, placed) else None
    if serves(model_id, rows):
        is_wanted = known is None or known.state not in ("unloading", "failed")
        return Finding(model_id, Verdict.SERVES if is_wanted else Verdict.RESIDUE, known, placed)
    if known is None:
        return Finding(model_id, Verdict.RESIDUE, None, placed)
    died_in_load = has_restarted and known.state == "loading" and is_untouched(rows)
    crash = known.content.crash if died_in_load and known.content else None
    verdict = Verdict.LOST if not died_in_load and _is_lost(known, rows) else Verdict.RESIDUE
    return Finding(model_id, verdict, known, placed, crash)


def _is_of(record: Record, placed: Placed | None) -> bool:
    return placed is not None and record.placed == placed.identity


def _is_lost(record: Record, rows: Sequence[ServerModel]) -> bool:
    """
    Whether a caller was told that the model is loaded, and none has unloaded it.

    A model that an earlier process was about to load *again* had been loaded before (`confirmed`). One that was to be loaded
    for the first time belongs to a call that has ended, and the load of one that Triton is loading now cannot be followed.
    """
    return is_untouched(rows) and (record.state in ("loaded", "lost") or (record.state == "loading" and record.confirmed > 0))


def _ids(rows: Iterable[str], records: Iterable[str]) -> list[str]:
    return list(dict.fromkeys((*rows, *records)))
