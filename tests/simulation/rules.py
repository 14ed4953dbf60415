"""
What holds all the time: in Triton's folder, in the journal, in what is counted.

The rules are told by those who do something (a change of the folder, a load of Triton, a question to a store), before they do it.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import Any

from adapter.journal import JournalProblem, NoJournal, read
from adapter.model import PROBE
from adapter.volume.boot import boot_id
from tests.simulation.loop import KIND, LIFE
from tests.simulation.store import SERVED, served, sizes
from tests.simulation.triton import files_below
from tests.simulation.world import FIT, Part


class Rules(Part):
    """Look on, and call what must not be a problem."""

    def check_space(self) -> None:
        """What is counted is at least what lies there."""
        if (
            self._world.adapter is None
            or self._world.hub.current is not None
            or self._world.adapter.lifecycle._reconciler.obstacle is not None
        ):
            return  # what an earlier process has left is counted when it was found, and no load may begin before that
        found, space = self._bytes(), self._world.adapter.space
        lies, counted = sum(size for _, size in found.values()), space.held_bytes()
        if lies > counted and not any("bytes lie" in problem for problem in self._world.problems):
            told = {kind: space.counted_bytes(kind) for kind in ("placed", "idle", "trash")} | {"staging": space.counted_bytes("staging")}
            self._world.problem(f"{lies} bytes lie on the volume, and {counted} are counted: {sorted(found.values())}, {told}")

    def _bytes(self) -> dict[int, tuple[str, int]]:
        """Of models' files, each once: where it lies, and its size."""
        assert self._world.adapter is not None
        found: dict[int, tuple[str, int]] = {}
        volume = self._world.adapter.volume
        for folder in (volume.repository_dir, volume.artifacts_dir, volume.staging_dir):
            for place, _, names in os.walk(folder):
                if (
                    folder is volume.repository_dir
                    and self._world.placed_by.get(os.path.relpath(place, folder).split("/")[0]) is not self._world.adapter.life
                ):
                    continue  # an earlier process has placed it: it is counted when the folder is looked at
                for name in names:
                    if name in SERVED:
                        state = os.lstat(os.path.join(place, name))
                        if stat.S_ISLNK(state.st_mode):
                            continue
                        found[state.st_ino] = (os.path.relpath(os.path.join(place, name), self._world.setup.root / "models"), state.st_size)
        return found

    def changing(self, name: str, arguments: tuple[Any, ...]) -> None:
        """Before a change of the folder: what Triton holds stays where it is."""
        if name == "rename":
            source = Path(arguments[0])
            if source.parent == self._world.repository_dir:
                state = self._triton.held.get(source.name)
                if state is not None:
                    self._world.problem(f"the directory of {source.name} was taken away while Triton had it as {state}")
        paths = [Path(argument) for argument in arguments[:2] if isinstance(argument, str | Path)]
        for path in paths:
            is_seen = self._world.repository_dir in path.parents and path.parent != self._world.repository_dir
            if is_seen and name in ("open", "link", "symlink", "unlink") and (name != "link" or path == paths[-1]):
                self._world.problem(f"{name} {path} in sight of Triton")

    def renamed(self, path: Path) -> None:
        if path.parent != self._world.repository_dir or path.name.startswith((".check", PROBE)):
            return
        self._world.placed_by[path.name] = LIFE.get()
        self._triton.placements[path.name] = self._triton.placements.get(path.name, 0) + 1
        if problem := self.unwhole(path):
            self._world.problem(f"{path.name} was placed, but {problem}")

    def unwhole(self, folder: Path) -> str | None:
        """Why these are not the files of a model, as the store had it at some time."""
        files = served(self._world.loop.in_name_of(None).run(files_below, folder))
        if not files:
            return "has no files"
        said = {content.split(b"#", 2)[0].decode() + "#" + content.split(b"#", 2)[1].decode() for content in files.values() if content}
        if len(said) != 1 or any(content.count(b"#") < 2 for content in files.values()):
            return f"its files are of {sorted(said)}"
        endpoint, _, rest = said.pop().partition("/")
        path, _, version = rest.rpartition("#")
        expected = served(self._world.place(endpoint).models[path].versions[int(version)])
        if files != expected:
            return f"it has {sizes(files)}, and the store had {sizes(expected)}"
        return None

    def about_to_load(self, name: str) -> None:
        """Whatever Triton is asked to load is in the journal first, so that the next process knows."""
        assert self._world.adapter is not None
        self._check_memory(name)
        journal = self._world.adapter.volume.cache_dir / "journal.jsonl"
        with contextlib.suppress(NoJournal, FileNotFoundError):
            try:
                found = read(journal, boot_id())
            except JournalProblem as problem:
                if not isinstance(problem, NoJournal) and journal.stat().st_size:  # one that cannot be deleted is emptied
                    self._world.problem(f"Triton is asked to load {name}, and the journal says nothing: {problem}")
                return
            record = found.records.get(name)
            if record is None or record.placed is None:
                self._world.problem(f"Triton is asked to load {name}, and the journal has {record}")

    def _check_memory(self, name: str) -> None:
        """
        A front's models never have more than the memory, also those that an earlier process has left, or that are being unloaded.

        A journal that could not be written does not tell what such a model takes; nor does an index that was refused.
        """
        world = self._world
        assert world.adapter is not None
        held = {other for other in self._triton.held if other in world.front_ids} | {name}
        is_told = not world.files.failed and world.adapter.life not in world.blind | world.halved
        if name in world.front_ids and is_told:
            world.met[f"{len(held)} models of a front's"] += 1
            if len(held) > FIT:
                world.problem(f"Triton is asked to load {name} into a memory for {FIT}, and has {sorted(held - {name})}")

    def asked(self) -> None:
        """Only a call asks a store."""
        if KIND.get() == "restore":
            self._world.problem("a restore asks a store")
