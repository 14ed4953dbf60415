"""
The states of a model, and which one may follow which. Knows no asyncio, no storage and no Triton.

A model that nothing is known of is ABSENT, and so is one whose failed load was undone. PULLING ends when the files are placed and
a loading slot of Triton is free: until then Triton has not been asked, and an undo is a matter of files. LOADING begins with the
call that Triton cannot cancel, so its undo goes through UNLOADING. LOST: Triton has restarted, ModelMesh believes the model
loaded, and its files are placed as they were; it is loaded again from them, or taken down. FAILED: an undo or an unload did not
finish, so memory or files may still be held; it is repeated until it does.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class State(Enum):
    """Where a model is. Values are the labels of logs, metrics and the diagram."""

    ABSENT = "absent"
    PULLING = "pulling"
    LOADING = "loading"
    LOADED = "loaded"
    LOST = "lost"
    UNLOADING = "unloading"
    FAILED = "failed"


MOVES: Mapping[tuple[State, State], str] = {
    (State.ABSENT, State.PULLING): "load begins",
    (State.PULLING, State.ABSENT): "load failed or cancelled, files removed",
    (State.PULLING, State.FAILED): "files not removed",
    (State.PULLING, State.LOADING): "files placed, Triton asked",
    (State.LOADING, State.LOADED): "Triton serves it",
    (State.LOADING, State.UNLOADING): "load failed or cancelled",
    (State.LOADED, State.UNLOADING): "unload begins",
    (State.LOADED, State.LOST): "Triton has lost it",
    (State.LOADED, State.ABSENT): "purged",
    (State.LOST, State.LOADING): "Triton asked again",
    (State.LOST, State.UNLOADING): "unload begins",
    (State.LOST, State.ABSENT): "purged",
    (State.ABSENT, State.UNLOADING): "unload begins",
    (State.FAILED, State.UNLOADING): "unload begins",
    (State.FAILED, State.ABSENT): "purged",
    (State.UNLOADING, State.ABSENT): "memory free, files removed",
    (State.UNLOADING, State.FAILED): "not finished within the bound",
    (State.ABSENT, State.LOADED): "found loaded at start",
    (State.ABSENT, State.FAILED): "found half loaded at start",
    (State.ABSENT, State.LOST): "found in the journal alone",
}
"""What may happen, and what it is called."""


class IllegalMoveError(Exception):
    """A state that cannot follow this one. A defect of ours, never of a caller."""
