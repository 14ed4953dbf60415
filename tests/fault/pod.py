"""
A pod whose containers can be killed: the real Triton and the adapter as a process, over the real S3 server.

Models are python models that Triton loads in about 0.2 s (an interpreter each); each adds a number of
its own, so that the right one is known by its answer.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import grpc
import numpy as np
from tritonclient.grpc import service_pb2 as v2
from tritonclient.grpc import service_pb2_grpc as v2_rpc

from tests.integration.conftest import get
from tests.real.mesh import arrays_of
from tests.real.models import affine
from tests.real.pod import BUCKET, Pod
from tests.real.polls import until
from tests.real.s3 import S3Server

LONG_SECONDS = 120
RECONNECT = [("grpc.initial_reconnect_backoff_ms", 20), ("grpc.max_reconnect_backoff_ms", 50), ("grpc.use_local_subchannel_pool", 1)]


class FaultPod(Pod):
    """Two containers and a user of theirs."""

    def __init__(
        self, root: Path, storage_config: Path, s3: S3Server, show: Callable[..., None], *, name: str | None = None, **env: str
    ) -> None:
        """
        `show`: takes the rows of the table. `name`: Triton's `--id`, for one that has the same at each start. Further keywords are the
        adapter's settings.
        """
        settings = {"LOADTIME_TIMEOUT": "90000", "LOADING_CONCURRENCY": "2", **env}
        super().__init__(root, storage_config, settings, extra_args=["--reuse-grpc-port=true"], log_path=root / "triton.log", name=name)
        self._s3 = s3
        self._show = show
        self.load_seconds: list[float] = []
        """How long each load of `load_many` took, over the SPI."""
        self.loaded: dict[str, int] = {}
        """Model id → the number that it adds, of models that were loaded."""

    # ---- models

    def put(self, path: str, files: dict[str, bytes]) -> None:
        """Into the bucket."""
        self._s3.put_folder(BUCKET, path, files)

    def load_many(self, count: int) -> list[str]:
        """Load so many small models, one after the other; `m0` first."""
        for number in range(count):
            self.put(f"adds{number}", dict(affine(1, number)))
            began = time.monotonic()
            self.mesh.load(f"m{number}", "python", f"adds{number}")
            self.load_seconds.append(time.monotonic() - began)
            self.loaded[f"m{number}"] = number
        return list(self.loaded)

    def serving(self, seconds: float = 60) -> set[str]:
        """Which of the loaded models answer inference by themselves, once all do or the time is up."""
        found: set[str] = set()
        with self.inference() as infer:

            def is_all() -> bool:
                found.clear()
                found.update(model_id for model_id, number in self.loaded.items() if infer(model_id, 1.0) == 1.0 + number)
                return len(found) == len(self.loaded)

            with suppress(TimeoutError):
                until(is_all, "every model answers", seconds)
        return found

    @contextmanager
    def inference(self) -> Iterator[Callable[[str, float], float | None]]:
        """One inference of an affine model over a connection of its own: the answer, or None."""
        with grpc.insecure_channel(self.triton.grpc_target, options=RECONNECT) as channel:
            stub = v2_rpc.GRPCInferenceServiceStub(channel)

            def infer(model_id: str, number: float) -> float | None:
                request = self.mesh.infer_request(model_id, {"X": np.array([number], np.float32)})
                try:
                    answer = stub.ModelInfer(request, timeout=LONG_SECONDS)
                except grpc.RpcError:
                    return None
                return float(arrays_of(answer)["Y"][0])

            yield infer

    def states(self) -> dict[str, str]:
        """Triton's index, over a connection of its own."""
        with grpc.insecure_channel(self.triton.grpc_target, options=RECONNECT) as channel:
            rows = v2_rpc.GRPCInferenceServiceStub(channel).RepositoryIndex(
                v2.RepositoryIndexRequest(), timeout=LONG_SECONDS, wait_for_ready=True
            )
            return {row.name: row.state for row in rows.models}

    # ---- what it says

    def row(self, fault: str, tried: int, survived: int, note: str = "") -> None:
        """One line of the table, of models."""
        self._show(fault=fault, tried=tried, survived=survived, lost=tried - survived, note=note)

    def ready(self) -> tuple[int, str]:
        """Status and body of `/readyz`."""
        return get(f"{self.adapter.metrics_url}/readyz")

    def metric(self, name: str, **labels: str) -> float:
        """Sum of the samples of the adapter's metric with these labels."""
        text = get(f"{self.adapter.metrics_url}/metrics")[1]
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        lines = re.findall(rf"^triton_adapter_{name}(\{{.*\}})? (\S+)$", text, re.M)
        return sum(float(value) for found, value in lines if all(each in found for each in wanted))

    def loads_of_triton(self) -> int:
        """How many models Triton has loaded since the pod began, by its own log."""
        return len(re.findall(r"successfully loaded '", (self.volume / "triton.log").read_text(errors="replace")))

    def until_missed(self) -> float:
        """Seconds until the adapter says by itself that Triton is away."""
        began = time.monotonic()
        until(lambda: self.ready()[0] == 503, "/readyz is red", 30)
        return time.monotonic() - began
