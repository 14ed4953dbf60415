"""
How many bytes the placed models have, and how many of these are no artifact's.

Files that are linked from an artifact are the cache's to count. What we write, and what was placed from an artifact that
is gone, is counted here, so that each file on the volume counts once. Asked from any thread.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from adapter.model import owner_of
from adapter.triton.entries import is_plain_directory
from adapter.volume.trees import Files, files_below
from adapter.workers import Stop


class PlacedBytes:
    """Bytes by the names of the folder."""

    def __init__(self) -> None:
        self._own: dict[str, int] = {}
        self._lock = threading.Lock()

    def own_bytes(self) -> int:
        """Of all placed files that have no name outside the folder."""
        with self._lock:
            return sum(self._own.values())

    def placed(self, name: str, own_bytes: int) -> None:
        """A directory of this name is there, with this number of bytes that are not an artifact's."""
        with self._lock:
            self._own[name] = own_bytes

    def removed(self, name: str) -> None:
        """It is not there any more."""
        with self._lock:
            self._own.pop(name, None)

    def survey(self, entries: Iterable[Path], stop: Stop) -> dict[str, int]:
        """
        Look at all directories of the folder.

        Returns:
            Bytes of the plain files by model id, of a bundle's models together, each file once; links are not followed.
        """
        with self._lock:
            before = dict(self._own)
        everywhere, own, sizes = Files(), dict[str, int](), dict[str, int]()
        of_model: dict[str, Files] = defaultdict(Files)
        for path in entries:
            if not is_plain_directory(path):
                continue
            model_id = owner_of(path.name)
            own[path.name] = 0
            sizes.setdefault(model_id, 0)
            for file in files_below(path, stop.check):
                sizes[model_id] += of_model[model_id].add(file)[0]
                own[path.name] += everywhere.add(file)[1]
        with self._lock:
            meanwhile = {name for name in {*self._own, *before} if self._own.get(name) != before.get(name)}
            self._own = {name: size for name, size in self._own.items() if name in meanwhile} | {
                name: size for name, size in own.items() if name not in meanwhile
            }
        return sizes
