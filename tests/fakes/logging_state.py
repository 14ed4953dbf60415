"""The process's logging, given back as it was."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from adapter.telemetry.logs import QUIET_LIBRARIES


@contextmanager
def untouched_logging() -> Iterator[None]:
    """Of structlog and the root logger, while inside."""
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    levels = {name: logging.getLogger(name).level for name in QUIET_LIBRARIES}
    yield
    root.handlers = handlers
    root.setLevel(level)
    for name, before in levels.items():
        logging.getLogger(name).setLevel(before)
    structlog.reset_defaults()
