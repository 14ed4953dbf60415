"""
Ties a program to the life of whoever starts it: `python -I -S leash.py PARENT_PID PROGRAM WORD…` becomes the program, its pid stays.

The kernel is asked for a SIGKILL at the parent's death, whatever that death is. A program of its own and no `preexec_fn`: Python
code after a fork is not safe beside gRPC's threads. Stands alone, so that it starts in the time of a bare interpreter.
Source: Linux `prctl(2)`, PR_SET_PDEATHSIG: it is kept over an exec, and tied to the parent's thread that has forked.
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


def main() -> NoReturn:
    """Ask, look whether the parent died before we had asked, become the program."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0):
        _end(f"a tie to the adapter's life is refused: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent:
        _end("the adapter has died")
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which this interpreter ignores, and an exec would keep ignored
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)  # noqa: S606 - the command is a setting
    except OSError as error:
        _end(f"{command[0]} cannot be run: {error.strerror}")


def _end(text: str) -> NoReturn:
    sys.stderr.write(f"modelmesh-triton-adapter: TRITON_COMMAND: {text}\n")
    sys.exit(CANNOT_RUN)


if __name__ == "__main__":
    main()
