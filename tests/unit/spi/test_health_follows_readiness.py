"""A watcher hears of each change, and of nothing else."""

import asyncio
from typing import Any

from grpc_health.v1 import health_pb2 as pb

from adapter.spi import health
from adapter.spi.health import Health

SERVING, NOT_SERVING = pb.HealthCheckResponse.SERVING, pb.HealthCheckResponse.NOT_SERVING


async def test_watch_tells_each_change_once_and_ends_with_the_server(monkeypatch: Any) -> None:
    """State now, changes, end."""
    monkeypatch.setattr(health, "WATCH_SECONDS", 0.001)
    problems: list[str | None] = [None]
    asked = 0

    def readiness() -> str | None:
        nonlocal asked
        asked += 1
        return problems[0]

    served = Health(readiness)
    watch = served.Watch(pb.HealthCheckRequest(service="ready"), None)  # type: ignore[arg-type] # the context is not used

    async def following() -> int:
        return (await anext(watch)).status

    assert await following() == SERVING
    pending = asyncio.ensure_future(following())
    while asked < 5:
        await asyncio.sleep(0)
    assert not pending.done()  # asked again and again, and nothing new to tell
    problems[0] = "Triton is away"
    assert await pending == NOT_SERVING

    problems[0] = None
    assert await following() == SERVING

    served.close()
    assert [status async for status in watch] == []
