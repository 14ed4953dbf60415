"""
How many bytes artifacts take, each file once, however many artifacts have it. Pure; its owner has the lock.

A change costs as much as the artifact has files, never as much as there are artifacts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


class Counted(Protocol):
    """What is counted; neither changes while it is."""

    @property
    def inodes(self) -> Mapping[int, int]:
        """Inode → bytes of every file."""
        ...

    @property
    def record_bytes(self) -> int:
        """Of what is its own in any case."""
        ...


@dataclass(slots=True)
class _File:
    size_bytes: int
    placed: int = 0
    """Artifacts with users that have it."""
    idle: int = 0
    """Others."""


class Inodes:
    """Bytes of placed artifacts, and of what only idle ones have."""

    def __init__(self) -> None:
        self.placed_bytes = 0
        self.idle_bytes = 0
        self._files: dict[int, _File] = {}
        self._is_placed: dict[Counted, bool] = {}

    @property
    def bytes(self) -> int:
        """Of all."""
        return self.placed_bytes + self.idle_bytes

    def is_placed(self, inode: int) -> bool:
        """Whether an artifact with users has this file."""
        file = self._files.get(inode)
        return file is not None and file.placed > 0

    def place(self, counted: Counted) -> None:
        """From now on it has users."""
        self._move(counted, is_placed=True)

    def idle(self, counted: Counted) -> None:
        """From now on it has none."""
        self._move(counted, is_placed=False)

    def leave(self, counted: Counted) -> bool:
        """It does not count any more. Returns whether it did."""
        was_placed = self._is_placed.pop(counted, None)
        if was_placed is None:
            return False
        for inode in counted.inodes:
            file = self._files[inode]
            self._count(-file.size_bytes, is_placed=file.placed > 0)
            file.placed -= was_placed
            file.idle -= not was_placed
            if file.placed or file.idle:
                self._count(file.size_bytes, is_placed=file.placed > 0)
            else:
                del self._files[inode]
        self._count(-counted.record_bytes, is_placed=was_placed)
        return True

    def _move(self, counted: Counted, *, is_placed: bool) -> None:
        if self._is_placed.get(counted) is is_placed:
            return
        self.leave(counted)
        self._is_placed[counted] = is_placed
        for inode, size_bytes in counted.inodes.items():
            file = self._files.get(inode)
            if file is None:
                file = self._files[inode] = _File(size_bytes)
            else:
                self._count(-file.size_bytes, is_placed=file.placed > 0)
            file.placed += is_placed
            file.idle += not is_placed
            self._count(file.size_bytes, is_placed=file.placed > 0)
        self._count(counted.record_bytes, is_placed=is_placed)

    def _count(self, size_bytes: int, *, is_placed: bool) -> None:
        """So many bytes more, or fewer."""
        if is_placed:
            self.placed_bytes += size_bytes
        else:
            self.idle_bytes += size_bytes
