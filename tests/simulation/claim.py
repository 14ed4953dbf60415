"""
A volume claim that may hang: whoever looks into it then waits until it heals.

Only the claim's own threads may look into it at all, well or not: any other thread would hang with it, and the event loop too.
Its files never change.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from tests.simulation.fibers import Fiber, Hub
from tests.simulation.loop import LIFE

FOLLOWING = ("stat", "scandir", "listdir", "open", "access")
"""Follow the last link too."""
NOT_FOLLOWING = ("lstat", "readlink")


class Claim:
    """One mounted folder."""

    def __init__(self, hub: Hub, folder: Path) -> None:
        self._hub = hub
        self.folder = folder
        self.is_hung = False
        self.violated: Callable[[str], None] = lambda _: None
        self._waiting: list[Fiber] = []
        self._is_looking = False

    def hang(self) -> None:
        """Whoever looks into it waits from now on."""
        self.is_hung = True

    def heal(self) -> None:
        """All go on."""
        self.is_hung = False
        waiting, self._waiting = self._waiting, []
        for fiber in waiting:
            fiber.wake()

    @contextmanager
    def patched(self) -> Iterator[None]:
        """While inside, `os` tells of looks."""
        with ExitStack() as stack:
            for name in (*FOLLOWING, *NOT_FOLLOWING):
                stack.enter_context(mock.patch.object(os, name, self._looking(getattr(os, name), follows=name in FOLLOWING)))
            stack.enter_context(mock.patch.object(io, "open", self._looking(io.open, follows=True)))
            yield

    def _looking(self, real: Callable[..., Any], *, follows: bool) -> Callable[..., Any]:
        def looking(*arguments: Any, **options: Any) -> Any:
            path = arguments[0] if arguments else "."
            if not self._is_looking and isinstance(path, str | os.PathLike) and options.get("dir_fd") is None:
                life = LIFE.get()
                is_followed = follows and options.get("follow_symlinks", True)
                if life is not None and life.name.startswith("adapter") and self._leads_inside(path, follows=is_followed):
                    self._meet(path)
            return real(*arguments, **options)

        return looking

    def _leads_inside(self, path: Any, *, follows: bool) -> bool:
        """Where the kernel would go."""
        text = os.fspath(path)
        if isinstance(text, bytes):
            return False
        self._is_looking = True
        try:
            end = os.path.realpath(text) if follows else os.path.join(os.path.realpath(os.path.dirname(text)), os.path.basename(text))
        finally:
            self._is_looking = False
        return str(end) == str(self.folder) or str(end).startswith(f"{self.folder}/")

    def _meet(self, path: Any) -> None:
        fiber = self._hub.current
        if fiber is None or not fiber.name.startswith("claim-"):
            self.violated(f"{fiber.name if fiber else 'the event loop, or a thread of others,'} looks into the claim: {path}")
            return
        while self.is_hung:
            self._waiting.append(fiber)
            fiber.block(None)
