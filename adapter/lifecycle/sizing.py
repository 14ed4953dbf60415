"""
How big a model is: said, remembered, estimated; and whether it can fit. Pure arithmetic, no I/O.

Order of truth: a size given with the model (`adapter.modelSizeBytes`), what Triton's backend
reports, the remembered size of the same model, file bytes × multiplier, the default. No answer is
ever 8 KiB or less, and no prediction is above the usable capacity.
"""

from __future__ import annotations

from collections import OrderedDict

from adapter.digests import Digests
from adapter.errors import NoCapacity
from adapter.model import ModelSpec
from adapter.settings import MIN_SIZE_BYTES, CapacitySettings
from adapter.units import show_bytes

UNFIT_BYTES = 16 * 1024
"""
Predicted for a model that is known not to fit: small, so that ModelMesh evicts nothing and does call
loadModel, whose refusal then shows the reason. With a prediction above the capacity ModelMesh never
calls loadModel and nobody learns why. Source: observed on ModelMesh.
"""
_REMEMBERED = 10_000


class Sizing:
    """Sizes in bytes of memory, from sizes in bytes of files."""

    def __init__(self, capacity: CapacitySettings, digests: Digests) -> None:
        self._capacity = capacity
        self._digests = digests
        self._remembered: OrderedDict[str, int] = OrderedDict()
        """By digest of what was asked for, as the journal has it: so an earlier process's sizes predict, too."""

    @property
    def default_bytes(self) -> int:
        """Size of a model of which nothing is known."""
        return self._bounded(self._capacity.default_model_bytes)

    def admit(self, spec: ModelSpec, file_bytes: int) -> None:
        """
        Refuse a model that cannot fit, before anything is pulled.

        Raises:
            NoCapacity: with the arithmetic.
        """
        size = spec.size_hint_bytes or self._from_files(file_bytes)
        usable = self._capacity.usable_bytes
        if size <= usable:
            return
        how = (
            f"given as {show_bytes(size)}"
            if spec.size_hint_bytes
            else f"{show_bytes(file_bytes)} of files × {self._capacity.multiplier:g} = {show_bytes(size)}"
        )
        raise NoCapacity(
            f"model does not fit: {how}, but the usable capacity is {show_bytes(usable)} "
            f"(capacity {show_bytes(self._capacity.capacity_bytes)} less ModelMesh's reserve for unloads)"
        )

    def measured(self, spec: ModelSpec, file_bytes: int, reported_bytes: int) -> int:
        """Size of a model that is loaded now; remembered for the next prediction of the same model."""
        size = max(spec.size_hint_bytes or reported_bytes or self._from_files(file_bytes), MIN_SIZE_BYTES)
        self.remember(self._digests.of_spec(spec), size)
        return size

    def remember(self, digest: str, size_bytes: int) -> None:
        """Predict this size for whoever asks for the same, by `Digests.of_spec`."""
        self._remembered[digest] = size_bytes
        self._remembered.move_to_end(digest)
        if len(self._remembered) > _REMEMBERED:
            self._remembered.popitem(last=False)

    def known(self, spec: ModelSpec) -> int | None:
        """Prediction that needs no storage: given, remembered, or from the file size that ModelMesh passed on."""
        size = spec.size_hint_bytes or self._remembered.get(self._digests.of_spec(spec))
        if size is None and spec.disk_size_bytes:
            size = self._from_files(spec.disk_size_bytes)
        return None if size is None else self._bounded(size)

    def predict_listed(self, file_bytes: int) -> int:
        """Prediction from a complete listing."""
        return self._bounded(self._from_files(file_bytes))

    def predict_at_least(self, seen_bytes: int) -> int:
        """Prediction from an incomplete listing: the default, or more when more was seen."""
        return self._bounded(max(self._from_files(seen_bytes), self._capacity.default_model_bytes))

    def adopted(self, file_bytes: int, reported_bytes: int = 0) -> int:
        """Size of a model that was loaded before this process began, and that nobody has measured."""
        return max(reported_bytes or self._from_files(file_bytes), MIN_SIZE_BYTES)

    def _from_files(self, file_bytes: int) -> int:
        return int(file_bytes * self._capacity.multiplier)

    def _bounded(self, size: int) -> int:
        if size > self._capacity.usable_bytes:
            return UNFIT_BYTES
        return max(size, MIN_SIZE_BYTES)
