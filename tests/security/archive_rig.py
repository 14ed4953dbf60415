"""Where a test unpacks what a stranger has packed, and what must hold whatever comes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from adapter.errors import InvalidModel
from adapter.storage.pull.archives import unpack
from adapter.volume.space import Space
from adapter.volume.volume import Volume
from adapter.workers import Stop

MIB = 1024 * 1024
_IN_MEMORY = Path("/dev/shm")
"""Thousands of small archives take a disk that is busy minutes."""


class Ground:
    """An empty target in a folder that has a sentinel."""

    def __init__(self, folder: Path, volume: Volume) -> None:
        self.folder = folder
        self.volume = volume
        self.outside = folder / "outside"
        self.outside.write_bytes(b"sentinel")
        self._count = 0

    def unpacked(self, content: bytes, name: str, *, max_bytes: int = 100 * MIB) -> dict[str, bytes]:
        """What comes out, by path. Whatever happens, nothing lies beside the target."""
        self._count += 1
        target, archive = self.folder / f"target-{self._count}", self.folder / "archive"
        target.mkdir()
        archive.write_bytes(content)
        before = sorted(os.listdir(self.folder))
        try:
            with Space(self.volume.cache_dir, 0, refuses=False).reservation() as reserved:
                sizes = unpack(archive, name=name, target=target, reserved=reserved, max_bytes=max_bytes, stop=Stop())
            found = {path: (target / path).read_bytes() for path in sizes}
            assert {path: len(content) for path, content in found.items()} == sizes
            return found
        finally:
            assert sorted(os.listdir(self.folder)) == before and self.outside.read_bytes() == b"sentinel"
            for path in target.rglob("*"):
                assert not path.is_symlink() and (path.is_dir() or path.is_file())
            self.volume.discard(target)

    def refused(self, content: bytes, name: str) -> str:
        """Why: one line."""
        try:
            found = self.unpacked(content, name)
        except InvalidModel as error:
            assert type(error) is InvalidModel and error.reason == "invalid_model"
            assert "\n" not in error.text and len(error.text) < 1000 and error.text.startswith(("the archive '", "the link '"))
            return error.text
        raise AssertionError(f"served: {sorted(found)}")

    def refused_or(self, expected: dict[str, bytes], content: bytes, name: str) -> bool:
        """Whether it is refused; else it is served exactly as it was."""
        try:
            found = self.unpacked(content, name)
        except InvalidModel as error:
            assert "\n" not in error.text
            return True
        assert found == expected
        return False


@contextmanager
def quick_folder(folder: Path) -> Iterator[Path]:
    """A folder in memory, or below the given one where there is none."""
    with TemporaryDirectory(dir=_IN_MEMORY if _IN_MEMORY.is_dir() else folder) as place:
        yield Path(place)


@contextmanager
def ground_in(folder: Path) -> Iterator[Ground]:
    """A ground whose volume lies beside it."""
    with quick_folder(folder) as place:
        volume = Volume(place / "models" / "_triton_models", place / "models" / "_adapter")
        volume.claim()
        (place / "ground").mkdir()
        yield Ground(place / "ground", volume)
        volume.close()
