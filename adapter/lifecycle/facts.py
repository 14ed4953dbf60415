"""
What is remembered of contents: how big a model is, and how often Triton died over it. No I/O.

A size is said, remembered or estimated; it says whether a model fits, and how much of the memory each model has.

Order of truth: a size given with the model (`adapter.modelSizeBytes`), what Triton's backend reports, what was seen of memory when
the same listing was loaded last (`ports.Memory`), the median of python models once there are five, bytes of the files that are
served × multiplier; where storage tells nothing, what is remembered of the same request, the file size that ModelMesh passed on ×
multiplier, the default. What was seen counts more than a smaller size that was given. A report above the usable capacity counts more
than what was given. No answer is ever 8 KiB or less, and no prediction is above the usable capacity.

The table of models is the book. A model has its bytes from the moment in which its load is admitted until it is ABSENT: also
while it is UNLOADING, FAILED or LOST. Decisions are synchronous: no load is admitted between a look at the sum and the entry.

ModelMesh counts for itself, so one of its models needs to fit the usable capacity alone. A front's caller counts nothing: its
load is *booked*, and refused where the sum of all models would be more than the capacity. No reserve is kept then; that is for
ModelMesh's unloads. What was given for a booked model counts less than what Triton reports, and than what is remembered.

Deaths of Triton are counted by `Content.crash` (type, path, storage key and parameters, listing), in the journal: over all ids, and
over restarts of the adapter. A success forgets the count.
"""

from __future__ import annotations

from heapq import nlargest
from statistics import median_high

from msgspec import structs

from adapter.errors import CrashesTriton, NoCapacity
from adapter.lifecycle.registry import Model, Registry
from adapter.lifecycle.states import State
from adapter.model import ModelSpec
from adapter.ports import Journal, Memory
from adapter.records import SEEN, Content, Crashes, Measure, Sized, SizeSource
from adapter.settings.capacity import MIN_SIZE_BYTES, CapacitySettings
from adapter.telemetry.metrics import CAPACITY_BYTES, MODEL_BYTES, USABLE_BYTES
from adapter.units import show_bytes

UNFIT_BYTES = 16 * 1024
"""
Predicted for a model that is known not to fit: small, so that ModelMesh evicts nothing and does call
loadModel, whose refusal then shows the reason. With a prediction above the capacity ModelMesh never
calls loadModel, and the reason is not shown. Source: observed on ModelMesh.
"""
SHOWN_MODELS = 20
"""Whose sizes are series of metrics."""
ENOUGH_MODELS = 5
"""Python models that were measured: from then on their median is what is predicted of another one."""
MOST_CRASHES = 3
"""Deaths after which Triton is not asked again: a restart of Triton takes every other model with it."""
REMEMBERED_SECONDS = 24 * 3600.0
"""A death counts until so long after the last one."""
_GOING = (State.UNLOADING, State.FAILED)


class Facts:
    """Sizes in bytes of memory, from sizes in bytes of files; and the deaths of Triton, by content."""

    def __init__(self, registry: Registry, capacity: CapacitySettings, journal: Journal, memory: Memory) -> None:
        self._registry = registry
        self._configured = capacity
        self._journal = journal
        self._memory = memory
        self._shown: set[tuple[str, str]] = set()
        """Labels of the series of sizes."""

    @property
    def _capacity(self) -> CapacitySettings:
        return self._memory.in_force(self._configured)

    # ---- of a load

    def admit(self, model: Model, spec: ModelSpec, file_bytes: int, content: Content, gpus: int = 0) -> None:
        """
        Enter a load that knows its files, before anything is pulled. `gpus`: how many of them will hold it.

        Raises:
            NoCapacity: it does not fit, with the arithmetic; nothing is entered.
        """
        known: list[tuple[int, str]] = []
        if (last := self._same(content)) is not None:
            known.append((last.size_bytes, f"it took {show_bytes(last.size_bytes)} when it was loaded last"))
        if given := spec.size_hint_bytes:
            known.append((given, f"given as {show_bytes(given)}"))
        if not known:
            size = self.estimate(spec, file_bytes)
            files = f"{show_bytes(file_bytes)} of files × {self._capacity.multiplier:g} = {show_bytes(size)}"
            known.append((size, files if size == self.from_files(file_bytes) else f"{show_bytes(size)} is the median of python models"))
        if spec.named is not None:
            known = known[:1]
        for size, how in known:
            self._check(model, size, f"model does not fit: {how}")
        size, _ = max(known) if last is not None and last.is_seen else known[-1]
        self._memory.check(size, gpus)
        model.size_bytes = max(size, MIN_SIZE_BYTES)

    def measured(self, model: Model, reported_bytes: int) -> None:
        """
        Set the size of a model that Triton has loaded, and remember it. What ModelMesh gave, or was told before Triton lost it, stays.

        Raises:
            NoCapacity: it is larger than what was admitted, and does not fit; remembered, too. The caller undoes the load, and the
                model has its true size until that has ended.
        """
        admitted, is_booked = model.size_bytes, model.named is not None
        is_fact = not is_booked and not self._fits(reported_bytes)
        if is_fact:
            size = reported_bytes
        elif not reported_bytes or (not is_booked and (model.given_bytes or model.confirmed)):
            size = admitted
        else:
            size = max(reported_bytes, _seen_bytes(self._same(model.content)), admitted if model.confirmed else MIN_SIZE_BYTES)
        model.size_bytes = size
        if model.content is not None:
            source: SizeSource = "reported" if size == reported_bytes else "given" if model.given_bytes else "files"
            self.remember(model.content, size, source, model.asked.model_type if model.asked else "")
        if is_fact or (is_booked and size > admitted):
            how = f"Triton's backend reports {show_bytes(size)}" if is_fact else f"it takes {show_bytes(size)} in Triton"
            self._check(model, size, f"model does not fit and is unloaded again: {how}")

    def adopted(self, file_bytes: int, reported_bytes: int = 0) -> int:
        """Size of a model that was loaded before this process began, and was not measured."""
        return max(reported_bytes or self.from_files(file_bytes), MIN_SIZE_BYTES)

    def remember(
        self, content: Content, size_bytes: int, source: SizeSource = "files", model_type: str = "", spread_bytes: int = 0
    ) -> None:
        """Predict this size for the same request over the same content. What was seen of memory stays, and is never less than it was."""
        first = self._journal.sizes.get(content.spec)
        if first is None or first.content != content:
            model_type = model_type.partition(":")[0]
            first = Sized(content=content, model_type=model_type, size_bytes=0, source="files", predicted_bytes=size_bytes, spread_bytes=0)
        if first.is_seen and source not in SEEN:
            return
        size_bytes = max(size_bytes, _seen_bytes(first))
        self._journal.note(structs.replace(first, size_bytes=size_bytes, source=source, spread_bytes=spread_bytes))

    def seen(self, model_id: str, measure: Measure) -> None:
        """What a loaded model takes in truth. A size that was told stays: ModelMesh takes it once."""
        model = self._registry.find(model_id)
        if model is None:
            return
        if model.named is not None or not self.is_final(model):
            model.size_bytes = max(measure.size_bytes, model.given_bytes, MIN_SIZE_BYTES)
            self._registry.note(model)
        if model.content is not None:
            self.remember(model.content, measure.size_bytes, measure.source, spread_bytes=measure.spread_bytes)

    def show(self) -> None:
        """The series of the largest models, those of others go; and the capacity, which may be a measured one."""
        CAPACITY_BYTES.set(self._capacity.capacity_bytes)
        USABLE_BYTES.set(self._capacity.usable_bytes)
        wanted: dict[tuple[str, str], int] = {}
        for model in nlargest(SHOWN_MODELS, self._registry.all_in(State.LOADED), key=lambda model: model.size_bytes):
            wanted[model.model_id, "told"] = model.size_bytes
            if (known := self._same(model.content)) is not None:
                wanted[model.model_id, "predicted"] = known.predicted_bytes
                if known.is_seen:
                    wanted[model.model_id, "measured"] = known.size_bytes
        for labels in self._shown - wanted.keys():
            MODEL_BYTES.remove(*labels)
        for labels, size in wanted.items():
            MODEL_BYTES.labels(*labels).set(size)
        self._shown = set(wanted)

    def is_final(self, model: Model) -> bool:
        """Whether the size of a loaded model is told as it is. Else ModelMesh is told none, and asks for it again."""
        known = self._same(model.content)
        return (known is not None and known.source == "measured") or not self._memory.is_unsettled(model.model_id)

    def _same(self, content: Content | None) -> Sized | None:
        """What is remembered of this very content; one without versions equals nothing."""
        known = self._journal.sizes.get(content.spec) if content is not None and content.listing is not None else None
        return known if known is not None and known.content == content else None

    # ---- predictions

    def default_bytes(self) -> int:
        """Size of a model of which nothing is known."""
        return self.predicted(self._capacity.default_model_bytes)

    def predicted(self, size_bytes: int, *, is_sure: bool = False) -> int:
        """The size within the bounds of all predictions. That a model cannot fit is said only where the size is sure."""
        if is_sure and not self._fits(size_bytes):
            return UNFIT_BYTES
        return max(min(size_bytes, self._capacity.usable_bytes), MIN_SIZE_BYTES)

    def given(self, spec: ModelSpec) -> int | None:
        """Prediction that needs no storage. None: no size was given, or Triton has shown that what was given is not true."""
        remembered, given = self.remembered(spec), spec.size_hint_bytes
        if not given or (remembered is not None and not self._fits(remembered.size_bytes)):
            return None
        seen = _seen_bytes(remembered)
        return self.predicted(max(given, seen), is_sure=given >= seen)

    def remembered(self, spec: ModelSpec) -> Sized | None:
        """What was loaded last of what is asked for."""
        return self._journal.sizes.get(self._journal.digests.of_spec(spec))

    def blind(self, spec: ModelSpec) -> int:
        """
        Prediction where storage tells nothing.

        What did not fit counts for nothing here: its load is refused while the listing is the same, and tried when it is another.
        """
        remembered = self.remembered(spec)
        known = remembered.size_bytes if remembered is not None and self._fits(remembered.size_bytes) else 0
        size = spec.size_hint_bytes or known or self.from_files(spec.disk_size_bytes or 0)
        return self.predicted(size or self._capacity.default_model_bytes)

    def estimate(self, spec: ModelSpec, file_bytes: int) -> int:
        """Bytes of memory for a model that was never loaded: of python models the median, once enough were measured, and no less."""
        size = self.from_files(file_bytes)
        if spec.model_type.partition(":")[0] != "python":
            return size
        sizes = [each.size_bytes for each in self._journal.sizes.values() if each.model_type == "python" and each.is_seen]
        return max(size, median_high(sizes)) if len(sizes) >= ENOUGH_MODELS else size

    def from_files(self, file_bytes: int) -> int:
        """Bytes of memory for these bytes of files."""
        return int(file_bytes * self._capacity.multiplier)

    # ---- arithmetic

    def _check(self, model: Model, size_bytes: int, what: str) -> None:
        """Raises NoCapacity."""
        capacity = self._capacity.capacity_bytes
        if model.named is None:
            if not self._fits(size_bytes):
                reserve = f"(capacity {show_bytes(capacity)} less ModelMesh's reserve for unloads)"
                raise NoCapacity(f"{what}, but the usable capacity is {show_bytes(self._capacity.usable_bytes)} {reserve}")
            return
        others = [other for other in self._registry if other is not model and other.size_bytes]
        held = sum(other.size_bytes for other in others)
        if held + max(size_bytes, MIN_SIZE_BYTES) <= capacity:
            return
        going = sum(other.state in _GOING for other in others)
        unfreed = f", {going} of them not freed yet" if going else ""
        beside = f" beside {show_bytes(held)} of {len(others)} other models{unfreed}" if others else ""
        raise NoCapacity(f"{what}{beside}, but the capacity is {show_bytes(capacity)}")

    def _fits(self, size_bytes: int) -> bool:
        return size_bytes <= self._capacity.usable_bytes

    # ---- deaths of Triton

    def check_deaths(self, content: Content) -> None:
        """
        Refuse what kills Triton, before anything is pulled.

        Raises:
            CrashesTriton: with the count, the time, and what ends it.
        """
        known = self._journal.crashes.get(content.crash)
        if known is None or known.count < MOST_CRASHES or not self._still_counts(known):
            return
        since = self._journal.now() - known.last
        raise CrashesTriton(
            f"Triton has died {known.count} times while it was loading this model, the last time {_minutes(since)} ago, so Triton is not "
            "asked again: not before the model's files, type, path, storage key or parameters change, or "
            f"{_minutes(REMEMBERED_SECONDS - since)} pass"
        )

    def count_death(self, digest: str) -> int:
        """Triton has died over the content with this `Content.crash`; returns how often by now."""
        known = self._journal.crashes.get(digest)
        count = known.count + 1 if known and self._still_counts(known) else 1
        for other in list(self._journal.crashes.values()):  # a content that has changed is never asked for again
            if not self._still_counts(other):
                self._journal.forget(other)
        self._journal.note(Crashes(digest=digest, count=count, last=self._journal.now()))
        return count

    def forget_deaths(self, content: Content) -> None:
        """Triton has loaded it: earlier deaths had another cause."""
        if known := self._journal.crashes.get(content.crash):
            self._journal.forget(known)

    def _still_counts(self, known: Crashes) -> bool:
        """Not what is to come: the journal is anybody's who can write the volume."""
        return 0 <= self._journal.now() - known.last < REMEMBERED_SECONDS


def _seen_bytes(known: Sized | None) -> int:
    """0: nothing was seen of memory."""
    return known.size_bytes if known is not None and known.is_seen else 0


def _minutes(seconds: float) -> str:
    hours, minutes = divmod(int(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
