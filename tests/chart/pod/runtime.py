"""
The container runtime of `pod.py`, run as a program of root's by the machine's own Python; needs nothing of ours.

`sandbox VOLUMES`: what the containers of a pod share. Waits for its end, with a network of its own, loopback up, and a mount for
each volume in memory. `container SPEC`: builds a root of what the image would hold, mounts the pod's volumes there, and becomes the
container's command. Both are started in namespaces that `pod.py` has made with unshare and nsenter.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

SIOCSIFFLAGS, SIOCSIFADDR, SIOCSIFNETMASK, IFF_UP = 0x8914, 0x8916, 0x891C, 1
ADDRESS = "10.244.7.7"
"""Of the pod. What listens on loopback alone is not there."""
DEVICES = ("null", "zero", "full", "random", "urandom")
SYSTEM = ("/usr", "/etc", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")


def sandbox(memory: dict[str, str]) -> None:
    """`memory`: folder → size of the tmpfs that is mounted there, in bytes."""
    mount("--make-rprivate", "/")
    for folder, size in memory.items():
        mount("-t", "tmpfs", "-o", f"mode=777,size={size}", "tmpfs", folder)
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh", b"lo", IFF_UP))
        for what, value in ((SIOCSIFADDR, ADDRESS), (SIOCSIFNETMASK, "255.255.255.255")):
            own = struct.pack("HH4s8x", socket.AF_INET, 0, socket.inet_aton(value))
            fcntl.ioctl(any_socket, what, struct.pack("16s16s", b"lo:1", own))
    print("up", flush=True)
    signal.pause()


def container(spec: dict[str, Any]) -> None:
    """Never returns."""
    root = Path(spec["root"])
    mount("--make-rprivate", "/")
    mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", root)
    for path in SYSTEM:
        if Path(path).is_symlink():
            (root / path[1:]).symlink_to(Path(path).readlink())
        elif Path(path).exists():
            bind(path, root, path, read_only=True)
    (root / "proc").mkdir()
    mount("-t", "proc", "proc", root / "proc")
    for device in DEVICES:
        bind(f"/dev/{device}", root, f"/dev/{device}", read_only=False)
    (root / "tmp").mkdir()
    (root / "tmp").chmod(0o1777)
    for source, path, read_only in spec["mounts"]:
        bind(source, root, path, read_only=read_only)
    if spec["read_only"]:
        mount("-o", "remount,ro", root)
    os.chroot(root)
    os.chdir("/")
    os.umask(0o022)
    command = [*spec["become"], *spec["command"]]
    os.execve(command[0], command, spec["env"])


def bind(source: str, root: Path, path: str, *, read_only: bool) -> None:
    """A folder or a file of this machine, at a path below the root."""
    target = root / path.lstrip("/")
    if Path(source).is_dir():
        target.mkdir(parents=True, exist_ok=True)
    elif not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    mount("--bind", source, target)
    if read_only:
        mount("-o", "remount,bind,ro", target)


def mount(*words: str | Path) -> None:
    """With the machine's own command, which says in words what it cannot."""
    subprocess.run(["mount", *map(str, words)], check=True, stdin=subprocess.DEVNULL)


if __name__ == "__main__":
    {"sandbox": sandbox, "container": container}[sys.argv[1]](json.loads(sys.argv[2]))
