"""
Values with a unit, of settings, parameters and the command line: how a text is read, and how bytes are shown.

A parser takes a text and raises ValueError in words.
"""

from __future__ import annotations

import os
import re
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

MIB = 1024 * 1024
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]i?)?b?", re.IGNORECASE)
_MAX_INT64 = 2**63 - 1
_HERE = ("127.0.0.1", "[::1]", "0.0.0.0", "[::]")  # noqa: S104 - compared alone
_MAX_SOCKET_PATH_BYTES = 107
"""Linux: `sun_path` has 108 with its NUL."""
_BOOLS = dict.fromkeys(("1", "t", "true", "yes", "on"), True) | dict.fromkeys(("0", "f", "false", "no", "off"), False)


class Endpoint(NamedTuple):
    """Where a gRPC server listens or is found: a host and port, or a unix socket."""

    host: str = ""
    port: int = 0
    socket: Path | None = None

    @property
    def target(self) -> str:
        """The address in gRPC's form."""
        return f"{self.host}:{self.port}" if self.socket is None else f"unix:{self.socket}"

    @property
    def address(self) -> tuple[str, int, Path | None]:
        """What two endpoints of this machine have in common where they are the same, however it is written."""
        return "localhost" if self.host in _HERE else self.host, self.port, self.socket

    def __str__(self) -> str:
        return self.target


def parse_endpoint(text: str) -> Endpoint:
    """`port:N`, `host:N`, `unix:/path` or `unix:///path`. Source: the controller's endpoint forms."""
    if text.startswith("unix:"):
        path = text.removeprefix("unix:").removeprefix("//")
        if not path.startswith("/") or path.endswith("/"):
            raise ValueError(f"{text!r} is not a unix socket; write unix:/path/to.sock")
        if len(os.fsencode(path)) > _MAX_SOCKET_PATH_BYTES:
            raise ValueError(f"{text!r} is too long for a unix socket (at most {_MAX_SOCKET_PATH_BYTES} bytes)")
        return Endpoint(socket=Path(path))
    host, colon, port = text.rpartition(":")
    is_plain = "/" not in host and (":" not in host or (host.startswith("[") and host.endswith("]")))
    if not colon or not host or not is_plain:
        raise ValueError(f"{text!r} is not an endpoint; write port:N, host:N or unix:/path/to.sock")
    return Endpoint(host="localhost" if host == "port" else host, port=parse_port(port))


def parse_port(text: str) -> int:
    """1 to 65535."""
    number = parse_int(text)
    if not 1 <= number <= 65535:
        raise ValueError(f"{text!r} is not a port (1 to 65535)")
    return number


def parse_int(text: str) -> int:
    """A whole number."""
    if not re.fullmatch(r"[+-]?\d{1,18}", text.strip()):
        raise ValueError(f"{text!r} is not a whole number")
    return int(text)


def parse_number(text: str) -> float:
    """A finite number greater than 0."""
    if not re.fullmatch(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", text.strip()):
        raise ValueError(f"{text!r} is not a number")
    number = float(text)
    if not 0 < number < float("inf"):
        raise ValueError(f"{text!r} must be a number greater than 0")
    return number


def parse_bytes(text: str) -> int:
    """A whole number of bytes, or with a unit: 512MiB, 1.5Gi, 2G. `m` is a million bytes, as `M`."""
    if re.fullmatch(r"[+-]?\d{1,18}", text.strip()):
        return int(text)
    match = _SIZE.fullmatch(text.strip())
    if not match or ("." in match[1] and not match[2]):
        raise ValueError(f"{text!r} is not a size; write bytes, or a unit as in 512MiB")
    unit = (match[2] or "").lower()
    count = Decimal(match[1]) * (1024 if unit.endswith("i") else 1000) ** " kmgt".index(unit[:1] or " ")
    if count > _MAX_INT64:
        raise ValueError(f"{text!r} is more bytes than a machine can have")
    return int(count)


def parse_bool(text: str) -> bool:
    """1/0, t/f, true/false, yes/no, on/off; any case."""
    if (value := _BOOLS.get(text.strip().lower())) is None:
        raise ValueError(f"{text!r} is neither true nor false")
    return value


def show_bytes(count: int) -> str:
    """For people: `1536 MiB (1610612736 bytes)` from 1 MiB up, else bytes."""
    if count < MIB:
        return f"{count} bytes"
    return f"{count / MIB:.0f} MiB ({count} bytes)"
