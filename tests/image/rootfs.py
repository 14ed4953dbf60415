"""A folder as the root of a container: read-only, its own processes, a user without a name, and what the image sets."""

from __future__ import annotations

import stat
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.image.dockerfile import DOCKERFILE, stages

BASE_PATH = "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"
TOOLS = ("pip", "pip3", "gcc", "cc", "g++", "c++", "cc1", "clang", "ld", "as", "make", "cmake", "rustc", "go", "easy_install")
_ENTER = """set -e
root=$1 volume=$2 user=$3; shift 3
mount --make-rprivate /
mount --bind "$root" "$root"
mkdir -p "$root$volume"
mount --bind "$volume" "$root$volume"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -o remount,bind,ro "$root"
exec setpriv --no-new-privs chroot --userspec="$user" --groups= "$root" env -i "$@"
"""


def inside(root: Path, volume: Path, user: str, words: Sequence[str], settings: Mapping[str, str] | None = None) -> list[str]:
    """The command that runs `words` in there as process 1. The volume is where it is here; nothing else can be written."""
    env = {"PATH": BASE_PATH, "LANG": "C.UTF-8", "HOME": "/"}
    for each in stages(DOCKERFILE.read_text())[1][-1].all("ENV"):
        for word in each.words():
            name, _, value = word.partition("=")
            env[name] = value.replace("$PATH", env["PATH"])
    pairs = [f"{name}={value}" for name, value in {**env, **(settings or {})}.items()]
    return ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", _ENTER, "sh", str(root), str(volume), user, *pairs, *words]


def unwanted(root: Path) -> Iterator[str]:
    """What a final image of ours may not hold."""
    for path in sorted(root.rglob("*")):
        name = f"/{path.relative_to(root)}"
        if name.startswith(("/proc/", "/sys/", "/dev/")) or path.is_symlink():
            continue
        mode = path.stat().st_mode
        if mode & (stat.S_ISUID | stat.S_ISGID) and path.is_file():
            yield f"{name} runs as its owner"
        if mode & stat.S_IWOTH and not (path.is_dir() and mode & stat.S_ISVTX):
            yield f"{name} can be written by everybody"
        if path.is_file() and path.name in TOOLS and mode & stat.S_IXUSR:
            yield f"{name} is a compiler or an installer"
        if path.is_dir() and (
            path.name in ("pip", "ensurepip", "setuptools") and path.parent.name.startswith(("site-packages", "python3"))
        ):
            yield f"{name} is an installer"
        if name.startswith("/opt/") and not mode & stat.S_IROTH:
            yield f"{name} cannot be read by every user"


def megabytes(*paths: Path) -> float:
    """What files take on a disk, in millions of bytes."""
    done = subprocess.run(["du", "-scB1", "--", *map(str, paths)], capture_output=True, text=True, check=True)
    return int(done.stdout.splitlines()[-1].split()[0]) / 1e6
