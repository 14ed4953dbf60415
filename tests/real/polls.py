"""Waiting for what another program brings about: by asking again, with a bound that a busy machine keeps."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

POLL_SECONDS = 0.02
Answer = TypeVar("Answer")


def until(ask: Callable[[], Answer | None], what: str, seconds: float = 60) -> Answer:
    """The first answer that is true. Raises TimeoutError, with `what`."""
    end = time.monotonic() + seconds
    while not (answer := ask()):
        if time.monotonic() > end:
            raise TimeoutError(f"not within {seconds:g} s: {what}")
        time.sleep(POLL_SECONDS)
    return answer
