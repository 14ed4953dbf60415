"""What gzip holds, as a stream: any number of members, each verified by its checksum. Read by the standard library's `gzip`."""

from __future__ import annotations

import gzip
import io
import zlib
from typing import Any, BinaryIO, cast

from adapter.storage.pull.archive_tree import Damaged
from adapter.workers import Stop


class _Packed:
    """A file that is read until the work is no longer wanted: `gzip` reads a header of any length in one call, byte by byte."""

    def __init__(self, file: BinaryIO, stop: Stop) -> None:
        self._file = file
        self._stop = stop

    def read(self, size: int) -> bytes:
        self._stop.check()
        return self._file.read(size)


class Gunzipped(io.RawIOBase):
    """The content of a gzip file. Reading it raises Damaged, and Stopped when the work is no longer wanted."""

    def __init__(self, file: BinaryIO, stop: Stop) -> None:
        super().__init__()
        self._content = gzip.GzipFile(fileobj=cast("Any", _Packed(file, stop)), mode="rb")

    def read(self, size: int = -1, /) -> bytes:
        """At most these bytes; fewer at the end alone."""
        try:
            return self._content.read(size)
        except (gzip.BadGzipFile, zlib.error) as error:
            raise Damaged("what gzip has packed is damaged") from error
        except EOFError as error:
            raise Damaged("it ends in the middle") from error
