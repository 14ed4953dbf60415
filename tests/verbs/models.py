"""The verb `models` over a volume, a journal and a Triton in this process, with an adapter that is alive or not."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from adapter import cli
from adapter.journal import Journal
from adapter.records import Crashes, Record
from adapter.triton.client import TritonClient
from adapter.triton.repository import Repository
from adapter.volume.volume import Volume
from tests.fakes.triton import FakeTriton


@dataclass
class Place:
    """A volume, a Triton over it, and where its adapter tells its health."""

    root: Path
    triton: FakeTriton
    metrics_port: int

    @property
    def repository(self) -> Path:
        return self.root / "_triton_models"

    @property
    def journal(self) -> Path:
        return self.root / "_adapter" / "journal.jsonl"

    async def shows(self, *options: str, **variables: str) -> tuple[int, str, str]:
        """Exit code and both streams of `models`."""
        usual = {
            "ROOT_MODEL_DIR": str(self.root), "RUNTIME_ENDPOINT": self.triton.target, "ADAPTER_PORT": "0",
            "METRICS_PORT": str(self.metrics_port), "COLUMNS": "140",
        }  # fmt: skip
        out, err = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patched, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            for name, value in (usual | variables).items():
                patched.setenv(name, value)
            code = await asyncio.to_thread(cli.main, ["models", *options])
        return code, out.getvalue(), err.getvalue()

    async def json(self, *options: str, **variables: str) -> dict[str, Any]:
        """What it shows for programs; the exit code tells the same."""
        code, out, _ = await self.shows("--json", *options, **variables)
        found: dict[str, Any] = json.loads(out)
        assert code == (0 if found["agrees"] else 1)
        return found

    async def put(self, model_id: str) -> str:
        """Place a model as the adapter does; returns its identity."""
        folder = self.repository / model_id / "1"
        folder.mkdir(parents=True)
        (folder / "model.onnx").write_bytes(b"x" * 100)
        repository = Repository(Volume(self.repository, self.root / "_adapter"))
        placed = await repository.inventory()
        repository.close()
        return placed[model_id].identity if model_id in placed else ""

    def note(self, *records: Record | Crashes) -> None:
        """What an adapter of this boot has noted, before it ended."""
        journal = Journal(self.journal, discard=lambda path: path.unlink(missing_ok=True))
        for record in records:
            journal.note(record)
        journal.close()

    async def load(self, *names: str) -> None:
        """Have Triton load them."""
        client = TritonClient(self.triton.target)
        for name in names:
            await client.load(name)
        await client.close()

    async def unload(self, name: str) -> None:
        """Have Triton unload it, as another client would."""
        client = TritonClient(self.triton.target)
        await client.unload(name)
        await client.close()
        async with asyncio.timeout(20):
            while self.triton.in_memory.get(name):
                await asyncio.sleep(0.01)


def drift(found: dict[str, Any]) -> dict[str, str]:
    """Model id → what disagrees."""
    return {model["id"]: model["drift"] for model in found["models"] if model["drift"]}
