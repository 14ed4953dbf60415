"""
The adapter in Go that this project replaces, as an alternative: `python -m tests.benchmark.go_adapter` builds it.

Built from its last release, which Go's module proxy keeps, where there is a Go toolchain. It is asked over the SPI, as ModelMesh
asks it, in front of a fake Triton: `whole.over_spi` does the same with ours.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from tests.real.children import PARTS, Child, bare_environment
from tests.real.ports import free_ports, is_listening

MODULE = "github.com/kserve/modelmesh-runtime-adapter@v0.12.0"
PROGRAM = PARTS / "go-adapter"
BUILD_SECONDS = 1200
START_SECONDS = 20


class GoAdapter:
    """Running; what `AdapterProcess` is for ours."""

    def __init__(self, *, volume: Path, storage_config: Path, triton_target: str, env: Mapping[str, str]) -> None:
        self._port = free_ports(1)[0]
        self.channel_target = f"127.0.0.1:{self._port}"
        self._env = {
            **bare_environment(), "ADAPTER_PORT": str(self._port), "RUNTIME_PORT": triton_target.rpartition(":")[2],
            "CONTAINER_MEM_REQ_BYTES": str(64 << 30), "USE_EMBEDDED_PULLER": "true", "ROOT_MODEL_DIR": str(volume),
            "STORAGE_CONFIG_DIR": str(storage_config), "LOADTIME_TIMEOUT": "300000", **env,
        }  # fmt: skip
        self._child: Child | None = None

    @property
    def pid(self) -> int:
        """Of its process."""
        assert self._child is not None
        return self._child.pid

    def __enter__(self) -> GoAdapter:
        self._child = Child("go-adapter", [PROGRAM], env=self._env)
        self._child.wait_until(lambda: is_listening(self._port), "listening", START_SECONDS)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._child is not None:
            self._child.kill()


def is_built() -> bool:
    """Whether it can be measured here."""
    return PROGRAM.exists()


def build() -> None:
    """Instant when it is there, or when there is no Go toolchain. Raises CalledProcessError."""
    go = shutil.which("go")
    if is_built() or go is None:
        return
    print(f"parts: {MODULE}, built by {go}", flush=True)
    env = {**bare_environment(), **{name: value for name, value in os.environ.items() if name.startswith("GO")}, "GOFLAGS": "-mod=mod"}
    told = subprocess.run([go, "mod", "download", "-json", MODULE], check=True, env=env, capture_output=True, timeout=BUILD_SECONDS)
    source = PARTS / "go-adapter-source"
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(json.loads(told.stdout)["Dir"], source, copy_function=shutil.copyfile)  # what Go keeps is not to be written to
    for folder in (source, *(path for path in source.rglob("*") if path.is_dir())):
        folder.chmod(0o755)
    command: list[str | Path] = [go, "build", "-o", PROGRAM, "./model-mesh-triton-adapter"]
    subprocess.run(command, cwd=source, check=True, env=env, timeout=BUILD_SECONDS)
    shutil.rmtree(source)


if __name__ == "__main__":
    build()
