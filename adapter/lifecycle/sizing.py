"""
How big a model is: said, remembered, estimated; and whether it can fit. Pure arithmetic, no I/O.

Order of truth: a size given with the model (`adapter.modelSizeBytes`), what Triton's backend reports, the remembered size
of the same listing, bytes of the files that are served × multiplier; where storage tells nothing, the size remembered of the
same request, the file size that ModelMesh passed on × multiplier, the default. A report above the usable capacity counts
more than what was given. No answer is ever 8 KiB or less, and no prediction is above the usable capacity.
"""

from __future__ import annotations

from collections import OrderedDict

from adapter.digests import Digests
from adapter.errors import NoCapacity
from adapter.model import Content, ModelSpec
from adapter.settings import MIN_SIZE_BYTES, CapacitySettings
from adapter.units import show_bytes

UNFIT_BYTES = 16 * 1024
"""
Predicted for a model that is known not to fit: small, so that ModelMesh evicts nothing and does call
loadModel, whose refusal then shows the reason. With a prediction above the capacity ModelMesh never
calls loadModel, and the reason is not shown. Source: observed on ModelMesh.
"""
_REMEMBERED = 10_000


class Sizing:
    """Sizes in bytes of memory, from sizes in bytes of files."""

    def __init__(self, capacity: CapacitySettings, digests: Digests) -> None:
        self._capacity = capacity
        self._digests = digests
        self._remembered: OrderedDict[str, tuple[Content, int]] = OrderedDict()
        """By digest of what was asked for: the content that was measured last, as the journal has it, and its size."""

    @property
    def default_bytes(self) -> int:
        """Size of a model of which nothing is known."""
        return self.predict_unsure(self._capacity.default_model_bytes)

    # ---- of a load

    def admit(self, spec: ModelSpec, file_bytes: int, content: Content) -> None:
        """
        Refuse a model that cannot fit, before anything is pulled.

        Raises:
            NoCapacity: with the arithmetic.
        """
        measured = self.measured_of(content)
        if not self._fits(measured):
            self._refuse(f"it took {show_bytes(measured)} when it was loaded last")
        if spec.size_hint_bytes:
            if not self._fits(spec.size_hint_bytes):
                self._refuse(f"given as {show_bytes(spec.size_hint_bytes)}")
        elif not measured and not self._fits(size := self.from_files(file_bytes)):
            self._refuse(f"{show_bytes(file_bytes)} of files × {self._capacity.multiplier:g} = {show_bytes(size)}")

    def measured(self, spec: ModelSpec, content: Content | None, file_bytes: int, reported_bytes: int) -> int:
        """
        Size of a model that Triton has loaded now; remembered for the next prediction.

        Raises:
            NoCapacity: Triton's backend reports more than the usable capacity; remembered, too. The caller undoes the load.
        """
        return self._checked(content, spec.size_hint_bytes or reported_bytes or self.from_files(file_bytes), reported_bytes)

    def restored(self, content: Content | None, size_bytes: int, reported_bytes: int) -> int:
        """Size of a model that Triton has loaded again: as ModelMesh was told. Raises as `measured`."""
        return self._checked(content, size_bytes, reported_bytes)

    def adopted(self, file_bytes: int, reported_bytes: int = 0) -> int:
        """Size of a model that was loaded before this process began, and was not measured."""
        return max(reported_bytes or self.from_files(file_bytes), MIN_SIZE_BYTES)

    def remember(self, content: Content, size_bytes: int) -> None:
        """Predict this size for the same request over the same content."""
        self._remembered[content.spec] = content, size_bytes
        self._remembered.move_to_end(content.spec)
        if len(self._remembered) > _REMEMBERED:
            self._remembered.popitem(last=False)

    # ---- predictions

    def given(self, spec: ModelSpec) -> int | None:
        """Prediction that needs no storage. None: no size was given, or Triton has shown that what was given is not true."""
        remembered = self.remembered(spec)
        if not spec.size_hint_bytes or (remembered is not None and not self._fits(remembered[1])):
            return None
        return self._sure(spec.size_hint_bytes)

    def remembered(self, spec: ModelSpec) -> tuple[Content, int] | None:
        """What was measured last of what is asked for, and its size in bytes."""
        return self._remembered.get(self._digests.of_spec(spec))

    def predict_again(self, content: Content, size_bytes: int) -> int:
        """Prediction from the remembered size of the same names and lengths. Without versions it may be another content."""
        return self._sure(size_bytes) if content.listing is not None else self.predict_unsure(size_bytes)

    def predict_served(self, file_bytes: int) -> int:
        """Prediction from the files that will be served, all of them known."""
        return self._sure(self.from_files(file_bytes))

    def predict_about(self, file_bytes: int) -> int:
        """Prediction from files that may not be served; it never says that the model cannot fit."""
        return self.predict_unsure(self.from_files(file_bytes))

    def predict_at_least(self, seen_bytes: int) -> int:
        """Prediction from an incomplete listing: the default, or more when more was seen; it never says that the model cannot fit."""
        return max(self.predict_about(seen_bytes), self.default_bytes)

    def predict_blind(self, spec: ModelSpec) -> int:
        """
        Prediction where storage tells nothing.

        What did not fit counts for nothing here: its load is refused while the listing is the same, and tried when it is another.
        """
        known = self._known_blindly(spec)
        return self.default_bytes if known is None else self.predict_unsure(known)

    def knows_blindly(self, spec: ModelSpec) -> bool:
        """Whether `predict_blind` has more than the default."""
        return self._known_blindly(spec) is not None

    def predict_unsure(self, size_bytes: int) -> int:
        """The size within the bounds of all predictions; it never says that the model cannot fit."""
        return max(min(size_bytes, self._capacity.usable_bytes), MIN_SIZE_BYTES)

    def _sure(self, size_bytes: int) -> int:
        return self.predict_unsure(size_bytes) if self._fits(size_bytes) else UNFIT_BYTES

    # ---- arithmetic

    def _known_blindly(self, spec: ModelSpec) -> int | None:
        if spec.size_hint_bytes:
            return spec.size_hint_bytes
        remembered = self.remembered(spec)
        if remembered is not None and self._fits(remembered[1]):
            return remembered[1]
        return self.from_files(spec.disk_size_bytes) if spec.disk_size_bytes else None

    def measured_of(self, content: Content) -> int:
        """The remembered size of this very content; 0: none, or not known."""
        known, size = self._remembered.get(content.spec, (None, 0))
        return size if content.listing is not None and known == content else 0

    def _checked(self, content: Content | None, size_bytes: int, reported_bytes: int) -> int:
        fits = self._fits(reported_bytes)
        size = max(size_bytes, MIN_SIZE_BYTES) if fits else reported_bytes
        if content is not None:
            self.remember(content, size)
        if not fits:
            self._refuse(f"Triton's backend reports {show_bytes(reported_bytes)}", what="model does not fit and is unloaded again")
        return size

    def _refuse(self, how: str, what: str = "model does not fit") -> None:
        usable, capacity = self._capacity.usable_bytes, self._capacity.capacity_bytes
        raise NoCapacity(
            f"{what}: {how}, but the usable capacity is {show_bytes(usable)} "
            f"(capacity {show_bytes(capacity)} less ModelMesh's reserve for unloads)"
        )

    def _fits(self, size_bytes: int) -> bool:
        return size_bytes <= self._capacity.usable_bytes

    def from_files(self, file_bytes: int) -> int:
        """Bytes of memory for these bytes of files."""
        return int(file_bytes * self._capacity.multiplier)
