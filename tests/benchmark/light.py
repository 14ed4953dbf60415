"""Light models on the real Triton: ensembles of one step, for which Triton starts no process, all with the same files on a claim."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from tests.real import models
from tests.real.mesh import Mesh
from tests.real.pod import Pod

TENSORS = """max_batch_size: 0
input [ { name: "X" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "Y" data_type: TYPE_FP32 dims: [ -1 ] } ]
"""


def ensemble(step: str) -> bytes:
    """The config of a model whose one step is that model."""
    maps = 'input_map { key: "X" value: "X" } output_map { key: "Y" value: "Y" }'
    steps = f'ensemble_scheduling {{ step [ {{ model_name: "{step}" model_version: -1 {maps} }} ] }}\n'
    return f'platform: "ensemble"\n{TENSORS}{steps}'.encode()


def pod(stack: ExitStack, folder: Path, python: Mapping[str, models.Files], at_once: int) -> Mesh:
    """A pod with these python models loaded. The first one is the step of the light models, which `load` loads."""
    volume, claim = folder / "volume", folder / "claims/claim"
    for name, files in {"light": {"config.pbtxt": ensemble(next(iter(python)))}, **python}.items():
        models.write(files, claim / name)
    (folder / "config").mkdir()
    (folder / "config/k").write_text(json.dumps({"type": "pvc", "name": "claim"}))
    env = {"PVC_MOUNTS_DIR": str(folder / "claims"), "CONTAINER_MEM_REQ_BYTES": "64GiB", "LOADING_CONCURRENCY": str(at_once)}
    mesh = stack.enter_context(Pod(volume, folder / "config", env)).mesh
    mesh.start()
    for name in python:
        mesh.load(name, "python", name, storage_key="k")
    return mesh


def load(mesh: Mesh, name: str) -> object:
    """One more."""
    return mesh.load(name, "triton", "light", storage_key="k")
