"""What somebody may have meant whose path leads to nothing. Blocks; runs in threads; knows no store."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator

from adapter.storage.bucket import Bucket
from adapter.workers import Stop

_NEAR_MISSES = 3
_COMPARED_CHARACTERS = 48
"""Of a name, where near ones are looked for: the time that comparing takes grows faster than the square of that."""


def near_misses(bucket: Bucket, key: str, same_start: Iterable[str], stop: Stop) -> list[str]:
    """
    Names that go on where the path ends (`same_start`: keys that were listed), then names in its folder that look alike.

    One listing. Raises as the bucket; Stopped.
    """
    parent = key[: key.rfind("/") + 1]
    page = bucket.list_page(parent, stop, by_folder=True)
    beside = {_compared(name, parent): name for name in (*page.folders, *(stored.key for stored in page.objects))}
    longer = [name[: name.find("/", len(key)) + 1] or name for name in same_start if not name.startswith(f"{key}/")]
    alike = difflib.get_close_matches(_compared(key, parent), _while_wanted(beside, stop), n=_NEAR_MISSES)
    return list(dict.fromkeys([*longer, *(beside[name] for name in alike)]))[:_NEAR_MISSES]


def _compared(name: str, parent: str) -> str:
    return name.removeprefix(parent).rstrip("/")[:_COMPARED_CHARACTERS]


def _while_wanted(names: Iterable[str], stop: Stop) -> Iterator[str]:
    for name in names:
        stop.check()
        yield name
