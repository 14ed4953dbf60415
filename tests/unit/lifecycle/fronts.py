"""Models as a front has them loaded, and how many of them fit."""

from __future__ import annotations

from adapter.lifecycle.lifecycle import RuntimeLifecycle
from adapter.model import ModelSpec, Named
from tests.builders import a_spec
from tests.fakes.world import World

MIB = 1024 * 1024
CAPACITY_BYTES = 1024 * MIB
"""Of the fixture `capacity`: 1280 MiB less the default buffer of 256 MiB."""
FIT = 8
"""Models of 100 MiB of files, 125 MiB of memory each."""
SIZE_BYTES = 125 * MIB


def a_front_model(world: World, name: str, *, mib: int = 100) -> ModelSpec:
    """A model whose files have `mib` MiB, and the spec that a front sends for it."""
    world.add(f"models/{name}", size_bytes=mib * MIB, etag=f"e-{name}")
    return a_spec(f"models/{name}", model_id=f"id-{name}", named=Named(name, f"/opt/ml/models/{name}/model"))


async def fill(lifecycle: RuntimeLifecycle, world: World, count: int) -> list[ModelSpec]:
    """Load `count` models, one after the other."""
    specs = [a_front_model(world, f"full{number}") for number in range(count)]
    for spec in specs:
        await lifecycle.load_new(spec)
    return specs
