"""
What a setting can be: how its text is read, and in which unit it is.

A parser takes the text of a variable and raises ValueError in words. Nothing here reads the environment.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from decimal import Decimal
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Any

MIB = 1024 * 1024
_SUFFIX_BYTES = {
    "": 1,
    "k": 1000, "m": 1000**2, "g": 1000**3, "t": 1000**4,
    "ki": 1024, "mi": 1024**2, "gi": 1024**3, "ti": 1024**4,
}  # fmt: skip
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]i?)?b?", re.IGNORECASE)
_MAX_INT32 = 2**31 - 1
"""ModelMesh reads counts and milliseconds as Java's int."""
_MAX_INT64 = 2**63 - 1
_SERVICE_LINK = re.compile(r"(tcp|udp|sctp)://\S+:\d+")
"""`tcp://10.0.0.7:80`: what the kubelet puts into `METRICS_PORT` of every pod in a namespace that has a Service called `metrics`."""
_MAX_SOCKET_PATH_BYTES = 107
"""Linux: `sun_path` has 108 with its NUL."""
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
        return f"{self.host}:{self.port}" if self.socket is None else f"unix:{self.socket}"

    def __str__(self) -> str:
        return self.target


@dataclass(frozen=True)
class Secret:
    """A text that shows itself to nobody who prints, logs or formats it."""

    text: str = field(repr=False)

    def __str__(self) -> str:
        return "***"


@dataclass(frozen=True)
class Kind:
    """A kind of setting."""

    parse: Callable[[str], Any]
    unit: str
    takes_empty: bool = False
    """An empty text is a value of its own; of other kinds it stands for the default."""
    not_meant: re.Pattern[str] | None = None
    """A text that somebody else writes under the same name: it counts as absent."""


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
    return _at_most_int32(text, at_least=1)


def parse_count(text: str) -> int:
    """A whole number of 0 or more."""
    return _at_most_int32(text, at_least=0)


def _at_most_int32(text: str, at_least: int) -> int:
    number = parse_int(text)
    if number < at_least:
        raise ValueError(f"{text!r} must be {at_least} or more")
    if number > _MAX_INT32:
        raise ValueError(f"{text!r} is too large (at most {_MAX_INT32})")
    return number


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
    count = Decimal(match[1]) * _SUFFIX_BYTES[(match[2] or "").lower()]
    if count > _MAX_INT64:
        raise ValueError(f"{text!r} is more bytes than a machine can have")
    return int(count)


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


def parse_paths(text: str) -> tuple[Path, ...]:
    """Absolute paths, joined by colons."""
    paths = tuple(parse_absolute_path(part) for part in text.split(":") if part)
    if not paths:
        raise ValueError("names no folder")
    return paths


def parse_command(text: str) -> tuple[str, ...]:
    """A program and its arguments, split as by a shell. The text may hold a secret, and is not shown."""
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise ValueError(f"cannot be split into words: {str(error).lower()}") from None
    if not words or not words[0]:
        raise ValueError("names no program")
    return words


def parse_address(text: str) -> str:
    """An IP address to listen on."""
    try:
        return str(ip_address(text.strip()))
    except ValueError:
        raise ValueError(f"{text!r} is not an IP address; 0.0.0.0 and :: are all interfaces") from None


def parse_secret_path(text: str) -> Path:
    """As `parse_absolute_path`. A text that is no path may be the secret itself, and is not shown."""
    try:
        return parse_absolute_path(text)
    except ValueError:
        raise ValueError("must be an absolute path without '..', of the file that holds the value") from None


def parse_networks(text: str) -> tuple[IPv4Network | IPv6Network, ...]:
    """Networks, joined by commas; of an empty text, none."""
    return tuple(_network(part.strip()) for part in text.split(",") if part.strip())


def _network(text: str) -> IPv4Network | IPv6Network:
    try:
        network = ip_network(text, strict=False)
    except ValueError:
        raise ValueError(f"{text!r} is not a network; write for instance 10.0.0.0/8,fe80::/10") from None
    if ip_address(text.partition("/")[0]) != network.network_address:
        raise ValueError(f"{text!r} begins in the middle of its network; write {network}")
    return network


def parse_log_level(text: str) -> str:
    """A level of the log; the names of the Go adapter's logger are understood too."""
    aliases = {"trace": "debug", "warn": "warning", "dpanic": "error", "panic": "error", "fatal": "error"}
    level = aliases.get(text.lower(), text.lower())
    if level not in ("debug", "info", "warning", "error"):
        raise ValueError(f"{text!r} is not a log level (debug, info, warning, error)")
    return level


def parse_log_format(text: str) -> str:
    """`auto`, `json` or `text`."""
    if text not in ("auto", "json", "text"):
        raise ValueError(f"{text!r} is not a log format (auto, json, text)")
    return text


def show_bytes(count: int) -> str:
    """For people: `1536 MiB (1610612736 bytes)` from 1 MiB up, else bytes."""
    if count < MIB:
        return f"{count} bytes"
    return f"{count / MIB:.0f} MiB ({count} bytes)"


PORT = Kind(parse_port, "port", not_meant=_SERVICE_LINK)
OPTIONAL_PORT = Kind(parse_optional_port, "port", not_meant=_SERVICE_LINK)
ENDPOINT = Kind(parse_endpoint, "endpoint")
BYTES = Kind(parse_bytes, "bytes")
SECONDS = Kind(parse_number, "seconds")
MILLISECONDS = Kind(parse_positive, "milliseconds")
FACTOR = Kind(parse_number, "factor")
LOADS = Kind(parse_positive, "loads")
THREADS = Kind(parse_positive, "threads")
REQUESTS = Kind(parse_count, "requests")
BOOLEAN = Kind(parse_bool, "boolean")
OPTIONAL_BOOLEAN = Kind(parse_optional_bool, "boolean or auto")
NETWORKS = Kind(parse_networks, "networks", takes_empty=True)
PATH = Kind(parse_absolute_path, "path")
SECRET_PATH = Kind(parse_secret_path, "path")
TEXT = Kind(str, "text")
SECRET = Kind(Secret, "secret text")
LOG_LEVEL = Kind(parse_log_level, "level")
LOG_FORMAT = Kind(parse_log_format, "format")


PATHS = Kind(parse_paths, "paths")
COMMAND = Kind(parse_command, "command")
ADDRESS = Kind(parse_address, "address")


def choice(*words: str) -> Kind:
    """One of these words, in any case."""

    def parse(text: str) -> str:
        word = text.strip().lower()
        if word not in words:
            raise ValueError(f"{text!r} is none of {', '.join(words)}")
        return word

    return Kind(parse, "word")


def setting(kind: Kind, env: str, default: str | None, meaning: str) -> Any:
    """A dataclass field that is a setting. `default` is text as in the environment; None leaves the field None."""
    return field(metadata={"kind": kind, "env": env, "default": default, "meaning": meaning})


def read(group: type[Any], environ: Mapping[str, str], problems: list[str]) -> Any:
    """An instance of a dataclass of settings, or None after adding a sentence for each variable that is wrong."""
    values: dict[str, Any] = {}
    for entry in fields(group):
        kind, given = entry.metadata["kind"], environ.get(entry.metadata["env"])
        if given is not None and kind.not_meant is not None and kind.not_meant.fullmatch(given):
            given = None
        text = given if given or (given is not None and kind.takes_empty) else entry.metadata["default"]
        try:
            values[entry.name] = None if text is None else kind.parse(text)
        except ValueError as error:
            problems.append(f"{entry.metadata['env']}: {error}")
    return group(**values) if len(values) == len(fields(group)) else None
