"""
Programs that the parts start. They end when we end, whatever ends us.

Three nets, each for what the one before cannot catch: leaving the context (also by an exception or
Ctrl-C, which does not reach them: they have a process group of their own), an `atexit` hook, and
the kernel, which kills them when our process dies (`leash`).
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path

from tests.real.polls import until

TOP = Path(__file__).resolve().parents[2]
PARTS = (TOP / ".parts").resolve()
"""One installation for all trees that link to it: the venv in there knows its own path."""
LEASH = Path(__file__).with_name("leash.py")
KEPT_LOGS = 200


class PartError(Exception):
    """A part did not start or did not answer; says what its log says."""


class Child:
    """A running program, its log, and its end."""

    def __init__(self, name: str, command: Sequence[str | Path], *, env: Mapping[str, str], log_path: Path | None = None) -> None:
        self.name = name
        self.log_path = log_path or _new_log(name)
        self._process = _start([str(word) for word in command], dict(env), self.log_path)
        _running.add(self)

    @property
    def pid(self) -> int:
        """Also the id of its process group."""
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """None while it runs; negative: ended by that signal."""
        return self._process.poll()

    def log_text(self) -> str:
        """Everything it has written so far."""
        return self.log_path.read_text(errors="replace")

    def wait(self, timeout_seconds: float) -> int:
        """Its exit code. Raises PartError when it still runs after the time."""
        try:
            return self._process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            raise PartError(f"{self.name} still runs after {timeout_seconds:.0f} s") from None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the program itself; one that has ended is fine."""
        self._process.send_signal(number)

    def stop(self, grace_seconds: float) -> int:
        """SIGTERM, then SIGKILL after the grace; ends what is left of its group too."""
        self.signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(grace_seconds)
        return self.kill()

    def kill(self) -> int:
        """SIGKILL to the whole group; the answer is the program's exit code."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        _running.discard(self)
        return self._process.wait()

    def wait_until(self, is_there: Callable[[], bool], what: str, timeout_seconds: float) -> None:
        """
        Wait for something that this program brings about.

        Raises:
            PartError: it ended, or the time is up; with its log in short.
        """

        def is_over() -> bool:
            if self.returncode is not None:
                raise PartError(f"{self.name} ended with code {self.returncode} before {what}; its log:\n{self._excerpt()}")
            return is_there()

        try:
            until(is_over, what, timeout_seconds)
        except TimeoutError:
            raise PartError(f"{self.name}: not {what} after {timeout_seconds:.0f} s; its log:\n{self._excerpt()}") from None

    def _excerpt(self, first: int = 2, last: int = 12) -> str:
        """What a log says of a failed start: at its end, or before the usage that follows a wrong option."""
        lines = self.log_text().splitlines()
        return "\n".join(lines if len(lines) <= first + last else [*lines[:first], "…", *lines[-last:]])


_running: set[Child] = set()


@atexit.register
def _kill_all() -> None:
    for child in list(_running):
        child.kill()


def is_alive(pid: int) -> bool:
    """Whether a process of this id runs. One that has ended and was not waited for does not."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def bare_environment() -> dict[str, str]:
    """Our environment without what would change a child's Python, its libraries, or its way to loopback."""
    unwanted = ("PYTHON", "VIRTUAL_ENV", "LD_", "AWS_", "RCLONE_", "GRPC_", "COVERAGE_")
    return {k: v for k, v in os.environ.items() if not k.startswith(unwanted) and not k.lower().endswith("_proxy")}


def _start(command: list[str], env: dict[str, str], log_path: Path) -> subprocess.Popen[bytes]:
    def popen() -> subprocess.Popen[bytes]:
        with log_path.open("ab") as log:
            leashed = [sys.executable, "-I", "-S", str(LEASH), str(os.getpid()), *command]
            return subprocess.Popen(
                leashed, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )

    answer: Future[subprocess.Popen[bytes]] = Future()
    _starter().put((popen, answer))
    return answer.result()


@functools.cache
def _starter() -> queue.SimpleQueue[tuple[Callable[[], subprocess.Popen[bytes]], Future[subprocess.Popen[bytes]]]]:
    """One thread that starts all children: the kernel watches over the *thread* that did, not the process."""
    orders: queue.SimpleQueue[tuple[Callable[[], subprocess.Popen[bytes]], Future[subprocess.Popen[bytes]]]] = queue.SimpleQueue()

    def serve() -> None:
        while True:
            popen, answer = orders.get()
            try:
                answer.set_result(popen())
            except OSError as error:
                answer.set_exception(error)

    threading.Thread(target=serve, name="starter of children", daemon=True).start()
    return orders


def _new_log(name: str) -> Path:
    folder = PARTS / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    for old in sorted(folder.iterdir(), key=_last_written)[:-KEPT_LOGS]:
        old.unlink(missing_ok=True)
    return folder / f"{name}-{os.getpid()}-{time.time_ns()}.log"


def _last_written(path: Path) -> float:
    """0 for a log that another process has just removed."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
