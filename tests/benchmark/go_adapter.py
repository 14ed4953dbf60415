"""
The adapter in Go that this project replaces, as an alternative.

Built from its last release, which Go's module proxy keeps, where there is a Go toolchain. It is asked over the SPI, as ModelMesh
asks it, in front of a fake Triton, as ours is.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from tests.real import parts
from tests.real.children import PARTS, Child, bare_environment
from tests.real.ports import free_ports, is_listening

MODULE = "github.com/kserve/modelmesh-runtime-adapter@v0.12.0"
PROGRAM = PARTS / "adapter-in-go" / "go-adapter"
START_SECONDS = 20
BUILD = f"""set -e
source=$(go mod download -json {MODULE} | sed -n 's/.*"Dir": "\\(.*\\)".*/\\1/p')
cp -r --no-preserve=mode "$source" source  # what Go keeps is not to be written to
cd source && go build -o ../go-adapter ./model-mesh-triton-adapter
rm -r ../source
"""


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

    @property
    def pid(self) -> int:
        """Of its process."""
        return self._child.pid

    def __enter__(self) -> GoAdapter:
        self._child = Child("go-adapter", [PROGRAM], env=self._env)
        self._child.wait_until(lambda: is_listening(self._port), "listening", START_SECONDS)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._child.kill()


def go_adapter() -> Path:
    """Instant when it is there. Raises CannotRunError."""
    return parts.put(PROGRAM.parent.name, MODULE, parts.GO, ["go", "version"], ["sh", "-c", BUILD], env={"GOFLAGS": "-mod=mod"})
