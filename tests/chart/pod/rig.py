"""A pod that runs, the S3 server beside it, and who speaks for ModelMesh's containers in it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tritonclient.grpc import service_pb2 as v2

from adapter._pb import model_runtime_pb2 as spi
from tests.chart.pod.env import Objects
from tests.chart.pod.pod import NONE, Pod
from tests.chart.soundness import ADAPTER, TRITON
from tests.real.mesh import LONG_ENOUGH_SECONDS, Mesh
from tests.real.s3 import S3Server

BUCKET, KEY = "models", "some-storage"
PULLER = 2000
"""A user that is neither Triton nor the adapter."""


@dataclass(frozen=True)
class Rig:
    """Both containers are well, and ModelMesh was told READY."""

    pod: Pod
    mesh: Mesh
    s3: S3Server
    root: str
    """The model volume, as both containers see it."""
    helped: bool
    """ModelMesh's puller pulls."""

    @property
    def volume(self) -> Path:
        """The same, on this machine."""
        return self.pod.behind(ADAPTER, self.root)

    def load(self, model_id: str, model_type: str, files: Mapping[str, bytes]) -> int:
        """As ModelMesh loads what lies in S3. The answer is the size that it is told."""
        if self.helped:
            request = self._pulled(model_id, model_type, files)
            return self.mesh.runtime.loadModel(request, timeout=LONG_ENOUGH_SECONDS).sizeInBytes
        self.s3.put_folder(BUCKET, f"some/{model_id}", files)
        return self.mesh.load(model_id, model_type, f"some/{model_id}", storage_key=KEY).sizeInBytes

    def call(self, name: str) -> Any:
        """A call of Triton's repository by a client that knows no key, for the model `texts`."""
        kind = getattr(v2, f"{name}Request")
        return getattr(self.mesh.triton, name)(
            kind() if name == "RepositoryIndex" else kind(model_name="texts"), timeout=LONG_ENOUGH_SECONDS
        )

    def left(self) -> list[str]:
        """What a model has left in Triton's folder, or half done in the adapter's own."""
        folders = [self.volume / "_triton_models", *(self.volume / "_adapter" / name for name in ("staging", "trash"))]
        return [str(path.relative_to(self.volume)) for folder in folders for path in folder.iterdir()]

    def _pulled(self, model_id: str, model_type: str, files: Mapping[str, bytes]) -> spi.LoadModelRequest:
        """The files of another user, and the request as the puller passes it on: an absolute path and the bytes on disk, no storage."""
        top = self.volume / model_id
        for path, content in files.items():
            target = top / "model" / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        for pulled in (top, *top.rglob("*")):
            pulled.chmod(0o755 if pulled.is_dir() else 0o644)
            os.chown(pulled, PULLER, 0)
        key = {"model_type": {"name": model_type}, "disk_size_bytes": sum(map(len, files.values()))}
        path = f"{self.root}/{model_id}/model"
        return spi.LoadModelRequest(modelId=model_id, modelType=f"mt:{model_type}", modelPath=path, modelKey=json.dumps(key))


@contextmanager
def running(template: Mapping[str, Any], folder: Path, *, secrets: Objects = NONE, claims: Mapping[str, Path] = NONE) -> Iterator[Rig]:
    """
    The two containers, from nothing to READY. `storage-config` has the S3 server, beside what is given.

    Raises:
        CannotStartError: the kubelet would not start one of them.
        PartError: a container ended, or its own liveness probe does not become green; with its log in short.
    """
    helped = any(each["name"] == "puller" for each in template["spec"]["containers"])
    with ExitStack() as stack:
        pod = stack.enter_context(Pod(template, folder / "pod", secrets={"storage-config": {}, **secrets}, claims=claims))
        s3 = stack.enter_context(S3Server(folder / "s3", wrapper=pod.network))
        pod.put_secret("storage-config", {**secrets.get("storage-config", {}), KEY: json.dumps(s3.storage_config(BUCKET))})
        for name in (TRITON, ADAPTER):
            pod.start(name)
        for name in (TRITON, ADAPTER):
            pod.until_well(name)
        mesh = stack.enter_context(Mesh(f"127.0.0.1:{pod.forward(8085)}", f"127.0.0.1:{pod.forward(8001)}"))
        mesh.start()
        yield Rig(pod, mesh, s3, pod.env(ADAPTER).get("ROOT_MODEL_DIR", "/models"), helped)
