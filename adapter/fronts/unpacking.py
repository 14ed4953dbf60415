"""
Compressed bodies, unpacked as their bytes come. Pure.

Source: RFC 1952: gzip is members, one behind the other; RFC 9110, 8.4.1: deflate is one stream of zlib (RFC 1950).
"""

from __future__ import annotations

import zlib

MOST_MEMBERS = 10_000
"""Of a body in gzip: members without content cost time, too."""
_BITS = {"gzip": 31, "deflate": 15}


class Unpacking:
    """One body of gzip or deflate."""

    def __init__(self, encoding: str) -> None:
        self._bits = _BITS[encoding]
        self._has_members = encoding == "gzip"
        self._members = 1
        self._stream = zlib.decompressobj(self._bits)

    @property
    def is_whole(self) -> bool:
        """Whether the body may end here."""
        return self._stream.eof

    def unpacked(self, chunk: bytes, most: int) -> bytes:
        """
        What the next bytes give, and no more than `most` bytes of that.

        Raises:
            zlib.error: they are not what the encoding says, or come behind its end.
        """
        parts: list[bytes] = []
        while chunk and most:
            if self._stream.eof:
                self._begin_next()
            part = self._stream.decompress(chunk, most)
            parts.append(part)
            most -= len(part)
            chunk = self._stream.unused_data
        return b"".join(parts)

    def _begin_next(self) -> None:
        if not self._has_members:
            raise zlib.error("bytes come behind its end")
        self._members += 1
        if self._members > MOST_MEMBERS:
            raise zlib.error(f"it has more than {MOST_MEMBERS} members")
        self._stream = zlib.decompressobj(self._bits)
