"""
Stands between the adapter and a program of its own: `python -I -S keeper.py PARENT_PID PROGRAM WORD…`, as leader of a session.

Starts the program, passes SIGTERM and SIGINT on to it, and ends with its exit code, as a shell would tell it. When the adapter
dies, whatever its death was, the whole process group is killed: a Triton that is killed alone can leave a stub of a python model
that waits for it for ever. A process of its own and no `preexec_fn`: Python code after a fork is not safe beside gRPC's threads.
Source: Linux `prctl(2)`, PR_SET_PDEATHSIG: tied to the parent's thread that has forked, and kept over an exec.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import NoReturn

PR_SET_PDEATHSIG = 1
CANNOT_RUN = 126
"""Exit code, as a shell has it."""
PASSED_ON = (signal.SIGTERM, signal.SIGINT)


def main() -> NoReturn:
    """Until the program has ended."""
    adapter, command = int(sys.argv[1]), sys.argv[2:]
    signal.signal(signal.SIGUSR1, lambda *_: os.killpg(0, signal.SIGKILL))
    signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)  # until there is a program to pass them on to
    _tie_to(adapter, signal.SIGUSR1)
    keeper = os.getpid()
    program = os.fork()
    if program == 0:
        _tie_to(keeper, signal.SIGKILL)
        _become(command)
    for number in PASSED_ON:
        signal.signal(number, lambda number, _: os.kill(program, number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
    _, status = os.waitpid(program, 0)
    code = os.waitstatus_to_exitcode(status)
    sys.exit(code if code >= 0 else 128 - code)


def _tie_to(parent: int, number: signal.Signals) -> None:
    """Have the kernel send this signal when the parent dies; look whether it died before we had asked."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, int(number), 0, 0, 0):
        _end(f"a tie to the adapter's life is refused: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent:
        _end("the adapter has died")


def _become(command: list[str]) -> NoReturn:
    for number in (signal.SIGUSR1, signal.SIGPIPE, signal.SIGXFSZ):  # the last two are ignored by an interpreter, and by whom it becomes
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
    try:
        os.execvp(command[0], command)  # noqa: S606 - the command is a setting
    except OSError as error:
        _end(f"{command[0]} cannot be run: {error.strerror}")


def _end(text: str) -> NoReturn:
    sys.stderr.write(f"modelmesh-triton-adapter: TRITON_COMMAND: {text}\n")
    sys.stderr.flush()
    os._exit(CANNOT_RUN)


if __name__ == "__main__":
    main()
