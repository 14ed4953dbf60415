"""
Ties a program to the life of its parent: `python leash.py PARENT_PID COMMAND…`.

Becomes the command (the pid stays), after asking the kernel for a SIGKILL at the parent's death.
A program of its own instead of `preexec_fn`, because gRPC's threads make forked Python code unsafe.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Ask, look whether the parent died before we asked, become the command."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        sys.exit(f"leash: prctl failed: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent:
        sys.exit("leash: the parent has died")
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.exit(f"leash: cannot run {command[0]}: {error.strerror}")


if __name__ == "__main__":
    main()
