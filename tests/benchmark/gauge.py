"""
What a process used while it did something: seconds, memory. Standard library alone: peers run in a venv of their own.

A program that is measured runs as a child, measures itself around the pull alone, and prints one line of JSON.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

MIB = 1024 * 1024
_STEP_BYTES = 128 * 1024
_PAGE_BYTES = 4096
_OWN_BYTES = 768 * MIB
"""For memory of the client: some take a GiB."""


@dataclass
class Figures:
    """Of one run."""

    seconds: float = 0.0
    idle_mib: float = 0.0
    """Resident before the pull, with everything imported and warm."""
    peak_mib: float = 0.0
    """Most that was resident during the pull."""
    more: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Job:
    """What to pull, from where, to where."""

    url: str
    """Of the server."""
    ca: str
    """File with the authority to trust; empty for plain http."""
    keys: list[tuple[str, int]]
    """With their sizes."""
    prefix: str
    """What all keys begin with; equal to the only one where there is one."""
    folder: str
    """Empty, on the volume."""
    store: str = "s3"
    env: dict[str, str] = field(default_factory=dict)
    """Settings of the adapter."""
    is_during: bool = False
    """The second key is a model that is asked for while the first one is pulled."""
    warm: tuple[str, int] = ("warm", 64 * 1024)
    """Pulled before anything is measured."""

    def touch(self) -> None:
        """
        Write as many bytes as will come, and delete them, right before they come: each client finds the same memory.

        A virtual machine may give free memory back to its host, within a second or two, and pays for it at the next touch: a file
        of 2 GiB took between 0.6 and 5 s to write. Only whole blocks of 2 MiB are given back, so a page that stays here
        in each of them keeps the others. Source: Documentation/mm/free_page_reporting.rst of Linux.
        """
        zeros, touched = bytes(_STEP_BYTES), Path(self.folder) / "touched"
        with touched.open("wb", buffering=0) as file, (Path(self.folder) / "stays").open("wb", buffering=0) as stays:
            for _ in range(0, sum(size for _, size in self.keys), _STEP_BYTES):
                file.write(zeros)
                stays.write(zeros[:_PAGE_BYTES])
            for _ in range(0, _OWN_BYTES, _STEP_BYTES):
                file.write(zeros)
        touched.unlink()

    def to_json(self) -> str:
        """For a command line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Job:
        """From a command line."""
        return cls(**json.loads(text))


def status_mib(field_name: str, pid: int | str) -> float:
    """`VmRSS` now, or `VmHWM` at most."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition(f"{field_name}:")[2].split()[0]) / 1024


@contextmanager
def gauged(job: Job, pid: int | None = None) -> Iterator[Figures]:
    """Of the work of a job, by this process or by another one: filled when the context ends."""
    who = "self" if pid is None else pid
    job.touch()
    figures = Figures(idle_mib=status_mib("VmRSS", who))
    Path(f"/proc/{who}/clear_refs").write_text("5")  # the peak counts from now on: proc(5)
    began = time.perf_counter()
    yield figures
    figures.seconds = time.perf_counter() - began
    figures.peak_mib = status_mib("VmHWM", who)


def told(figures: Figures) -> None:
    """As the last line of a child."""
    print(json.dumps(asdict(figures)), flush=True)
