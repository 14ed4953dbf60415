"""
The reporter's file, read and believed as far as it goes.

The reporter (`reporter.sh`) is a POSIX shell script that runs beside Triton, since the adapter sees neither Triton's processes nor
its control group. The file lies on the shared volume, so it may be anybody's: it is read within bounds, no link is followed, and
lines that are not as they must be say nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from adapter.model import id_problem, owner_of
from adapter.volume.trees import opened, read_whole

SCRIPT = Path(__file__).with_name("reporter.sh")
MAX_FILE_BYTES = 64 * 1024
"""A line of the control group, and of twenty processes."""
OLD_SECONDS = 20.0
"""A report of so long ago tells nothing of now."""
NO_LIMIT_BYTES = 1 << 60
"""From here on version 1 of control groups means that there is no limit."""
_MEMORY = re.compile(r"memory (\d{1,12}(?:\.\d{1,9})?) (\d{1,18}) (\d{1,20}|max) (\d{1,18})", re.ASCII)
_STUB = re.compile(r"stub (\d{1,10}) (\d{1,15}) ([^/\ufffd]{1,255})", re.ASCII)
_LATER = re.compile(r"/proc/(\d{1,10}) ", re.ASCII)


def beside(file: Path, models: Path) -> tuple[str, ...]:
    """
    The words of a shell that starts the reporter and becomes the program that follows.

    Args:
        file: that the reporter is to write.
        models: Triton's model repository, as Triton sees it.
    """
    return "/bin/sh", "-c", '/bin/sh -c "$0" triton-memory "$1" "$2" & shift 2; exec "$@"', SCRIPT.read_text(), str(file), str(models)


class Stub(NamedTuple):
    """A process of a python model."""

    model: str
    """Triton's name of the model."""
    size_bytes: int


@dataclass(frozen=True)
class Report:
    """One look of the reporter."""

    at: float
    """Seconds since the boot of the kernel."""
    used_bytes: int
    """Anonymous and shared memory of Triton's control group: what the kernel cannot take back."""
    limit_bytes: int | None
    oom_kills: int
    stubs: Mapping[int, Stub] = field(default_factory=dict)
    """By process id; not more than twenty at a time, in turn."""
    later: frozenset[int] | None = None
    """Process ids of others that are there: their turn comes. None: processes were not asked for."""


def read(path: Path) -> Report | None:
    """
    What the file says now; None: nothing that can be believed. Blocks.

    Raises:
        OSError: there is none, or it is no regular file, or too long.
    """
    return parsed(read_whole(opened(path, os.O_RDONLY | os.O_NOFOLLOW), MAX_FILE_BYTES))


def parsed(content: bytes) -> Report | None:
    """Of a whole file."""
    text = content.decode(errors="replace")
    first, *others = text.split("\n")
    found = _MEMORY.fullmatch(first)
    if found is None:
        return None
    limit = NO_LIMIT_BYTES if found[3] == "max" else int(found[3])
    lines = [line.groups() for line in map(_STUB.fullmatch, others) if line]
    stubs = {int(pid): Stub(model, int(kib) * 1024) for pid, kib, model in lines if not id_problem(owner_of(model))}
    later = frozenset(map(int, _LATER.findall(text))) if "\nlater" in text else None
    return Report(float(found[1]), int(found[2]), limit if 0 < limit < NO_LIMIT_BYTES else None, int(found[4]), stubs, later)
