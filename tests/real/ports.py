"""Free TCP ports on loopback."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import re
import socket
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from tests.real.children import PartError

T = TypeVar("T")

_ALL = range(20_000, 32_000)
"""Below the ports that Linux gives to outgoing connections (32768 and up), which would take one before it is used."""
_WORKERS = 8
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _WORKERS
_CANDIDATES = _ALL[_WORKER::_WORKERS]
"""Those of this process: workers of pytest-xdist take none from each other."""
_NEXT = itertools.cycle(random.sample(_CANDIDATES, len(_CANDIDATES)))
"""Each port is given once before any is given again: a program may not have opened the one that it was given yet."""

_TRIES = 3


def free_ports(count: int) -> list[int]:
    """Ports that no process listens on now."""
    found: list[int] = []
    with contextlib.ExitStack() as stack:
        for port in itertools.islice(_NEXT, len(_CANDIDATES)):
            each = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            with contextlib.suppress(OSError):
                each.bind(("127.0.0.1", port))
                found.append(port)
            if len(found) == count:
                return found
    raise OSError(f"of the ports {_CANDIDATES} fewer than {count} are free")


def started_on(ports: Sequence[int], count: int, start: Callable[[list[int]], T], taken: str) -> T:
    """
    What `start` gives on these ports, or on that number of free ones where there are none.

    Another process may have taken a port meanwhile: then free ones are looked for again, and given ones are waited for. `taken`: a
    pattern of what `start` says then. Raises PartError: as `start`, at the last try, or with other words.
    """
    tries = _TRIES
    while True:
        tries -= 1
        try:
            return start(list(ports) or free_ports(count))
        except PartError as error:
            if not tries or not re.search(taken, str(error)):
                raise
        if ports:
            time.sleep(1)


def is_listening(port: int) -> bool:
    """Whether a process accepts connections on this loopback port."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0
