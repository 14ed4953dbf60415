"""
How much of the memory each model has: what each model that the registry holds was told to take, or was measured to take.

The table of models is the book. A model has its bytes from the moment in which its load is admitted until it is ABSENT, which it
is when Triton has freed its memory and its files are gone: also while it is UNLOADING, FAILED or LOST. So nothing is given back
twice, or never. Decisions are synchronous: no load is admitted between a look at the sum and the entry.

ModelMesh counts for itself, so its loads are entered and not refused for what others have. A front's caller counts nothing: the
load is refused where the sum would be more than the capacity. No reserve is kept then; that is for ModelMesh's unloads.
"""

from __future__ import annotations

from adapter.errors import NoCapacity
from adapter.lifecycle.operation import Model
from adapter.lifecycle.registry import Registry
from adapter.lifecycle.sizing import Sizing
from adapter.lifecycle.states import State
from adapter.model import Content, ModelSpec
from adapter.settings import MIN_SIZE_BYTES, CapacitySettings
from adapter.units import show_bytes

_GOING = (State.UNLOADING, State.FAILED)


class Booking:
    """Enters models into the book; all sizes are bytes of memory unless they are called file bytes."""

    def __init__(self, *, registry: Registry, capacity: CapacitySettings, sizing: Sizing) -> None:
        self._registry = registry
        self._capacity_bytes = capacity.capacity_bytes
        self._sizing = sizing

    def admit(self, model: Model, spec: ModelSpec, file_bytes: int, content: Content) -> None:
        """
        Enter a load that knows its files, before anything is pulled.

        Raises:
            NoCapacity: it does not fit; nothing is entered.
        """
        last, given = self._sizing.measured_of(content), spec.size_hint_bytes
        if spec.named is None:
            self._sizing.admit(spec, file_bytes, content)
            model.size_bytes = max(given or last or self._sizing.from_files(file_bytes), MIN_SIZE_BYTES)
            return
        size = max(last or given or self._sizing.from_files(file_bytes), MIN_SIZE_BYTES)
        how = f"{show_bytes(file_bytes)} of files make {show_bytes(size)}"
        if last or given:
            how = f"it took {show_bytes(last)} when it was loaded last" if last else f"given as {show_bytes(size)}"
        self._check(model, size, f"model does not fit: {how}")
        model.size_bytes = size

    def measured(self, model: Model, spec: ModelSpec, file_bytes: int, reported_bytes: int) -> int:
        """
        Size of a model that Triton has loaded now: what its backend reports, where it reports anything.

        Raises:
            NoCapacity: it is larger than what was booked, and does not fit. The caller undoes the load, and the model has its true
                size until that has ended; the next load of this content is refused before it is pulled.
        """
        if spec.named is None:
            return self._sizing.measured(spec, model.content, file_bytes, reported_bytes)
        return self._grown(model, reported_bytes or spec.size_hint_bytes or self._sizing.from_files(file_bytes))

    def restored(self, model: Model, reported_bytes: int) -> int:
        """Size of a model that Triton has loaded again: as before, or more. Raises as `measured`."""
        if model.named is None:
            return self._sizing.restored(model.content, model.size_bytes, reported_bytes)
        return self._grown(model, max(model.size_bytes, reported_bytes))

    def _grown(self, model: Model, size_bytes: int) -> int:
        size, booked = max(size_bytes, MIN_SIZE_BYTES), model.size_bytes
        model.size_bytes = size
        if model.content is not None:
            self._sizing.remember(model.content, size)
        if size > booked:
            self._check(model, size, f"model does not fit and is unloaded again: it takes {show_bytes(size)} in Triton")
        return size

    def _check(self, model: Model, size_bytes: int, what: str) -> None:
        others = [other for other in self._registry if other is not model and other.size_bytes]
        held = sum(other.size_bytes for other in others)
        if held + size_bytes <= self._capacity_bytes:
            return
        going = sum(other.state in _GOING for other in others)
        unfreed = f", {going} of them not freed yet" if going else ""
        beside = f" beside {show_bytes(held)} of {len(others)} other models{unfreed}" if others else ""
        raise NoCapacity(f"{what}{beside}, but the capacity is {show_bytes(self._capacity_bytes)}")
