"""
The adapter as `python -m adapter serve`, with one thread more, which counts what the adapter holds when it is asked.

What the kernel can count from outside is counted there; this is for objects. Only for tests.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from adapter import cli
from adapter.journal import Journal
from adapter.lifecycle.registry import Registry
from adapter.storage.cache.artifacts import Artifacts
from adapter.storage.stores.clients import Clients
from adapter.telemetry import metrics
from adapter.telemetry.redaction import Remembered

SOCKET = "SOAK_SOCKET"
"""Variable with the path of the socket that answers each connection with one line of JSON."""
HELD: dict[type, tuple[str, Callable[[Any], int]]] = {
    Registry: ("models in the registry", lambda found: len(list(found))),
    Journal: ("entries of the journal", lambda found: len(found.records) + len(found.crashes)),
    Artifacts: ("artifacts known", lambda found: len(found._by_folder)),
    Clients: ("clients of stores", lambda found: found._client.cache_info().currsize),
    Remembered: ("secrets remembered", lambda found: len(found._values)),
}


COLLECTIONS = (dict, set, list, deque)


def kept(each: object) -> int:
    """Entries in the collections that are attributes of an object; without those that have a most length."""
    values = getattr(each, "__dict__", {}).values()
    return sum(len(value) for value in values if isinstance(value, COLLECTIONS) and not getattr(value, "maxlen", None))


def counts() -> dict[str, int]:
    """By name. Whatever nobody refers to any more is collected first."""
    gc.unfreeze()  # else what was there at the start, all tables of the adapter, is not among the objects
    gc.collect()
    objects = gc.get_objects()
    found = {"objects": len(objects), "tasks": 0, "entries kept": 0, **{name: 0 for name, _ in HELD.values()}}
    for each in objects:
        kind = type(each)
        if str(kind.__module__).startswith("adapter."):
            found["entries kept"] += kept(each)
        if kind in HELD:
            name, count = HELD[kind]
            found[name] += count(each)
        elif isinstance(each, asyncio.Task):
            found["tasks"] += not each.done()
    found["series of metrics"] = sum(len(family.samples) for family in metrics.REGISTRY.collect())
    return found


def answer(listening: socket.socket) -> None:
    while True:
        connection, _ = listening.accept()
        with connection:
            connection.sendall(json.dumps(counts()).encode())


def main() -> int:
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(os.environ.pop(SOCKET))
    listening.listen()
    threading.Thread(target=answer, args=(listening,), name="counts", daemon=True).start()
    return cli.main(["serve"])


if __name__ == "__main__":
    sys.exit(main())
