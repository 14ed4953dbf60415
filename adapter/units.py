"""Parsers for settings: bytes, milliseconds, seconds, booleans, endpoints. Each raises ValueError in words."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_SUFFIX_BYTES = {
    "": 1,
    "k": 1000, "m": 1000**2, "g": 1000**3, "t": 1000**4,
    "ki": 1024, "mi": 1024**2, "gi": 1024**3, "ti": 1024**4,
}  # fmt: skip
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]i?)?b?", re.IGNORECASE)
_TRUE = frozenset({"1", "t", "true", "yes", "on"})
_FALSE = frozenset({"0", "f", "false", "no", "off"})


@dataclass(frozen=True)
class Endpoint:
    """Where a gRPC server listens or is found: a host and port, or a unix socket."""

    host: str = ""
    port: int = 0
    socket: Path | None = None

    @property
    def target(self) -> str:
        """The address in gRPC's form."""
        if self.socket is not None:
            return f"unix:{self.socket}"
        return f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return self.target


def parse_endpoint(text: str) -> Endpoint:
    """`port:N`, `host:N`, `unix:/path` or `unix:///path`."""
    if text.startswith("unix:"):
        path = text.removeprefix("unix:")
        path = path.removeprefix("//")
        if not path.startswith("/") or path.endswith("/"):
            raise ValueError(f"{text!r} is not a unix socket; write unix:/path/to.sock")
        return Endpoint(socket=Path(path))
    host, colon, port = text.rpartition(":")
    if not colon or not host or "/" in host:
        raise ValueError(f"{text!r} is not an endpoint; write port:N, host:N or unix:/path/to.sock")
    return Endpoint(host="localhost" if host == "port" else host, port=parse_port(port))


def parse_port(text: str) -> int:
    """1 to 65535."""
    number = parse_int(text)
    if not 1 <= number <= 65535:
        raise ValueError(f"{text!r} is not a port (1 to 65535)")
    return number


def parse_optional_port(text: str) -> int:
    """A port, or 0 for none."""
    return 0 if text.strip() == "0" else parse_port(text)


def parse_int(text: str) -> int:
    """A whole number."""
    if not re.fullmatch(r"[+-]?\d{1,18}", text.strip()):
        raise ValueError(f"{text!r} is not a whole number")
    return int(text)


def parse_positive(text: str) -> int:
    """A whole number of 1 or more."""
    number = parse_int(text)
    if number < 1:
        raise ValueError(f"{text!r} must be 1 or more")
    return number


def parse_count(text: str) -> int:
    """A whole number of 0 or more."""
    number = parse_int(text)
    if number < 0:
        raise ValueError(f"{text!r} must be 0 or more")
    return number


def parse_number(text: str) -> float:
    """A finite number greater than 0."""
    try:
        number = float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number") from None
    if not 0 < number < float("inf"):
        raise ValueError(f"{text!r} must be a number greater than 0")
    return number


def parse_bytes(text: str) -> int:
    """A whole number of bytes, or with a unit: 512MiB, 1.5Gi, 2G."""
    if re.fullmatch(r"[+-]?\d{1,18}", text.strip()):
        return int(text)
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise ValueError(f"{text!r} is not a size; write bytes, or a unit as in 512MiB")
    return int(float(match[1]) * _SUFFIX_BYTES[(match[2] or "").lower()])


def parse_bool(text: str) -> bool:
    """1/0, t/f, true/false, yes/no, on/off; any case."""
    word = text.strip().lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise ValueError(f"{text!r} is neither true nor false")


def parse_optional_bool(text: str) -> bool | None:
    """A boolean, or `auto` for None."""
    return None if text.strip().lower() == "auto" else parse_bool(text)


def parse_absolute_path(text: str) -> Path:
    """An absolute path."""
    path = Path(text)
    if not path.is_absolute() or ".." in path.parts:
        raise ValueError(f"{text!r} must be an absolute path without '..'")
    return path


def show_bytes(count: int) -> str:
    """For people: `1536 MiB (1610612736 bytes)` from 1 MiB up, else bytes."""
    if count < 1024 * 1024:
        return f"{count} bytes"
    return f"{count / (1024 * 1024):.0f} MiB ({count} bytes)"
