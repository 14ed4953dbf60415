"""Restores of a whole adapter in this process, each held at the load that Triton has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from adapter._pb import model_runtime_pb2 as spi
from tests.fault.conftest import System, until

NAMES = ("m0", "m1", "m2", "m3")
"""In the order of their loads: m3 is restored first."""


def content(name: str, version: int = 1) -> bytes:
    return f"class TritonPythonModel: pass  # {name} {version}".encode()


class Restores:
    """Triton has restarted. It loads one model, and does not end that load; the others wait."""

    def __init__(self, system: System, sizes: dict[str, int]) -> None:
        self.system = system
        self.sizes = sizes
        """That ModelMesh was told."""
        self._held = ""
        self._before = 0
        self._pulled = 0

    async def begin(self, held: str = "m3", while_away: Callable[[], object] = lambda: None) -> None:
        """Until Triton has the load of this model."""
        self._held = held
        self.system.triton.behaviour(held).is_held = lambda step: step == "load" and self._held == held
        self._before, self._pulled = len(self.system.triton.journal), self.system.proxy.object_bytes
        await self.system.triton.stop()
        while_away()
        await self.system.triton.start()
        await self.system.triton.arrival("load", held)

    def release(self) -> None:
        """The load ends."""
        self._held = ""

    def asked(self, name: str) -> list[str]:
        """What Triton was asked to do with the model since its restart."""
        return [call for call, asked in self.system.triton.journal[self._before :] if asked == name]

    @property
    def loads(self) -> list[str]:
        """Of all models, in the order of arrival."""
        return [name for call, name in self.system.triton.journal[self._before :] if call == "load"]

    @property
    def pulled_bytes(self) -> int:
        """Since the restart."""
        return self.system.proxy.object_bytes - self._pulled

    async def ended(self, *names: str) -> None:
        """Exactly these models are in Triton's memory, once each, and nothing is under way."""
        await until(lambda: self.system.triton.in_memory == dict.fromkeys(names, 1), f"{names} are loaded")
        await self.system.settled()
        assert self.system.triton.in_memory == dict.fromkeys(names, 1)

    async def waits(self, name: str, phase: str) -> None:
        """A call for this model has come as far as that."""
        await until(lambda: phase in self.system.phases(name), f"{phase} of {name}")

    async def seen(self) -> None:
        """The adapter has begun with every call so far: it runs in this process, and has answered later ones."""
        for _ in range(3):
            await self.size("m1")

    def files(self, name: str) -> bytes:
        """What Triton can see of the model."""
        return (self.system.volume.repository_dir / name / "1" / "model.py").read_bytes()

    def is_placed(self, name: str) -> bool:
        return (self.system.volume.repository_dir / name).exists()

    async def size(self, name: str) -> int:
        """That ModelMesh is told now."""
        return int((await self.system.runtime.modelSize(spi.ModelSizeRequest(modelId=name))).sizeInBytes)


def load(system: System, name: str) -> Any:
    """A call under way, equal to the first one unless the bucket has changed."""
    return system.load(name, f"restored-{name}")
