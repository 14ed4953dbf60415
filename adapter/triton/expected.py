"""How long Triton needs to free a model after it has answered the unload: learned for each kind of model. A guess about time alone."""

from __future__ import annotations

from collections import OrderedDict
from itertools import islice
from pathlib import PurePosixPath

from adapter.model import Layout

KINDS = 256
"""Kinds that are remembered, the ones seen last."""
LONGEST_SECONDS = 5.0
"""The first look comes no later: a caller may ask what an unload waits for."""
EARLIER = 0.1
"""Part of the time by which the next look comes earlier, after one that found the memory free."""
LATER, LATER_SECONDS = 0.1, 0.002
"""At most so much later comes the next one, after one that did not."""
NOTHING_SECONDS = 0.0005
"""Less is no wait."""
FILES = 50
"""Files that tell of a model's kind."""


def kind_of(layout: Layout) -> str:
    """What models of the same backend and about the same size have in common: the ends of their files' names, and bytes / 16ⁿ."""
    ends = {PurePosixPath(path).suffix for path in islice(layout.links, FILES)}
    return f"{' '.join(sorted(ends))} {layout.size_bytes.bit_length() // 4}"


class Expected:
    """
    Seconds from Triton's answer to the end of the unload, by kind.

    The guess comes a little earlier after each first look that found the memory free, later after a look that did not. One unload that
    took long (an inference had to end first) moves it by a tenth only, and alone makes no guess: the first one is the shorter of two.
    """

    def __init__(self) -> None:
        self._seconds: OrderedDict[str, float] = OrderedDict()
        self._once: OrderedDict[str, float] = OrderedDict()
        """What one unload took, of kinds that no other one is known of."""

    def seconds(self, kind: str) -> float:
        """After so long the first look is worth it; 0 where nothing is known."""
        return self._seconds.get(kind, 0.0)

    def found_free(self, kind: str) -> None:
        """By the first look that was due."""
        self._note(kind, self.seconds(kind) * (1 - EARLIER))

    def found_held(self, kind: str, held_seconds: float, free_seconds: float) -> None:
        """By that look; `held_seconds`: after so long the last look found it held, and after `free_seconds` the next one found it free."""
        middle = min((held_seconds + free_seconds) / 2, LONGEST_SECONDS)
        if (before := self._seconds.get(kind)) is not None:
            self._note(kind, min(middle, before + LATER * before + LATER_SECONDS))
        elif (once := self._once.pop(kind, None)) is not None:
            self._note(kind, min(middle, once))
        else:
            _keep(self._once, kind, middle)

    def _note(self, kind: str, seconds: float) -> None:
        self._once.pop(kind, None)
        _keep(self._seconds, kind, seconds if seconds >= NOTHING_SECONDS else 0.0)


def _keep(table: OrderedDict[str, float], kind: str, seconds: float) -> None:
    table[kind] = seconds
    table.move_to_end(kind)
    if len(table) > KINDS:
        table.popitem(last=False)
