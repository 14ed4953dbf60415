"""
Triton as a child of the adapter (`TRITON_COMMAND`): started once, ended after the adapter has drained, never started anew.

The child has a session of its own, so that Ctrl-C in a terminal reaches the adapter alone, which then decides the order. It writes
to the adapter's own output. What it leaves in its process group, as stubs of python models, is killed when it has ended, and all of
the group when the adapter dies, whatever its death was. Where the adapter is process 1, it also buries the orphans that fall to it.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress

import structlog

from adapter.errors import StartError

TIED = 'exec 3<&0; (read end <&3; kill -KILL 0) & exec "$@" 0</dev/null 3<&-'
"""
For a shell that becomes the program. The child that it leaves there reads a pipe of which the adapter alone has the other end, and
kills the group when that closes: a Triton that is killed alone can leave a stub of a python model that waits for it for ever.
Where the adapter is process 1, the kernel ends all with it.
"""
KILLED_SECONDS = 5.0
"""Longest wait for a child that was killed: one in the middle of a call to a driver may not die before the call ends."""

log = structlog.stdlib.get_logger(__name__)


class Companion:
    """One program beside the adapter, started by its constructor."""

    def __init__(self, command: Sequence[str], exit_seconds: float, wrapper: Sequence[str], umask: int) -> None:
        """
        Start it in the running loop, without a wait until it answers.

        Args:
            command: its words.
            exit_seconds: for its end after SIGTERM; then it is killed.
            wrapper: words of a program that becomes the one that follows it.
            umask: what it writes is its own affair.

        Raises:
            StartError: there is no such program, or no process can be had.
        """
        self._exit_seconds = exit_seconds
        self._over: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._is_asked = False
        program = shutil.which(command[0])
        if program is None:
            raise StartError(f"TRITON_COMMAND: there is no program {command[0]!r}")
        tied = [] if os.getpid() == 1 else ["/bin/sh", "-c", TIED, "sh"]
        words = [*tied, *wrapper, program, *command[1:]]
        try:
            self._process = subprocess.Popen(words, stdin=subprocess.PIPE, start_new_session=True, umask=umask)  # noqa: S603
        except OSError as error:
            raise StartError(f"TRITON_COMMAND: no process for {program}: {error.strerror}") from error
        asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, self._bury)
        self._bury()  # it may have ended before
        log.info("triton.process_started", program=program)

    @property
    def exit_code(self) -> int | None:
        """None while it runs; else as a shell would tell it: 128 and the number of the signal that has ended it."""
        return self._over.result() if self._over.done() else None

    async def ended(self) -> None:
        """Until it has ended, asked for or not."""
        await asyncio.shield(self._over)
        if not self._is_asked:
            log.error("triton.process_ended", exit_code=self.exit_code)

    async def end(self) -> None:
        """SIGTERM, and SIGKILL to its whole group after `exit_seconds`; returns when it has ended. Once it has, nothing happens."""
        if self._over.done():
            return
        self._is_asked = True
        os.kill(self._process.pid, signal.SIGTERM)  # it is there: who has ended is there until `_bury`
        await asyncio.wait({self._over}, timeout=self._exit_seconds)
        if not self._over.done():
            log.warning("triton.process_killed", waited_seconds=self._exit_seconds)
            os.killpg(self._process.pid, signal.SIGKILL)
            await asyncio.wait({self._over}, timeout=KILLED_SECONDS)

    def _bury(self) -> None:
        """On SIGCHLD: the child, and as process 1 whatever was left to us."""
        kind, number = (os.P_ALL, 0) if os.getpid() == 1 else (os.P_PID, self._process.pid)
        with suppress(ChildProcessError):
            while dead := os.waitid(kind, number, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                is_ours = dead.si_pid == self._process.pid
                if is_ours:  # not buried yet: no other group can have its number
                    with suppress(ProcessLookupError, PermissionError):
                        os.killpg(dead.si_pid, signal.SIGKILL)
                _, status = os.waitpid(dead.si_pid, 0)
                if is_ours:
                    self._process.returncode = code = os.waitstatus_to_exitcode(status)
                    self._over.set_result(code if code >= 0 else 128 - code)
