"""
A runtime of real pods for a few minutes: real Triton, adapter and S3, ModelMesh's calls, and faults on purpose.

What is loaded and what fails is the same in each run; times are those of the machine.
"""

from __future__ import annotations

import contextlib
import random
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import grpc
import numpy as np

from tests.observability.server import Prometheus
from tests.real.install import CannotRunError
from tests.real.memory_group import memory_group
from tests.real.mesh import LONG_ENOUGH_SECONDS
from tests.real.models import affine, sleeper
from tests.real.pod import BUCKET, Pod, secret
from tests.real.polls import until
from tests.real.s3 import S3Server

MODELS = 8
AT_ONCE = 5
"""Models that a pod's ModelMesh keeps: fewer than there are, so something is always evicted."""
PADDING_BYTES = 6_000_000
HELD = ("m0", "m1")
"""Loaded before anything happens."""
KEPT = "kept"
"""A small one that the traffic never asks for: after a death of Triton the adapter restores it."""
BAD = ("nowhere", "no-config")
SETTINGS = {
    "CONTAINER_MEM_REQ_BYTES": "160Mi",
    "MEM_BUFFER_BYTES": "0",
    "CACHE_MAX_BYTES": "40Mi",
    "LOADTIME_TIMEOUT": "12000",
    "LOADING_CONCURRENCY": "2",
    "UNLOAD_TIMEOUT_SECONDS": "6",
}
PAUSE_SECONDS = 0.2


def targets(name: str, pod: Pod) -> Iterator[dict[str, object]]:
    """A pod for Prometheus, labelled as a PodMonitor labels it."""
    place = {"namespace": "models", "pod": name}
    adapter = pod.adapter.metrics_url.removeprefix("http://")
    yield {"targets": [adapter], "labels": place | {"container": "triton-adapter"}}
    yield {"targets": [f"127.0.0.1:{pod.triton.metrics_port}"], "labels": place | {"container": "triton"}}


@dataclass(frozen=True)
class Scene:
    """What runs, and Prometheus over it."""

    pods: Sequence[Pod]
    s3: S3Server
    prometheus: Prometheus

    @property
    def is_measured(self) -> bool:
        """Whether the reporter runs: no control group can be made in some containers."""
        return all((pod.volume / "_adapter" / "triton-memory").exists() for pod in self.pods)

    def play(self, seconds: float) -> None:
        """Traffic for so long, and meanwhile: Triton of the first pod dies, an inference holds an unload, storage is away."""
        over = threading.Event()
        for pod in self.pods:
            for model in (*HELD, KEPT):
                pod.mesh.load(model, "python", model)
        threads = [threading.Thread(target=_traffic, args=(pod, number, over)) for number, pod in enumerate(self.pods)]
        for thread in threads:
            thread.start()
        try:
            for fault in (self._triton_dies, self._an_unload_is_held, self._storage_is_away):
                time.sleep(seconds / 5)
                fault(seconds / 12)
            time.sleep(seconds / 6)
        finally:
            over.set()
            for thread in threads:
                thread.join()

    def _triton_dies(self, seconds: float) -> None:
        self.pods[0].triton.kill()
        time.sleep(min(seconds, 3))
        self.pods[0].triton.start()

    def _an_unload_is_held(self, seconds: float) -> None:
        mesh = self.pods[-1].mesh
        mesh.load("held", "python", "slow")
        request = mesh.infer_request("held", {"SECONDS": np.array([max(seconds, 12)], dtype=np.float32)})
        inference = mesh.triton.ModelInfer.future(request, timeout=LONG_ENOUGH_SECONDS)
        for _ in range(2):  # ModelMesh repeats an unload that was not finished
            with contextlib.suppress(grpc.RpcError):
                mesh.unload("held")
            inference.result()

    def _storage_is_away(self, seconds: float) -> None:
        self.s3.kill()
        with contextlib.suppress(grpc.RpcError):
            self.pods[0].mesh.load("away", "python", "never-pulled")
        time.sleep(seconds)
        self.s3.start()


@dataclass(frozen=True)
class Played:
    """A scene that is over, with Prometheus still there."""

    scene: Scene
    start: float
    end: float


@contextlib.contextmanager
def scene(names: Sequence[str]) -> Iterator[Scene]:
    """Pods of these names, ready and empty, and Prometheus, which scrapes them."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="scene-")))
        s3 = stack.enter_context(S3Server())
        _fill(s3)
        config = secret(folder / "storage-config", s3)
        pods = {name: stack.enter_context(_pod(stack, folder / name, config)) for name in names}
        for pod in pods.values():
            pod.mesh.start()
        scraped = [target for name, pod in pods.items() for target in targets(name, pod)]
        prometheus = stack.enter_context(Prometheus([{"job_name": "pods", "static_configs": scraped}]))
        until(lambda: len(prometheus.query("up == 1")) == len(scraped), "the first look of Prometheus at each")
        yield Scene(list(pods.values()), s3, prometheus)


def _pod(stack: ExitStack, folder: Path, config: Path) -> Pod:
    """With the reporter of memory in a control group of Triton's own, where one can be made."""
    models = folder / "_triton_models"
    models.mkdir(parents=True)
    wrapper: Sequence[str] = ()
    with contextlib.suppress(CannotRunError):
        group = memory_group(folder.with_name(f"{folder.name}-group"), folder / "_adapter" / "triton-memory", models)
        wrapper = stack.enter_context(group).wrapper
    return Pod(folder, config, SETTINGS, wrapper=wrapper)


def _fill(s3: S3Server) -> None:
    for number in range(MODELS):
        padding = random.Random(number).randbytes(PADDING_BYTES)
        s3.put_folder(BUCKET, f"m{number}", dict(affine(number, 1)) | {"1/weights.bin": padding})
    s3.put_folder(BUCKET, KEPT, dict(affine(1, 1)))
    s3.put_folder(BUCKET, "slow", sleeper(2))
    s3.put_folder(BUCKET, "no-config", {"1/weights.bin": b"x"})


def _traffic(pod: Pod, seed: int, over: threading.Event) -> None:
    """ModelMesh's part: load, infer, evict; now and then a model that cannot be loaded, or is slow."""
    choose = random.Random(seed)
    held = list(HELD)
    while not over.wait(PAUSE_SECONDS):
        with contextlib.suppress(grpc.RpcError):  # faults are meant
            _step(pod, choose, held)


def _step(pod: Pod, choose: random.Random, held: list[str]) -> None:
    if choose.random() < 0.1:
        pod.mesh.load("bad", "python", choose.choice(BAD))
    wanted = choose.choice([*(f"m{number}" for number in range(MODELS)), "slow"])
    if wanted not in held:
        if len(held) >= AT_ONCE:
            pod.mesh.unload(held.pop(0))
        held.append(wanted)  # also one whose load fails: ModelMesh unloads such a one too
        pod.mesh.load(wanted, "python", wanted)
    for name in held:
        if name != "slow":
            pod.mesh.infer(name, {"X": np.ones(3, dtype=np.float32)})
