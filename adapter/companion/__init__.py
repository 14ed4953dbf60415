"""
Triton as a child of the adapter (`TRITON_COMMAND`): started once, ended after the adapter has drained, never started anew.

The child has a session of its own, so that Ctrl-C in a terminal reaches the adapter alone, which then decides the order. It writes
to the adapter's own output. A keeper between the two (`keeper`) lets no death of the adapter leave anything. What the child leaves
in its process group, as stubs of python models, is killed when the child has ended. Where the adapter is process 1, it also buries
the orphans that fall to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import structlog

from adapter.errors import StartError

KEEPER = Path(__file__).with_name("keeper.py")
KILLED_SECONDS = 5.0
"""Longest wait for a child that was killed: one in the middle of a call to a driver may not die before the call ends."""

log = structlog.stdlib.get_logger(__name__)


class Companion:
    """One program beside the adapter. `start` comes first, in the main thread."""

    def __init__(self, command: Sequence[str], *, environment: Mapping[str, str], exit_seconds: float, wrapper: Sequence[str] = ()) -> None:
        """
        Of the running loop. `exit_seconds`: for the program's end after SIGTERM; then it is killed. `wrapper`: words of a program
        that becomes the one that follows it.
        """
        self._command = tuple(command)
        self._wrapper = tuple(wrapper)
        self._environment = environment
        self._exit_seconds = exit_seconds
        self._over: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._pid = 0
        self._is_asked = False

    def start(self) -> None:
        """
        Start it, without a wait until it answers.

        Raises:
            StartError: there is no such program, or no process can be had.
        """
        program = shutil.which(self._command[0], path=self._environment.get("PATH"))
        if program is None:
            raise StartError(f"TRITON_COMMAND: there is no program {self._command[0]!r}")
        asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, self._bury)
        words = [sys.executable, "-I", "-S", str(KEEPER), str(os.getpid()), *self._wrapper, program, *self._command[1:]]
        try:
            self._pid = os.posix_spawn(
                sys.executable,
                words,
                self._environment,
                file_actions=[(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)],
                setsid=True,
                setsigmask=(),
            )
        except OSError as error:
            raise StartError(f"TRITON_COMMAND: no process for {program}: {error.strerror}") from error
        log.info("triton.process_started", program=program)

    @property
    def exit_code(self) -> int | None:
        """None while it runs; else as a shell would tell it: 128 and the number of the signal that has ended it."""
        if not self._over.done():
            return None
        code = self._over.result()
        return code if code >= 0 else 128 - code

    async def ended(self) -> None:
        """Until it has ended, asked for or not."""
        await asyncio.shield(self._over)
        if not self._is_asked:
            log.error("triton.process_ended", exit_code=self.exit_code)

    async def end(self) -> None:
        """SIGTERM, and SIGKILL to its whole group after `exit_seconds`; returns when it has ended. Once it has, nothing happens."""
        if not self._pid or self._over.done():
            return
        self._is_asked = True
        os.kill(self._pid, signal.SIGTERM)  # it is there: who has ended is there until `_bury`
        await asyncio.wait({self._over}, timeout=self._exit_seconds)
        if not self._over.done():
            log.warning("triton.process_killed", waited_seconds=self._exit_seconds)
            os.killpg(self._pid, signal.SIGKILL)
            await asyncio.wait({self._over}, timeout=KILLED_SECONDS)

    def _bury(self) -> None:
        """On SIGCHLD: the child, and as process 1 whatever was left to us."""
        kind, number = (os.P_ALL, 0) if os.getpid() == 1 else (os.P_PID, self._pid)
        with contextlib.suppress(ChildProcessError):
            while dead := os.waitid(kind, number, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                if dead.si_pid == self._pid:  # not buried yet: no other group can have its number
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.killpg(self._pid, signal.SIGKILL)
                _, status = os.waitpid(dead.si_pid, 0)
                if dead.si_pid == self._pid and not self._over.done():
                    self._over.set_result(os.waitstatus_to_exitcode(status))
