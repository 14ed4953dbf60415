"""
What a setting can be: how its text is read, and in which unit it is; and how the settings of a group are read.

A parser takes the text of a variable and raises ValueError in words. Nothing here reads the environment.
"""

from __future__ import annotations

import ast
import inspect
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, dataclass_transform

from adapter.units import parse_bool, parse_bytes, parse_endpoint, parse_int, parse_number, parse_port

_MAX_INT32 = 2**31 - 1
"""ModelMesh reads counts and milliseconds as Java's int."""
_MOST_SECRET_BYTES = 64 * 1024
_SERVICE_LINK = re.compile(r"(tcp|udp|sctp)://\S+:\d+")
"""`tcp://10.0.0.7:80`: what the kubelet puts into `METRICS_PORT` of every pod in a namespace that has a Service called `metrics`."""


@dataclass(frozen=True)
class Secret:
    """A text that is hidden when it is printed, logged or formatted."""

    text: str = field(repr=False)


class Kind(NamedTuple):
    """A kind of setting."""

    parse: Callable[[str], Any]
    unit: str


def whole(at_least: int, unit: str, parse_whole: Callable[[str], int] = parse_int, at_most: int = _MAX_INT32) -> Kind:
    """A whole number between two bounds."""

    def parse(text: str) -> int:
        number = parse_whole(text)
        if number < at_least:
            raise ValueError(f"{text!r} must be {at_least} or more")
        if number > at_most:
            raise ValueError(f"{text!r} is too large (at most {at_most})")
        return number

    return Kind(parse, unit)


AUTO = -1
"""`auto`, where a number is expected."""


def or_auto(kind: Kind, auto: Any) -> Kind:
    """The kind, or `auto`, which is this value."""
    return Kind(lambda text: auto if text.strip().lower() == "auto" else kind.parse(text), f"{kind.unit} or auto")


def size(at_least: int = 0) -> Kind:
    """A size that is not below this one."""
    return whole(at_least, "bytes", parse_bytes, 2**63 - 1)


def choice(unit: str, *words: str, **others: str) -> Kind:
    """One of these words, in any case, or another name of one."""

    def parse(text: str) -> str:
        word = others.get(text.strip().lower(), text.strip().lower())
        if word not in words:
            raise ValueError(f"{text!r} is none of {', '.join(words)}")
        return word

    return Kind(parse, unit)


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


def parse_secret_file(text: str) -> Secret:
    """What is in a file, without the end of its line. A text that is no path may be the secret itself, and is not shown."""
    path = Path(text)
    try:
        if path.is_absolute() and path.is_file():  # a pipe would be waited for
            with path.open("rb") as opened:
                return Secret(opened.read(_MOST_SECRET_BYTES).decode().removesuffix("\n").removesuffix("\r"))
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read: {error.strerror if isinstance(error, OSError) else 'it is not text'}") from None
    raise ValueError("must be the absolute path of a file, which holds the value")


def parse_networks(text: str) -> tuple[IPv4Network | IPv6Network, ...]:
    """Networks, joined by commas; of an empty text, none."""
    return tuple(ip_network(part.strip()) for part in text.split(",") if part.strip())


PORT = Kind(parse_port, "port")
OPTIONAL_PORT = Kind(lambda text: 0 if text.strip() == "0" else parse_port(text), "port")
ENDPOINT = Kind(parse_endpoint, "endpoint")
SIZE = size()
SECONDS = Kind(parse_number, "seconds")
MILLISECONDS = whole(100, "milliseconds")
"""ModelMesh refuses less than 100. Source: `ModelMesh.java` 682-685."""
FACTOR = Kind(parse_number, "factor")
LOADS = whole(1, "loads")
CONNECTIONS = whole(1, "connections")
REQUESTS = whole(1, "requests")
REQUESTS_OR_NONE = or_auto(whole(0, "requests"), AUTO)
BOOLEAN = Kind(parse_bool, "boolean")
OPTIONAL_BOOLEAN = or_auto(BOOLEAN, None)
NETWORKS = Kind(parse_networks, "networks")
PATH = Kind(parse_absolute_path, "path")
PATHS = Kind(parse_paths, "paths")
SECRET_FILE = Kind(parse_secret_file, "path")
COMMAND = Kind(parse_command, "command")
ADDRESS = Kind(lambda text: str(ip_address(text.strip())), "address")
TEXT = Kind(str, "text")
SECRET = Kind(Secret, "secret text")
LOG_LEVEL = choice(
    "level", "debug", "info", "warning", "error", trace="debug", warn="warning", dpanic="error", panic="error", fatal="error"
)
"""The names of the Go adapter's logger are understood too."""
LOG_FORMAT = choice("format", "auto", "json", "text")


def setting(env: str, kind: Kind, default: str | None) -> Any:
    """
    A dataclass field that is a setting; the docstring below it is its meaning in the tables.

    `default` is text as in the environment; None leaves the field None.
    """
    return field(metadata={"env": env, "kind": kind, "default": default})


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(setting,))
class Group:
    """Base of the dataclasses of settings: each class below it is one, frozen and with keywords alone."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, kw_only=True)(cls)

    def problems(self) -> Iterator[str]:
        """What cannot work beside the bounds of each setting, a sentence each."""
        return iter(())


def read(group: type[Any], environ: Mapping[str, str], problems: list[str]) -> Any:
    """
    An instance of a dataclass of settings, or None after adding a sentence for each variable that is wrong.

    A variable that is empty counts as absent; of NETWORKS it is a value: none at all.
    """
    values: dict[str, Any] = {}
    for entry in fields(group):
        kind, text = entry.metadata["kind"], environ.get(entry.metadata["env"])
        if text is None or (not text and kind is not NETWORKS) or (kind.unit == "port" and _SERVICE_LINK.fullmatch(text)):
            text = entry.metadata["default"]
        try:
            values[entry.name] = None if text is None else kind.parse(text)
        except ValueError as error:
            problems.append(f"{entry.metadata['env']}: {error}")
    return group(**values) if len(values) == len(fields(group)) else None


def meanings(group: type[Any]) -> Iterator[str]:
    """Of each field in turn, in one line without a full stop: what the docstring below it says."""
    (body,) = ast.parse(inspect.getsource(group)).body
    for before, node in pairwise(ast.iter_child_nodes(body)):
        if isinstance(before, ast.AnnAssign) and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield " ".join(str(node.value.value).split()).removesuffix(".")
