"""
The life of a model as one table.

Two rules of this room: nothing but `next_state` decides a state, and a pair that is not in the
table is a defect that changes nothing. The table knows no asyncio, no storage and no Triton; the
README's diagram is drawn from it.

Theory of operation. A model that nobody knows is ABSENT, and so is one whose failed load was
undone. PULLING ends when the files are placed and a loading slot of Triton is free: until then
Triton has not been asked and an undo is a matter of files. LOADING begins with the call that Triton
cannot cancel, so its undo goes through UNLOADING. LOST means that Triton has restarted: ModelMesh
believes the model loaded, its files are placed as they were, and Triton has none of it; it is loaded again
from these files, or taken down. FAILED means that an *undo* or an unload did not finish: memory or files
may still be held, and whatever comes next finishes that first.
"""

from __future__ import annotations

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


class Event(Enum):
    """What can happen to it."""

    LOAD = "load begins"
    SEND = "files placed, Triton asked"
    READY = "Triton serves it"
    DROP = "load failed or cancelled, files removed"
    UNDO = "load failed or cancelled"
    UNLOAD = "unload begins"
    GONE = "memory free, files removed"
    STUCK = "not finished within the bound"
    LOSE = "Triton has lost it"
    RESEND = "Triton asked again"
    ADOPT = "found loaded at start"
    MISS = "found in the journal alone"
    RESIDUE = "found half loaded at start"
    PURGE = "purged"


TRANSITIONS: dict[tuple[State, Event], State] = {
    (State.ABSENT, Event.LOAD): State.PULLING,
    (State.PULLING, Event.DROP): State.ABSENT,
    (State.PULLING, Event.STUCK): State.FAILED,
    (State.PULLING, Event.SEND): State.LOADING,
    (State.LOADING, Event.READY): State.LOADED,
    (State.LOADING, Event.UNDO): State.UNLOADING,
    (State.LOADED, Event.UNLOAD): State.UNLOADING,
    (State.LOADED, Event.LOSE): State.LOST,
    (State.LOST, Event.RESEND): State.LOADING,
    (State.LOST, Event.UNLOAD): State.UNLOADING,
    (State.ABSENT, Event.UNLOAD): State.UNLOADING,
    (State.FAILED, Event.UNLOAD): State.UNLOADING,
    (State.UNLOADING, Event.GONE): State.ABSENT,
    (State.UNLOADING, Event.STUCK): State.FAILED,
    (State.ABSENT, Event.ADOPT): State.LOADED,
    (State.ABSENT, Event.RESIDUE): State.FAILED,
    (State.ABSENT, Event.MISS): State.LOST,
    (State.LOST, Event.PURGE): State.ABSENT,
    (State.LOADED, Event.PURGE): State.ABSENT,
    (State.FAILED, Event.PURGE): State.ABSENT,
}


class IllegalTransitionError(Exception):
    """An event that the table does not list for this state. A defect of ours, never of a caller."""


def next_state(state: State, event: Event) -> State:
    """
    The state after the event.

    Raises:
        IllegalTransitionError: the table does not list the pair.
    """
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalTransitionError(f"{event.name} cannot happen to a model that is {state.name}") from None
