"""
A search for one model: what was asked for, how far the search has come, and the rules that hold wherever a model lies.

Knows nothing of stores or mounts. A `Search` is written by one thread and may be read by any.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from adapter.errors import AdapterError, InvalidModel, InvalidRequest, SourceUnavailable
from adapter.model import Listing, ModelSpec, SourceFile
from adapter.ports import StoredModel, Wanted
from adapter.waits import Waits

MAX_OBJECTS = 100_000
"""Of one model, directories counted where they are entries of their own."""
READ_LIMIT_BYTES = 4 * 1024 * 1024
"""Of a file that is read into memory: a config.pbtxt or a schema."""
_SHOWN_CHARACTERS = 200


@dataclass
class Search:
    """One search; a survey reads it while the search goes on."""

    spec: ModelSpec
    waits: Waits
    """Told what is waited for, by the search and by the model that it finds."""
    origin: str = ""
    """Stands for the model of one owner (`cache.record.origin_of`); set when the config is known."""
    seen_bytes: int = 0
    """Of the files that were listed so far."""
    wanted: Wanted | None = None
    """Of a survey, a quick look which no load waits for: which small files are read, too."""
    listing: Listing | None = None
    """Of a survey: all files, once the listing is whole."""
    contents: dict[SourceFile, bytes] = field(default_factory=dict)
    """Of a survey: what was read so far."""

    def saw(self, file: SourceFile) -> None:
        """Note a file that was listed."""
        self.seen_bytes += file.size_bytes

    async def tell(self, found: Found) -> None:
        """
        Of a survey: note the whole listing, then read what is wanted.

        Raises:
            InvalidModel: from `wanted`.
        """
        self.listing = found.listing
        for file in self.wanted(found.listing) if self.wanted else ():
            with suppress(AdapterError):  # the listing tells enough without
                content = await found.peek(file)
                if content is not None:
                    self.contents[file] = content


class Found(Protocol):
    """A model where it lies."""

    @property
    def listing(self) -> Listing:
        """Of its files."""

    async def peek(self, file: SourceFile) -> bytes | None:
        """Content of a small file, for a survey. None: it is in an archive. Raises as `StoredModel.read`."""

    async def open(self) -> StoredModel:
        """Make it ready to be read. Raises as `ModelStore.open`."""


def check_readable(file: SourceFile, origin: str) -> None:
    """Small files only are read into memory. Raises InvalidModel."""
    if file.size_bytes > READ_LIMIT_BYTES:
        raise InvalidModel(f"{file.path!r} of {origin} has {file.size_bytes} bytes, expected at most {READ_LIMIT_BYTES}")


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """While inside, the file system reads this path. Raises SourceUnavailable when that fails."""
    try:
        yield
    except OSError as error:
        raise SourceUnavailable(f"{path} cannot be read: {error.strerror}") from error


def clean_path(path: str, what: str) -> str:
    """The path without leading and trailing slashes. Raises InvalidRequest: empty, or with a segment that leads elsewhere."""
    key = path.strip("/")
    if not key:
        raise InvalidRequest(f"{what} is empty; expected the path of an object or folder in the bucket")
    if "\0" in key:
        raise InvalidRequest(f"{what} contains a NUL byte")
    if {".", ".."} & set(key.split("/")):
        raise InvalidRequest(f"{what} {shown(path)} has a '.' or '..' in it; expected the path of an object or folder in the bucket")
    return key


def shown(key: str) -> str:
    """Quoted for people, and cut where it is very long."""
    return repr(key if len(key) <= _SHOWN_CHARACTERS else f"{key[:_SHOWN_CHARACTERS]}…")
