"""A pod as processes: Triton and the adapter over one volume, and ModelMesh's calls to them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.real.adapter import AdapterProcess
from tests.real.mesh import Mesh
from tests.real.s3 import S3Server
from tests.real.triton import Triton

BUCKET = "models"


class Pod:
    """`with Pod(volume, storage_config) as pod:`. Ports stay the same over `kill` and `start` of a part."""

    mesh: Mesh
    adapter: AdapterProcess

    def __init__(
        self, volume: Path, storage_config: Path, env: Mapping[str, str] | None = None, *, target: str = "", **options: Any
    ) -> None:
        """
        Args:
            volume: shared by Triton and the adapter; made where it is missing.
            storage_config: the mounted secret.
            env: settings of the adapter.
            target: of a Triton that runs already, in place of one that the pod starts.
            options: of the pod's own Triton.
        """
        self.volume = volume
        self.repository = volume / "_triton_models"
        self.env = dict(env or {})
        self._storage_config = storage_config
        self._target = target
        self._options = options
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self.repository.mkdir(parents=True, exist_ok=True)
        try:
            if not self._target:
                self.start_triton()
            self.start_adapter()
            self.mesh = self._stack.enter_context(Mesh(self.adapter.channel_target, self.target))
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()

    @property
    def target(self) -> str:
        """Triton's, for a gRPC channel."""
        return self._target or self.triton.grpc_target

    def start_triton(self, **options: Any) -> None:
        """A first one, or another one beside it, which takes its place in the pod. Further options than those of the pod."""
        self.triton = self._stack.enter_context(Triton(self.repository, **self._options | options))

    def start_adapter(self, *, wait: bool = True) -> None:
        """A first one, or another one with the settings that `env` has now. `wait`: until its SPI answers."""
        made = AdapterProcess(volume=self.volume, storage_config=self._storage_config, triton_target=self.target, env=self.env, wait=wait)
        self.adapter = self._stack.enter_context(made)


def secret(folder: Path, s3: S3Server, *, name: str = "s3") -> Path:
    """A mounted storage secret whose one key leads to the bucket of the tests."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(json.dumps(s3.storage_config(BUCKET)))
    return folder
