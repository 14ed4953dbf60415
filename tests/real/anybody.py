"""A user that no passwd knows, without HOME, with any umask, where nothing but a volume can be written, or not even that."""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

UID, GID = 3_141_592, 2_718_281
UNSET = ("HOME", "TMPDIR", "TMP", "TEMP", "USER", "LOGNAME", "SHELL", "PWD", "OLDPWD")


def as_anybody(volume: Path, umask: str, *, read_only: bool) -> list[str]:
    """The beginning of a command line. In a mount namespace of its own, where the root is read-only and the interpreter can be reached."""
    lines = ["set -e", "mount --make-rprivate /"]
    closed = next((path for path in reversed(Path(sys.executable).resolve().parents) if not path.stat().st_mode & stat.S_IXOTH), None)
    if closed is not None:
        kept = shlex.quote(str(closed / Path(sys.executable).resolve().relative_to(closed).parts[0]))
        hidden = shlex.quote(str(closed))
        lines += [f"exec 8<{kept}", f"mount -t tmpfs -o mode=755 tmpfs {hidden}", f"mkdir -p {kept}"]
        lines += [f"mount --no-canonicalize --bind /proc/self/fd/8 {kept}", "exec 8<&-"]
    if read_only:
        lines += [f"mount --bind {shlex.quote(str(volume))} {shlex.quote(str(volume))}", "mount -o remount,bind,ro /"]
    without = " ".join(f"-u {name}" for name in UNSET)
    lines += [f"umask {umask}", "cd /"]
    lines += [f'exec env {without} setpriv --reuid {UID} --regid {GID} --clear-groups --no-new-privs --bounding-set=-all -- "$@"']
    return ["unshare", "--mount", "sh", "-c", "; ".join(lines), "sh"]


def check_permitted(volume: Path, *, read_only: bool) -> None:
    """Skip a test where this machine does not permit such a mount."""
    if os.geteuid() != 0:
        pytest.skip("only root can be another user")
    if missing := [name for name in ("unshare", "setpriv", "mount") if shutil.which(name) is None]:
        pytest.skip(f"needs {', '.join(missing)}")
    probe = [*as_anybody(volume, "077", read_only=read_only), sys.executable, "-c", "import os; print(os.getuid(), os.getgid())"]
    done = subprocess.run(probe, check=False, capture_output=True, text=True)
    if done.returncode or done.stdout.split() != [str(UID), str(GID)]:
        pytest.skip(f"no such place can be made here: {done.stderr.strip()[-200:]}")
