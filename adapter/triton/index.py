"""
Triton's repository index: the one place that asks for it, and what to do when it fails.

A question for the index holds the lock that inference needs, and Triton answers nothing else meanwhile. So there is one
question at a time for all (`questions`), and a rest after each (`pace`).

One bad entry in the repository folder breaks the index for every model: a dangling link, a name that is not UTF-8. The
folder is ours alone, so a failed listing is answered by a sweep of it and asked again; a directory that vanished during
the scan needs no more than that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

import structlog

from adapter.backoff import doubling
from adapter.errors import AdapterError, ServerError, WrongServer
from adapter.model import ServerModel
from adapter.telemetry.metrics import INDEX_POLLS, INDEX_SECONDS
from adapter.triton.client import CallError, TritonAway, TritonClient, TritonSilent
from adapter.triton.pace import SLOW_SECONDS, Pace
from adapter.triton.presence import Presence
from adapter.triton.questions import Answer, Names, Questions
from adapter.triton.reason import one_line
from adapter.triton.repository import Repository

ATTEMPTS = 5
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.1, 1.0
DEADLINE_SECONDS = 600.0
"""Of a question at first; doubled after each one that has got no answer."""
AGAIN_SECONDS = 5.0
"""So soon after a listing that failed Triton is asked again, where nobody else asks."""
log = structlog.stdlib.get_logger(__name__)


class Index:
    """Asks for the index, again where that helps."""

    def __init__(self, *, client: TritonClient, presence: Presence, repository: Repository) -> None:
        self._client = client
        self._presence = presence
        self._repository = repository
        self._pace = Pace()
        self._deadline_seconds = DEADLINE_SECONDS
        self._questions = Questions(presence=presence, pace=self._pace, send=self._ask)
        self._time = asyncio.get_running_loop().time
        self._failure: str | None = None
        """Why the last listing failed; None after one that did not."""
        self._has_failed = asyncio.Event()
        self._asked_since: float | None = None
        """Time of the loop at which the question was sent that is under way."""
        INDEX_SECONDS.set_function(lambda: max(self._pace.seconds, self._under_way_seconds()))

    @property
    def problem(self) -> str | None:
        """Why the index cannot be had now: the last listing failed, or one that is waited for takes long. From any thread."""
        return (self._slow() if self._questions.is_waited_for else None) or self._failure

    @property
    def notice(self) -> str | None:
        """That the index is slow, in words. From any thread."""
        return self._slow() or self._pace.notice

    async def rows(self, model_ids: Collection[str] | None = None, *, can_wait: bool = False) -> list[ServerModel]:
        """
        All rows, or those of some models and of their inner ones. Waits for a Triton that is away, or cannot list its folder.

        Args:
            model_ids: None for all.
            can_wait: Triton has its whole rest before, however long the last answer took.

        Raises:
            WrongServer, AdapterError: as `look`.
        """
        pauses = doubling(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
        while True:
            answer = await self._questions.ask(lambda: None, can_wait=can_wait)
            if answer is not None:
                return answer.rows if model_ids is None else answer.of(model_ids)
            await self._presence.wait()
            await asyncio.sleep(next(pauses))

    async def look(self, names: Collection[str] | Callable[[], frozenset[str]]) -> list[ServerModel] | None:
        """
        The rows of some names, by one call; None when it failed.

        Args:
            names: or what chooses them when the call is sent, after the rest that comes before it; none: nothing is sent.

        Raises:
            WrongServer: Triton restricts the index.
            AdapterError: the folder could not be swept after a listing that failed.
        """
        chosen: frozenset[str] = frozenset()

        def choose() -> frozenset[str]:
            nonlocal chosen
            chosen = names() if callable(names) else frozenset(names)
            return chosen

        answer = await self._questions.ask(choose)
        return None if answer is None else [row for row in answer.rows if row.name in chosen]

    async def lists(self, name: str) -> bool:
        """
        Whether there is a row for a directory that was just made. A Triton that is away or slow proves nothing, and is waited for.

        Raises:
            ServerError: Triton answers, but cannot list its folder.
        """
        answers = 0
        while answers < ATTEMPTS:
            await self._presence.wait()
            rows = await self.look({name})
            if rows:
                return True
            answers += rows is not None or self._failure is not None
            await asyncio.sleep(FIRST_PAUSE_SECONDS)
        if self._failure is not None:
            raise ServerError(self._failure)
        return False

    async def reason(self, model_id: str) -> str:
        """Why the model's last load failed."""
        reasons = [one_line(row.reason) for row in await self.rows() if row.name == model_id and row.reason]
        return "; ".join(dict.fromkeys(reasons)) or one_line("")

    async def watch(self) -> None:
        """For ever: after a listing that failed ask again, also where nobody else does, so that `problem` does not outlive it."""
        while True:
            await self._has_failed.wait()
            await asyncio.sleep(AGAIN_SECONDS)
            if self._failure is not None:
                try:
                    await self._questions.ask(lambda: None, can_wait=True)
                except AdapterError as error:
                    log.debug("index.unknown", cause=error.text)
                except Exception:
                    log.exception("index.crashed")

    async def close(self) -> None:
        """Ask no more; whoever still waits is cancelled."""
        await self._questions.close()

    async def _ask(self, names: Names) -> Answer | None:
        try:
            rows = await self._call(names)
        except TritonSilent:
            log.warning("index.expired", seconds=self._deadline_seconds)
            self._deadline_seconds *= 2
            return None
        except TritonAway as away:
            self._presence.lost(away)
            return None
        except WrongServer:
            self._presence.heard()
            raise
        except CallError as failure:
            self._presence.heard()
            self._fail(one_line(str(failure)))
            await self._repository.sweep()
            return None
        self._presence.heard()
        self._failure = None
        self._has_failed.clear()
        return Answer(rows)

    async def _call(self, names: Names) -> list[ServerModel]:
        began = self._asked_since = self._time()
        INDEX_POLLS.inc()
        with self._presence.listing() as listing:
            try:
                rows = await self._client.index(names, self._deadline_seconds)
            finally:
                self._asked_since = None
                self._pace.ended(began, self._time(), has_hung=listing.has_hung)
        if self._time() - began < DEADLINE_SECONDS:
            self._deadline_seconds = DEADLINE_SECONDS
        return rows

    def _fail(self, cause: str) -> None:
        problem = f"Triton cannot list its model repository: {cause}"
        if self._failure != problem:
            log.warning("index.failed", cause=cause)
        self._failure = problem
        self._has_failed.set()

    def _slow(self) -> str | None:
        seconds = self._under_way_seconds()
        if seconds <= SLOW_SECONDS:
            return None
        return f"Triton has needed {seconds:.0f} s to list its model repository, and has not done so yet"

    def _under_way_seconds(self) -> float:
        """How long Triton has been asked by now; 0 while it is left alone. From any thread."""
        since = self._asked_since
        return 0.0 if since is None else self._time() - since
