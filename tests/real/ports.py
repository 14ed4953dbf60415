"""Free TCP ports on loopback."""

from __future__ import annotations

import contextlib
import random
import socket

_CANDIDATES = range(20_000, 32_000)
"""Below the ports that Linux gives to outgoing connections (32768 and up), which would take one before it is used."""


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now."""
    found: list[int] = []
    with contextlib.ExitStack() as stack:
        for port in random.sample(_CANDIDATES, len(_CANDIDATES)):
            each = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            with contextlib.suppress(OSError):
                each.bind(("127.0.0.1", port))
                found.append(port)
            if len(found) == count:
                return found
    raise OSError(f"of the ports {_CANDIDATES} fewer than {count} are free")


def is_listening(port: int) -> bool:
    """Whether somebody accepts connections on this loopback port."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0
