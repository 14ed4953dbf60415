"""
Logs: one JSON object per line, or readable lines on a terminal.

Modules log with `structlog.stdlib.get_logger(__name__)`: an event in the past tense, the rest as
fields. Loggers of libraries go through the same processors. No secret leaves here: fields that hold
credentials are masked by name, all texts pass `redact`.

`note` adds fields to the one canonical line of the call that is being answered. It works through a
context variable, so a task that was started inside the call adds to the same line.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from io import TextIOWrapper
from typing import Any, TextIO, cast

import structlog
from structlog.typing import EventDict, Processor

from adapter.settings.process import TelemetrySettings
from adapter.telemetry.redaction import MASK, redact

SECRET_FIELDS = frozenset({
    "access_key_id", "secret_access_key", "session_token", "model_key", "modelkey", "storage_params", "private_key", "client_key",
    "client_secret", "account_key", "sas_token", "connection_string", "password", "token", "access_token", "authorization", "headers",
})  # fmt: skip
"""Fields whose value is never logged, whatever code passes it: the credentials of every storage type, and what holds them."""

QUIET_LIBRARIES = ("boto3", "botocore", "google", "grpc", "asyncio")
"""They never log below INFO; the only place that silences any. Debug lines of storage clients hold signed headers and tokens."""

_notes: ContextVar[dict[str, Any] | None] = ContextVar("adapter_rpc_notes", default=None)


def note(**fields: Any) -> None:
    """Add fields to the canonical line of the current call; does nothing outside of one."""
    notes = _notes.get()
    if notes is not None:
        notes.update(fields)


@contextmanager
def noting() -> Iterator[dict[str, Any]]:
    """Collect what `note` is given inside. Used by the writer of the canonical line."""
    notes: dict[str, Any] = {}
    token = _notes.set(notes)
    try:
        yield notes
    finally:
        _notes.reset(token)


def configure(settings: TelemetrySettings, stream: TextIO | None = None) -> None:
    """Send all logs, structlog's and the standard library's, to `stream` (default: standard output)."""
    stream = stream or sys.stdout
    if isinstance(stream, TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")
    logging.raiseExceptions = False  # a load must not end because the log has no reader
    is_json = settings.log_format == "json" or (settings.log_format == "auto" and not stream.isatty())
    level = getattr(logging, settings.log_level.upper())
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        structlog.processors.format_exc_info,
        mask_secrets,
    ]
    console = structlog.dev.ConsoleRenderer(
        colors=stream.isatty(), timestamp_key="time", exception_formatter=structlog.dev.plain_traceback, pad_event_to=24
    )
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    route = logging.StreamHandler(stream)
    route.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, _render_json if is_json else console],
        )
    )
    logging.basicConfig(handlers=[route], level=level, force=True)
    for name in QUIET_LIBRARIES:
        logging.getLogger(name).setLevel(max(level, logging.INFO))


def mask_secrets(_logger: object, _method: str, event: EventDict) -> EventDict:
    """Processor: mask fields by name, and texts by shape, at any depth."""
    return cast("EventDict", _masked("", event))


def _masked(name: str, value: Any) -> Any:
    if name.lower() in SECRET_FIELDS and value is not None:
        return MASK
    if isinstance(value, (int, float)) or value is None:
        return value
    if isinstance(value, Mapping):
        return {str(key): _masked(str(key), inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_masked(name, inner) for inner in value]
    return redact(str(value))


def _render_json(_logger: object, _method: str, event: MutableMapping[str, Any]) -> str:
    first = {key: event.pop(key) for key in ("time", "level", "event") if key in event}
    return json.dumps({**first, **event}, separators=(",", ":"), default=str)
