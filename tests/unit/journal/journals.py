"""A journal over a folder of its own, entries with whatever a test does not name, and the file as a later process reads it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from adapter.journal import Found, Journal, read
from adapter.records import Content, Record

BOOT = "boot-1"
DIGEST = "ab" * 32


def a_record(model_id: str = "m", *, state: str = "loaded", size_bytes: int = 1, **fields: Any) -> Record:
    """With a value in every field."""
    known: dict[str, Any] = {
        "since": 12.5, "model_type": "onnx", "path": f"models/{model_id[:100]}", "storage_key": "s3",
        "content": Content(DIGEST, DIGEST, DIGEST), "artifact_key": DIGEST, "placed": "4711-1700000000000000000", "confirmed": 13.0,
    }  # fmt: skip
    return Record(model_id=model_id, state=state, size_bytes=size_bytes, **known | fields)


class Rig:
    """The file, and a process after another."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "journal.jsonl"
        self.trash: list[Path] = []
        self._open: list[Journal] = []

    def start(self, boot: str = BOOT) -> Journal:
        """A process that has opened the journal."""
        journal = Journal(self.path, discard=self.discard, boot=boot)
        self._open.append(journal)
        return journal

    def discard(self, path: Path) -> None:
        """As `Volume.discard`: out of sight by a rename, whatever it is."""
        if path.is_symlink() or path.exists():
            self.trash.append(path.rename(self.folder / f"trash-{len(self.trash)}"))

    def found(self, boot: str = BOOT) -> Found:
        """As a later process of this boot finds it."""
        return read(self.path, boot)

    def write(self, *lines: str | bytes | dict[str, Any], boot: str = BOOT, end: bytes = b"\n") -> None:
        """A file of some earlier process: a good first line, and these."""
        head = {"format": 1, "boot_id": boot, "salt": "5a" * 32}
        made = [json.dumps(line).encode() if isinstance(line, dict) else line.encode() if isinstance(line, str) else line for line in lines]
        self.path.write_bytes(b"\n".join([json.dumps(head).encode(), *made]) + end)
        self.path.chmod(0o600)

    def close(self) -> None:
        """End every process."""
        for journal in self._open:
            journal.close()
