"""How far the pull of a model is: in the log, from time to time."""

from __future__ import annotations

import asyncio

import structlog

from adapter.waits import Waits

LOG_SECONDS = 10.0

log = structlog.stdlib.get_logger(__name__)


class Progress:
    """Of one pull, from now until `end`. Made on the event loop."""

    def __init__(self, model_id: str, waits: Waits) -> None:
        """`waits`: of the load, where the pull tells its bytes."""
        self._model_id = model_id
        self._waits = waits
        self._wait()

    def end(self) -> None:
        """Tell no more."""
        self._timer.cancel()

    def _wait(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(LOG_SECONDS, self._log)

    def _log(self) -> None:
        done, expected = self._waits.progress()
        log.info("load.progress", model_id=self._model_id, done_bytes=done, expected_bytes=expected)
        self._wait()
