"""Names near a path that leads to nothing. Knows no store."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from adapter.storage.bucket import Bucket

_NEAR_MISSES = 3
_COMPARED_CHARACTERS = 48
"""Of a name, where near ones are looked for: the time that comparing takes grows faster than the square of that."""


async def near_misses(bucket: Bucket, key: str, same_start: Iterable[str]) -> list[str]:
    """
    Names that go on where the path ends (`same_start`: keys that were listed), then names in its folder that look alike.

    One listing. Raises as the bucket.
    """
    parent = key[: key.rfind("/") + 1]
    page = await bucket.list_page(parent, by_folder=True)
    beside = {_compared(name, parent): name for name in (*page.folders, *(stored.key for stored in page.objects))}
    longer = [name[: name.find("/", len(key)) + 1] or name for name in same_start if not name.startswith(f"{key}/")]
    alike = difflib.get_close_matches(_compared(key, parent), list(beside), n=_NEAR_MISSES)
    return list(dict.fromkeys([*longer, *(beside[name] for name in alike)]))[:_NEAR_MISSES]


def _compared(name: str, parent: str) -> str:
    return name.removeprefix(parent).rstrip("/")[:_COMPARED_CHARACTERS]
