"""A control group of memory of its own for a Triton, and the reporter beside it; skipped where none can be made."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from adapter.memory.report import SCRIPT
from tests.real.install import CannotRunError
from tests.real.polls import until

V1, V2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
ENTER = 'echo $$ >"$1/cgroup.procs" || exit 1; sh -c "$0" triton-memory "$2" "$3" "$4" & shift 4; exec "$@"'  # the reporter is in it, too


class MemoryGroup:
    """Of one Triton."""

    def __init__(self, folder: Path, seen: Path, file: Path, models: Path) -> None:
        """
        Args:
            folder: of the group.
            seen: what the reporter takes for the file system of control groups.
            file: that it writes.
            models: Triton's repository.
        """
        self.folder = folder
        self.file = file
        self.wrapper = ("sh", "-c", ENTER, SCRIPT.read_text(), str(folder), str(file), str(models), str(seen))
        """For `Triton`."""

    @property
    def used_bytes(self) -> int:
        """Anonymous and shared memory of all processes in the group."""
        numbers = dict(line.split() for line in (self.folder / "memory.stat").read_text().splitlines())
        return sum(int(numbers[name]) for name in (("total_rss", "total_shmem") if "total_rss" in numbers else ("anon", "shmem")))

    @property
    def kills(self) -> int:
        """Of processes of the group, by the kernel."""
        name = "memory.oom_control" if (self.folder / "memory.oom_control").exists() else "memory.events"
        return int(dict(line.split() for line in (self.folder / name).read_text().splitlines())["oom_kill"])

    def limit(self, limit_bytes: int) -> None:
        """Have the kernel kill above that."""
        name = "memory.limit_in_bytes" if (self.folder / "memory.limit_in_bytes").exists() else "memory.max"
        (self.folder / name).write_text(str(limit_bytes))


@contextlib.contextmanager
def memory_group(folder: Path, file: Path, models: Path) -> Iterator[MemoryGroup]:
    """
    Args:
        folder: an empty one, for files of ours.
        file: that the reporter writes.
        models: Triton's repository.

    Raises:
        CannotRunError: no group can be made here.
    """
    is_v1 = (V1 / "memory.stat").exists()
    place = (V1 if is_v1 else V2) / _own(is_v1=is_v1).lstrip("/") / f"mmta-{folder.name}-{time.monotonic_ns()}"
    try:
        place.mkdir()
    except OSError as error:
        raise CannotRunError(f"a control group of its own: {error.strerror}") from error
    folder.mkdir(parents=True, exist_ok=True)
    if is_v1:
        (folder / "memory").symlink_to(place)
    try:
        yield MemoryGroup(place, folder if is_v1 else place, file, models)
    finally:
        until(lambda: _is_gone(place), "the end of all processes of the group")


def _own(*, is_v1: bool) -> str:
    lines = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    return next(path for _, kinds, path in lines if kinds == ("memory" if is_v1 else ""))


def _is_gone(place: Path) -> bool:
    with contextlib.suppress(OSError):
        place.rmdir()
    return not place.exists()
