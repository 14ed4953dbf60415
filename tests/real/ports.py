"""Free TCP ports on loopback."""

from __future__ import annotations

import contextlib
import socket


def free_ports(count: int) -> list[int]:
    """
    Ports that nobody listens on now. Somebody may take one before it is used: callers try again.
    """
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]


def is_listening(port: int) -> bool:
    """Whether somebody accepts connections on this loopback port."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0
