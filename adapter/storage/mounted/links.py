"""
Which claims a path leads into, found without entering any of them.

A claim's server may be away, and whoever looks at anything in it then hangs. So links are followed one component at a time,
and each claim is told before the first look into it. Blocks on the volume that the path begins on; runs in threads.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_MOST_LINKS = 40
"""The kernel follows no more. Source: path_resolution(7)."""


def claims_on_the_way(path: Path, mounts: Path) -> Iterator[str]:
    """
    The names of the claims that lie on the way to the end of an absolute path, links followed.

    Whoever does not ask on looks into none of those that he was told. Of a path that leads nowhere, or round in a circle,
    only the part up to there counts.

    Args:
        path: may begin in a claim.
        mounts: the folder of claims.
    """
    folder = os.path.realpath(mounts)
    here, links = "/", 0
    ahead = list(reversed(path.parts[1:]))
    while ahead:
        name = ahead.pop()
        if name in ("", "."):
            continue
        if name == "..":
            here = os.path.dirname(here)  # noqa: PTH120 - the hot path of a listing with many links
            continue
        if here == folder:
            yield name
        here = os.path.join(here, name)  # noqa: PTH118 - likewise
        try:
            target = os.readlink(here)  # noqa: PTH115 - likewise
        except (OSError, ValueError):  # no link, nothing, or no name at all
            continue
        links += 1
        if links > _MOST_LINKS:
            return
        here = "/" if target.startswith("/") else os.path.dirname(here)  # noqa: PTH120 - likewise
        ahead += reversed(target.split("/"))
