"""
What was seen of each model's memory, and what follows: its size, Triton's own base, and the reserve. No I/O.

Told of each change of a model's state and of each report, in the order of time. The processes of a python model are its own, by
name. For the rest a load has what grew meanwhile (`attribution`): the host's memory, and each GPU's. A model that takes memory of a
GPU has the size that it takes there, of several GPUs the largest: capacity is then that of one GPU.

Memory that an unload did not give back is used again by later loads, which then seem smaller: it counts into their upper bounds.
Growth after a model was told to ModelMesh goes to the reserve; of a model's own processes also to its remembered size, for as long
as it is young.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence

from adapter.memory.attribution import Change, Sample, bounds, measure
from adapter.memory.devices import Device
from adapter.memory.report import Report, Stub
from adapter.model import owner_of
from adapter.records import Measure
from adapter.units import MIB

HOST = ""
"""Beside the UUIDs of GPUs, the name of the host's memory."""
DEVICE_LAG_SECONDS = 2.5
"""So old a GPU's number may be when it is told: Triton's `--metrics-interval-ms`, and a little."""
MOST_SAMPLES, MOST_CHANGES = 600, 200
"""Kept, of each memory, and of loads and unloads; what lasts longer is not measured."""
YOUNG_SECONDS = 330.0
"""So long after a load the size of its processes may still grow: first inferences, arenas, the look after five minutes."""
LEAST_GROWTH_BYTES = MIB
"""Of a GPU, or of base and reserve: less is noise."""
MARGIN_BYTES = MIB // 4
"""Above what a model's processes take: they may grow by so much, and what is told is not below the truth."""


class Ledger:
    """One Triton's memory. Times are seconds since the boot of the kernel."""

    def __init__(self) -> None:
        self.on_measured: Callable[[str, Measure], None] = lambda _model_id, _measure: None
        self._samples: dict[str, deque[Sample]] = defaultdict(lambda: deque(maxlen=MOST_SAMPLES))
        self._changes: deque[Change] = deque(maxlen=MOST_CHANGES)
        self._coming: set[str] = set()
        """Models that are pulled: what is seen now is how it was before their loads."""
        self._unsettled: dict[Change, int] = {}
        """Loads and unloads that have ended and that no sample shows yet; of a load the estimate, in bytes."""
        self._stubs: dict[int, tuple[Stub, float]] = {}
        """Of those that are alive, by process id: what it took, and when that was told."""
        self._stubs_at = -math.inf
        """When each that was alive had been told once."""
        self._loaded: dict[str, float] = {}
        """By model id: since when it is loaded."""
        self._sizes: dict[str, int] = {}
        self._most: dict[str, float] = {}
        """By model id: the most of the host's memory that it may have taken, and so may give back."""
        self._held: dict[str, Mapping[str, float]] = {}
        """By model id: the GPUs that it was seen to take memory of, and how much."""
        self._devices: Mapping[str, Device] = {}
        """As they were told last, by UUID."""
        self._device_base: dict[str, int] = {}
        """What is used of them with no model."""
        self._kept: dict[str, float] = {}
        """What unloads may have left used of them, in a pool of a framework: the next model has it."""
        self._unreturned = 0.0
        """Bytes of the host's memory that unloads have not given back."""
        self.base_bytes: int | None = None
        """What Triton takes with no model; None: not seen."""
        self.reserve_bytes = 0
        """The most by which truth was above the base and the sizes that ModelMesh was told."""

    @property
    def loading(self) -> Sequence[str]:
        """The models that Triton is loading now."""
        return [each.model for each in self._changes if each.is_running and each.most > 0]

    @property
    def is_watching(self) -> bool:
        """Whether something runs, or waits to be measured."""
        return bool(self._coming or self._unsettled or any(each.is_running for each in self._changes))

    def has_young(self, at: float) -> bool:
        """Whether the processes of a model may still grow."""
        return any(at - since < YOUNG_SECONDS for since in self._loaded.values())

    def is_unsettled(self, model: str) -> bool:
        """Whether the size of a loaded model may be told soon."""
        return any(change.model == model for change in self._unsettled)

    def moved(self, model: str, state: str, at: float, size_bytes: int) -> None:
        """A model has come into this state of the lifecycle; `size_bytes`: what is believed of it."""
        (self._coming.add if state == "pulling" else self._coming.discard)(model)
        if state == "lost":  # all that Triton had is gone with it
            self.forget()
            return
        change = next((each for each in self._changes if each.model == model and each.is_running), None)
        if change is not None:
            change.end = at
            if self._samples and (state == "loaded" or -math.inf < change.least < 0.0):
                self._unsettled[change] = size_bytes
        if state == "loading":
            self._changes.append(Change(model, at))
        elif state == "loaded":
            self._loaded.setdefault(model, at)
        elif state == "unloading":
            self._unsettled = {each: size for each, size in self._unsettled.items() if each.model != model}
            self._loaded.pop(model, None)
            self._sizes.pop(model, None)
            for uuid, held in self._held.pop(model, {}).items():
                self._kept[uuid] = self._kept.get(uuid, 0.0) + held
            self._changes.append(Change(model, at, least=-self._most.pop(model, math.inf), most=0.0))

    def forget(self) -> None:
        """Nothing that was seen holds any more: another Triton."""
        tables = (self._samples, self._changes, self._unsettled, self._stubs, self._loaded, self._sizes, self._most)
        for table in (*tables, self._held, self._device_base, self._kept):
            table.clear()
        self._devices = {}
        self.base_bytes, self._unreturned = None, 0.0

    def seen(self, report: Report, booked_bytes: int | None) -> None:
        """A report; `booked_bytes`: the sum of the sizes that were told; None while Triton may have models that are not known."""
        self._samples[HOST].append(Sample(report.at, report.used_bytes))
        if report.later is not None:
            self._stubs = {pid: known for pid, known in self._stubs.items() if pid in report.later}
            self._stubs.update((pid, (stub, report.at)) for pid, stub in report.stubs.items())
            if report.later <= self._stubs.keys():
                self._stubs_at = report.at
        self._settle()
        if booked_bytes is not None and not self.is_watching and all(change.end < report.at for change in self._changes):
            if not self._loaded:
                self.base_bytes, self._unreturned = report.used_bytes, 0.0
            elif self.base_bytes is not None:
                excess = report.used_bytes - self.base_bytes
                self._unreturned = min(self._unreturned, max(0.0, excess - sum(self._sizes.values())))
                self.reserve_bytes = max(self.reserve_bytes, excess - booked_bytes)
        for model in {owner_of(stub.model) for stub in report.stubs.values()} - {change.model for change in self._unsettled}:
            is_young = report.at - self._loaded.get(model, -math.inf) < YOUNG_SECONDS
            if is_young and (own := self._own(model, self._loaded[model])) > self._sizes.get(model, 0):
                self._tell(model, Measure(own + MARGIN_BYTES, "measured", MARGIN_BYTES))

    def seen_devices(self, devices: Mapping[str, Device], at: float) -> None:
        """Triton's metrics, as they were asked for at this time."""
        self._devices = devices
        for uuid, device in devices.items():
            self._samples[uuid].append(Sample(at, device.used_bytes))
            if not self._loaded and not self.is_watching:
                self._device_base[uuid] = device.used_bytes
            held = self._device_base.get(uuid, 0) + sum(each.get(uuid, 0.0) for each in self._held.values())
            self._kept[uuid] = min(self._kept.get(uuid, 0.0), max(0.0, device.used_bytes - held))
        self._settle()

    def fullest(self, gpus: int) -> tuple[str, Device, int] | None:
        """Of this number of GPUs that have most left, the one with least: its UUID, and the bytes that unloads have left used there."""
        left = {uuid: device.total_bytes - device.used_bytes + self._kept[uuid] for uuid, device in self._devices.items()}
        chosen = sorted(left, key=lambda uuid: -left[uuid])[:gpus]
        return (chosen[-1], self._devices[chosen[-1]], int(self._kept[chosen[-1]])) if chosen else None

    # ---- private

    def _settle(self) -> None:
        for change, estimate_bytes in list(self._unsettled.items()):
            if any(samples[0].at > change.begin for samples in self._samples.values()):
                pass  # it can never be said: no sample is, or is left, of before
            elif change.most > 0:
                if (told := self._measured(change, estimate_bytes)) is None:
                    continue
                self._tell(change.model, told)
            else:
                if (found := self._bounds(change, HOST)) is None:
                    continue
                self._unreturned += max(0.0, found[1] - change.least)
            del self._unsettled[change]

    def _measured(self, load: Change, estimate_bytes: int) -> Measure | None:
        """What a load that has ended took; None: it cannot be said yet."""
        found = {name: self._bounds(load, name) for name in self._samples}
        times = [at for stub, at in self._stubs.values() if owner_of(stub.model) == load.model]
        if None in found.values() or min((self._stubs_at, *times)) < load.end:
            return None
        low, high = found.pop(HOST, None) or (0.0, 0.0)
        self._most[load.model] = high + self._unreturned
        devices = {name: each for name, each in found.items() if each is not None and each[1] >= LEAST_GROWTH_BYTES}
        if devices:
            self._held[load.model] = {name: high for name, (_, high) in devices.items()}
            return measure(*max(devices.values(), key=lambda each: each[1]), estimate_bytes)
        if own := self._own(load.model, load.end):
            load.least = load.most = self._most[load.model] = own
            return Measure(own + MARGIN_BYTES, "measured", MARGIN_BYTES)
        told = measure(low, high + self._unreturned, estimate_bytes)
        self._unreturned = max(0.0, self._unreturned - max(0.0, told.size_bytes - high))
        return told

    def _bounds(self, change: Change, name: str) -> tuple[float, float] | None:
        """As `attribution.bounds`, of one memory. What a model's own processes take says nothing of a GPU."""
        samples = self._samples.get(name, ())
        if name == HOST:
            return bounds(change, self._changes, samples)
        late = {each: Change(each.model, each.begin, each.end + DEVICE_LAG_SECONDS, *each.sign) for each in (*self._changes, change)}
        return bounds(late[change], list(late.values()), samples)

    def _own(self, model: str, since: float) -> int:
        """What the processes of a model take, as far as it was told since then."""
        return sum(stub.size_bytes for stub, at in self._stubs.values() if owner_of(stub.model) == model and at >= since)

    def _tell(self, model: str, found: Measure) -> None:
        self._sizes[model] = max(found.size_bytes, self._sizes.get(model, 0))
        self.on_measured(model, found)
