"""How far the pull of a model is: as metrics, and in the log from time to time."""

from __future__ import annotations

import asyncio
from functools import partial

import structlog

from adapter.telemetry.metrics import LOAD_BYTES
from adapter.waits import Waits

LOG_SECONDS = 10.0
KINDS = ("done", "expected")

log = structlog.stdlib.get_logger(__name__)


class Progress:
    """Of one pull, from now until `end`. Made on the event loop."""

    def __init__(self, model_id: str, waits: Waits) -> None:
        """`waits`: of the load, where the pull tells its bytes."""
        self._model_id = model_id
        self._waits = waits
        for number, kind in enumerate(KINDS):
            LOAD_BYTES.labels(model_id, kind).set_function(partial(self._bytes, number))
        self._timer = asyncio.get_running_loop().call_later(LOG_SECONDS, self._log)

    def end(self) -> None:
        """The series go."""
        self._timer.cancel()
        for kind in KINDS:
            LOAD_BYTES.remove(self._model_id, kind)

    def _bytes(self, number: int) -> int:
        return self._waits.progress()[number]

    def _log(self) -> None:
        done, expected = self._waits.progress()
        log.info("load.progress", model_id=self._model_id, done_bytes=done, expected_bytes=expected)
        self._timer = asyncio.get_running_loop().call_later(LOG_SECONDS, self._log)
