"""
How one model's answers look: the settings, and `option.*` of its own `serving.properties`, which beat them. Pure.

Of that file only the options below are read: the others are for DJL Serving's engines. Form: Java's properties, without its escapes: no
option needs one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from adapter.errors import InvalidModel
from adapter.model import OPTIONS_FILE
from adapter.settings.fronts import OUTPUT_FORMATTERS, ROLLING_BATCHES, LlmSettings

MOST_BYTES = 64 * 1024
_PAIR = re.compile(r"([^:=\s]+)\s*[:=]?\s*(.*)")
_CONTINUED = re.compile(r"\\(?:\r\n|\n|\r)\s*")
_FLAG = {"true": True, "false": False}
_OPTIONS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "option.tgi_compat": ("is_tgi_compatible", _FLAG),
    "option.output_formatter": ("output_formatter", {word: word for word in OUTPUT_FORMATTERS}),
    "option.enable_streaming": ("is_streaming", _FLAG),
    "option.rolling_batch": ("rolling_batch", {word: word for word in ROLLING_BATCHES}),
    "option.text_output": ("text", {word: word for word in ("auto", "delta", "cumulative")}),
}
"""Name → field of `Options`, and its values by their words."""


@dataclass(frozen=True, kw_only=True)
class Options(LlmSettings):
    """Of one model: the settings, and what its own file says instead."""

    text: str = "auto"
    """What an answer of the model holds: `delta`, `cumulative`, or whichever its backend is known for."""

    @property
    def is_dynamic(self) -> bool:
        """Whether every request has the schema of dynamic batches."""
        return self.rolling_batch == "disable"

    @property
    def has_stream_format(self) -> bool:
        """Whether a form of streams is chosen: then what does not say so is one."""
        return self.output_formatter in ("jsonlines", "sse")


def options_of(settings: LlmSettings, properties: bytes | None) -> Options:
    """
    The options of a model that has this file, or none.

    Raises:
        InvalidModel: an option has a value that it cannot have.
    """
    changes: dict[str, Any] = {}
    for name, value in read(properties.decode("utf-8", "replace") if properties else ""):
        if name not in _OPTIONS:
            continue
        field, choices = _OPTIONS[name]
        if value.lower() not in choices:
            raise InvalidModel(f"{OPTIONS_FILE}: {name} is {value[:64]!r}; it can be {', '.join(choices)}")
        changes[field] = choices[value.lower()]
    return Options(**{**vars(settings), **changes})


def read(text: str) -> Iterator[tuple[str, str]]:
    """Keys and values of a properties file, in order, without comments."""
    for line in (line.strip() for line in re.split(r"[\r\n]+", _CONTINUED.sub("", text))):
        if line[:1] not in ("#", "!") and (found := _PAIR.fullmatch(line)):
            yield found[1], found[2]
