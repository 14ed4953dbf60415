"""
How one model's answers look: the settings, and `option.*` of its own `serving.properties`, which beat them. Pure.

Of that file only the options below are read: the others are for DJL Serving's engines. Form: Java's properties, as DJL reads them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from adapter.errors import InvalidModel
from adapter.model import OPTIONS_FILE
from adapter.settings.fronts import DETAILS, OUTPUT_FORMATTERS, ROLLING_BATCHES, LlmSettings

MOST_BYTES = 64 * 1024
_PAIR = re.compile(r"((?:[^\\:=\s]|\\.)+)\s*[:=]?\s*(.*)", re.DOTALL)
_ESCAPED = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}


@dataclass(frozen=True, kw_only=True)
class Options:
    """Of one model."""

    is_tgi_compatible: bool
    output_formatter: str
    is_streaming: bool
    is_dynamic: bool
    """Every request has the schema of dynamic batches."""
    is_strict: bool
    """Token details that nobody can tell are an error."""
    text: str = "auto"
    """What an answer of the model holds: `delta`, `cumulative`, or whichever its backend is known for."""


def options_of(settings: LlmSettings, properties: bytes | None) -> Options:
    """
    The options of a model that has this file, or none.

    Raises:
        InvalidModel: an option has a value that it cannot have.
    """
    options = Options(
        is_tgi_compatible=settings.is_tgi_compatible,
        output_formatter=settings.output_formatter,
        is_streaming=settings.is_streaming,
        is_dynamic=settings.rolling_batch == "disable",
        is_strict=settings.details == "strict",
    )
    for name, value in read(properties.decode("utf-8", "replace") if properties else ""):
        options = _with(options, name, value)
    return options


def _with(options: Options, name: str, value: str) -> Options:
    changes: dict[str, Any] = {}
    match name:
        case "option.tgi_compat":
            changes["is_tgi_compatible"] = _one_of(name, value, ("true", "false")) == "true"
        case "option.output_formatter":
            changes["output_formatter"] = _one_of(name, value, OUTPUT_FORMATTERS)
        case "option.enable_streaming":
            changes["is_streaming"] = _one_of(name, value, ("true", "false")) == "true"
        case "option.rolling_batch":
            changes["is_dynamic"] = _one_of(name, value, ROLLING_BATCHES) == "disable"
        case "option.details":
            changes["is_strict"] = _one_of(name, value, DETAILS) == "strict"
        case "option.text_output":
            changes["text"] = _one_of(name, value, ("auto", "delta", "cumulative"))
    return replace(options, **changes)


def _one_of(name: str, value: str, choices: tuple[str, ...]) -> str:
    if value.lower() not in choices:
        raise InvalidModel(f"{OPTIONS_FILE}: {name} is {value[:64]!r}; it can be {', '.join(choices)}")
    return value.lower()


def read(text: str) -> Iterator[tuple[str, str]]:
    """Keys and values of a properties file, in order: comments, continued lines and escapes as Java has them."""
    lines = iter(re.split(r"\r\n|\n|\r", text))
    for first in lines:
        line = first.lstrip(" \t\f")
        if not line or line[0] in "#!":
            continue
        while (len(line) - len(line.rstrip("\\"))) % 2:
            line = line[:-1] + next(lines, "").lstrip(" \t\f")
        if found := _PAIR.fullmatch(line):
            yield _plain(found[1]), _plain(found[2]).strip()


def _plain(text: str) -> str:
    def replaced(found: re.Match[str]) -> str:
        code = found[1]
        return chr(int(code[1:], 16)) if len(code) > 1 else _CONTROLS.get(code, code)

    return _ESCAPED.sub(replaced, text)
