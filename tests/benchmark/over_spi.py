"""An adapter as a process, ours or the one in Go, that loads a model over the SPI: the bytes from the benchmark's server, a fake Triton."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tests.benchmark.gauge import Figures, Job, gauged
from tests.benchmark.go_adapter import PROGRAM, GoAdapter
from tests.benchmark.ours import storage_config
from tests.benchmark.rig import OURS, PEERS, Client
from tests.fakes.background_triton import BackgroundTriton
from tests.real.adapter import AdapterProcess
from tests.real.mesh import Mesh


def loaded(started: Callable[..., Any], job: Job) -> Figures:
    """One load. What has come stays where it is."""
    folder = Path(job.folder)
    (folder / "config").mkdir()
    (folder / "config/k").write_text(json.dumps(storage_config(job.url, job.store, job.ca)))
    with BackgroundTriton(folder / "volume/_triton_models") as triton:
        env = {"CONTAINER_MEM_REQ_BYTES": str(64 << 30), **job.env}
        adapter = started(volume=folder / "volume", storage_config=folder / "config", triton_target=triton.target, env=env)
        with adapter, Mesh(adapter.channel_target, triton.target) as mesh:
            mesh.start()
            mesh.load("warm", "onnx", job.warm[0], storage_key="k")
            with gauged(job, adapter.pid) as figures:
                mesh.load("measured", "onnx" if len(job.keys) == 1 else "tensorflow", job.prefix, storage_key="k")
            figures.more["roots"] = {job.prefix: _kept(folder, job)}
    return figures


def _kept(folder: Path, job: Job) -> str:
    """Where the files of the model are, after the adapter has gone: by its layout in the repository."""
    kept = folder / "kept"
    for key, _ in job.keys:
        below = key.removeprefix(job.prefix).lstrip("/") or key.rpartition("/")[2]
        (kept / below).parent.mkdir(parents=True, exist_ok=True)
        shutil.move((folder / "volume/_triton_models/measured/1" / below).resolve(), kept / below)
    return str(kept)


OVER_SPI = Client(OURS.name, partial(loaded, AdapterProcess))
GO = Client("go adapter", partial(loaded, GoAdapter), PROGRAM.exists)
ALTERNATIVES = (*PEERS, GO)
