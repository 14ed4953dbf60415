"""Idle artifacts, as a cache has them: files that go one after the other when space is asked for."""

from __future__ import annotations

from pathlib import Path

from adapter.volume.space import Space


class IdleArtifacts:
    """Counted by a budget, which they give way to."""

    def __init__(self, space: Space, folder: Path) -> None:
        self.files: list[Path] = []
        self.asked: list[int] = []
        """How many bytes were to go, each time."""
        self._folder = folder
        self._made = 0
        space.counted_by("idle", self.size_bytes)
        space.give_way = self.give_way

    def add(self, size_bytes: int, files: int = 1) -> None:
        """Make some."""
        for _ in range(files):
            self._made += 1
            path = self._folder / f"idle-{self._made}"
            path.write_bytes(bytes(size_bytes))
            self.files.append(path)

    def fill(self, size_bytes: int) -> None:
        """Make as many of this size as the volume takes."""
        try:
            while True:
                self.add(size_bytes)
        except OSError:
            (self._folder / f"idle-{self._made}").unlink(missing_ok=True)

    def size_bytes(self) -> int:
        """Of all that are left."""
        return sum(path.stat().st_size for path in self.files)

    def give_way(self, size_bytes: int) -> int:
        """As `Space.give_way`."""
        self.asked.append(size_bytes)
        gone = 0
        while self.files and gone < size_bytes:
            path = self.files.pop(0)
            gone += max(path.stat().st_size, 1)
            path.unlink()
        return gone
