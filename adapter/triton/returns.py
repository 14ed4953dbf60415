"""
Breaks of what is known of Triton, and what comes after them: the same process, or another one.

The first answer after a break is a *return*, told to whoever waits in `returned`. A return proves another process where the
port was closed meanwhile, or where the server's name is another one; else the index knows more (`confirm_restart`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from adapter.telemetry.metrics import TRITON_RESTARTS

log = structlog.stdlib.get_logger(__name__)


class Returns:
    """Counts both."""

    def __init__(self, target: str, time: Callable[[], float]) -> None:
        """`target`: of Triton, for the log; `time`: of the event loop, in seconds."""
        self._target = target
        self._time = time
        self.breaks = 0
        self.began_at: float | None = None
        """Time of the first answer of the Triton that is there now; None while there is none."""
        self.name: str | None = None
        """Of the server that answered last; None before the first answer, and where it does not tell its name."""
        self._breaks_until_answer: int | None = None
        """How many breaks there were at the last answer; None before the first one."""
        self._is_certain = False
        """Whether it is another process that comes after the break."""
        self._restarts = 0
        self._returned = asyncio.Event()
        self._return_is_certain = False
        self._is_counted = False
        """Whether the last return is in the metric."""

    @property
    def restarts(self) -> int:
        """How often Triton has certainly become another process, a death included that nothing has followed yet."""
        return self._restarts + self._is_certain

    @property
    def is_unbroken(self) -> bool:
        """Whether there was an answer, and no break since."""
        return self.breaks == self._breaks_until_answer

    def broke(self) -> None:
        """A connection has ended, or a question was not answered."""
        self.breaks += 1

    def closed(self) -> None:
        """Nobody listens on the port, after a break: a Triton that has answered before is no more."""
        self._is_certain |= self._breaks_until_answer is not None
        self.began_at = None

    def answered(self, name: str | None) -> None:
        """Triton has answered, and nothing has broken since it was asked."""
        if self._breaks_until_answer not in (None, self.breaks):
            is_certain = self._is_certain or (None not in (name, self.name) and name != self.name)
            self._is_certain = False
            self._tell(is_certain)
        if self.began_at is None:
            self.began_at = self._time()
        self._breaks_until_answer = self.breaks
        self.name = name

    async def returned(self) -> bool:
        """
        Wait for the next return, or take the one that nobody has waited for.

        Returns:
            Whether it is certainly another process. Of several returns that are told as one, any of them.
        """
        await self._returned.wait()
        self._returned.clear()
        is_certain, self._return_is_certain = self._return_is_certain, False
        return is_certain

    def confirm_restart(self) -> None:
        """The last return was a restart after all: the index shows that the models are gone. Counted once."""
        if self.began_at is not None:
            self.began_at = self._time()
        if not self._is_counted:
            self._is_counted = True
            TRITON_RESTARTS.inc()
            log.warning("triton.restarted", target=self._target)

    def _tell(self, is_certain: bool) -> None:
        self._is_counted = False
        if is_certain:
            self._restarts += 1
            self.began_at = self._time()
            self.confirm_restart()
        self._return_is_certain |= is_certain
        self._returned.set()
