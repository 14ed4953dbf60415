"""What is announced to ModelMesh, and the arithmetic of sizes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from adapter.settings import kinds
from adapter.settings.kinds import Group, choice, setting, size
from adapter.units import MIB, show_bytes

UNIT_BYTES = 8 * 1024
"""ModelMesh counts memory in these. Source: modelmesh `ModelLoader.java` 37, 55."""
MIN_SIZE_BYTES = UNIT_BYTES + 1
"""
A failed load of a model predicted at one unit or less gets no unload and is never
tried again, so no size that we tell may be that small.

Source: modelmesh `ModelMesh.java` 2458-2460, observed on the real one.
"""


class CapacitySettings(Group):
    """What is announced to ModelMesh, and the arithmetic of sizes."""

    container_memory_bytes: int = setting("CONTAINER_MEM_REQ_BYTES", kinds.SIZE, "0")
    """
    **Required** beside ModelMesh. Triton's `requests.memory`, by `resourceFieldRef`. Default with `SAGEMAKER_PORT`: the limit
    of this container, or the memory of the machine.
    """
    buffer_bytes: int = setting("MEM_BUFFER_BYTES", kinds.SIZE, "268435456")
    """Part of it that Triton itself needs; capacity = memory − buffer."""
    default_model_bytes: int = setting("DEFAULT_MODELSIZE", size(MIN_SIZE_BYTES), "1000000")
    """Size of a model whose size cannot be learned; more than 8192."""
    multiplier: float = setting("MODELSIZE_MULTIPLIER", kinds.FACTOR, "1.25")
    """Memory of a loaded model = bytes of its files × this; the files count once for each instance that holds them."""
    max_loading: int = setting("LOADING_CONCURRENCY", kinds.LOADS, "1")
    """Loads that ModelMesh, and the adapter towards Triton, run at once."""
    load_timeout_ms: int = setting("LOADTIME_TIMEOUT", kinds.MILLISECONDS, "30000")
    """Loading timeout announced to ModelMesh; the adapter's own budget is a little below."""
    max_concurrency: int = setting("LIMIT_PER_MODEL_CONCURRENCY", kinds.REQUESTS_OR_NONE, "0")
    """
    Parallel inference requests per model copy; 0 = no limit. `auto`: of each model's own config (instances, batches, queue); 16
    where it has none.
    """
    source: str = setting("CAPACITY_SOURCE", choice("word", "configured", "measured"), "configured")
    """
    `configured`: capacity = memory − buffer. `measured`: the limit of Triton's container − the larger of the buffer and what
    Triton and growing models were seen to take; as configured while nothing is reported.
    """
    runtime_version: str = setting("RUNTIME_VERSION", kinds.TEXT, "v1")
    """Announced until Triton has reported its own version."""

    @property
    def capacity_bytes(self) -> int:
        """Announced to ModelMesh."""
        return self.container_memory_bytes - self.buffer_bytes

    @property
    def usable_bytes(self) -> int:
        """
        Whole units of the capacity, less the reserve that ModelMesh keeps for unloads: what one model may have at most.

        Source: modelmesh `ModelMesh.java` 746-763.
        """
        units, default = self.capacity_bytes // UNIT_BYTES, -(-self.default_model_bytes // UNIT_BYTES)
        wanted = self.max_loading * default // (2 if self.max_loading <= 2 else 4)
        reserve = max(1, min(max(wanted, units // 100), units // 10))
        return (units - reserve) * UNIT_BYTES

    @property
    def budget_seconds(self) -> float:
        """Own budget of a load: below the announced timeout, so that our error arrives first."""
        announced = self.load_timeout_ms / 1000
        return announced - min(2.0, announced / 10)

    def problems(self) -> Iterator[str]:
        """What ModelMesh would refuse at start, with the arithmetic. Source: `ModelMesh.java` 1264-1276."""
        needed = max(2 * self.default_model_bytes, min(512 * MIB, 10 * self.default_model_bytes))
        if not self.container_memory_bytes:
            yield (
                "CONTAINER_MEM_REQ_BYTES is missing (or 0): give Triton's container a `requests.memory` "
                "and pass it on with a resourceFieldRef"
            )
        elif self.capacity_bytes < needed:
            yield (
                f"capacity is too small: CONTAINER_MEM_REQ_BYTES ({show_bytes(self.container_memory_bytes)}) − MEM_BUFFER_BYTES "
                f"({show_bytes(self.buffer_bytes)}) = {show_bytes(self.capacity_bytes)}, but ModelMesh needs at least "
                f"max(2 × DEFAULT_MODELSIZE, min(512 MiB, 10 × DEFAULT_MODELSIZE)) = {show_bytes(needed)}: "
                "raise Triton's `requests.memory`"
            )


def memory_bytes(groups: Path = Path("/sys/fs/cgroup")) -> int:
    """
    How much memory this container may have: its control group's limit, where that is less than all that the machine has.

    Source: the kernel's `cgroup-v2.rst` and `cgroup-v1/memory.rst`.
    """
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = [machine]
    for name in ("memory.max", "memory/memory.limit_in_bytes"):  # of version 2, of version 1
        with suppress(OSError, ValueError):  # another version of control groups, or `max`
            limits.append(int((groups / name).read_text()) or machine)
    return min(limits)
