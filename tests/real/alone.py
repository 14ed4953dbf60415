"""
`scripts/serve`: Triton and the adapter on this machine, over a folder of models, until Ctrl-C.

Ports are those of the settings `ADAPTER_PORT`, `METRICS_PORT` and `RUNTIME_PORT`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from pathlib import Path

from tests.real.children import PartError
from tests.real.pod import Pod
from tests.real.ports import free_ports
from tests.real.triton import Triton

PORTS = {"ADAPTER_PORT": "8085", "METRICS_PORT": "9464", "RUNTIME_PORT": "8001"}


def main(models: Path) -> int:
    """Serve; returns the exit code."""
    ports = {name: os.environ.get(name, port) for name, port in PORTS.items()}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        with tempfile.TemporaryDirectory(prefix="modelmesh-triton-") as made:
            volume, config, claims = (Path(made) / name for name in ("models", "storage-config", "claims"))
            config.mkdir()
            (config / "models").write_text(json.dumps({"type": "pvc", "name": "models"}))
            claims.mkdir()
            (claims / "models").symlink_to(models)
            (volume / "_triton_models").mkdir(parents=True)
            triton = Triton(volume / "_triton_models", completes=True, ports=(int(ports["RUNTIME_PORT"]), *free_ports(2)))
            with triton, Pod(volume, config, {"PVC_MOUNTS_DIR": str(claims), **ports}, target=triton.grpc_target):
                names = ", ".join(sorted(each.name for each in models.iterdir() if each.is_dir()))
                print(f"serve: Triton and the adapter are ready; models in {models}: {names}", flush=True)
                signal.pause()
    except KeyboardInterrupt:
        print()
    except PartError as error:
        print(f"serve: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
