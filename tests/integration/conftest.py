"""
The adapter as a process between the real S3 server and the real Triton.

With `--triton-endpoint` and `--triton-volume` the Triton is one that somebody else started, for
instance a container: its model repository is `_triton_models` in that folder. Everything in it is
purged.
"""

from __future__ import annotations

import os
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests.real.adapter import AdapterProcess
from tests.real.mesh import Mesh
from tests.real.pod import BUCKET, Pod, secret
from tests.real.polls import until
from tests.real.s3 import S3Server
from tests.real.triton import Triton

Start = Callable[..., AdapterProcess]
Put = Callable[[str, dict[str, bytes]], None]
OWN_FILES = ("lock", "journal.jsonl", "journal.jsonl.new")
TEXT = {"TEXT": np.array(["x y"], dtype=np.object_)}


@dataclass(frozen=True)
class Rig:
    """A Triton and the volume that it shares with the adapter."""

    triton_target: str
    volume: Path

    @property
    def repository(self) -> Path:
        return self.volume / "_triton_models"

    def leftovers(self) -> list[Path]:
        """Files of any model, in the repository or in the adapter's own folder."""
        found = os.walk(self.volume)  # unlike rglob it lives with folders that vanish meanwhile
        return [Path(folder, name) for folder, _, names in found for name in names if name not in OWN_FILES]


def get(url: str) -> tuple[int, str]:
    """Status and body."""
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def until_it_is_why(adapter: AdapterProcess, words: str) -> None:
    """Until its `/readyz` gives these words as the reason."""
    until(lambda: words in get(f"{adapter.metrics_url}/readyz")[1], f"/readyz says: {words}")


def until_nothing_is_left(mesh: Mesh, rig: Rig) -> None:
    """For a load that failed: its answer waits for the undo two seconds and no longer, and a busy machine needs more."""
    until(lambda: mesh.index() == {} and rig.leftovers() == [], "nothing is left in Triton's index and on the volume")


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="session")
def storage_config(s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return secret(tmp_path_factory.mktemp("storage-config"), s3)


@pytest.fixture(scope="module")
def rig(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """Its Triton completes configs where the module says `COMPLETES_CONFIGS = True`: models without a config need it."""
    endpoint = request.config.getoption("--triton-endpoint")
    if endpoint:
        yield Rig(endpoint, Path(request.config.getoption("--triton-volume")))
        return
    volume = tmp_path_factory.mktemp("volume")
    (volume / "_triton_models").mkdir()
    with Triton(volume / "_triton_models", completes=getattr(request.module, "COMPLETES_CONFIGS", False)) as triton:
        yield Rig(triton.grpc_target, volume)


@pytest.fixture
def put(s3: S3Server) -> Put:
    """Put a model's files below a path of the bucket."""
    return partial(s3.put_folder, BUCKET)


@pytest.fixture
def start_adapter(rig: Rig, storage_config: Path) -> Iterator[Start]:
    """Start an adapter over the rig; settings as keywords. All are stopped at the end."""
    with ExitStack() as stack:

        def start(**env: str) -> AdapterProcess:
            return stack.enter_context(
                AdapterProcess(
                    volume=rig.volume,
                    storage_config=storage_config,
                    triton_target=rig.triton_target,
                    env={"LOADTIME_TIMEOUT": "90000", "LOADING_CONCURRENCY": "2"} | env,
                )
            )

        yield start


@pytest.fixture
def start_pod(storage_config: Path, tmp_path: Path) -> Iterator[Callable[..., Pod]]:
    """Start a Triton, with further options, and an adapter, with settings; ModelMesh has not asked for the status yet."""
    with ExitStack() as stack:
        yield lambda env=None, **options: stack.enter_context(Pod(tmp_path, storage_config, env, **options))


@pytest.fixture
def adapter(start_adapter: Start) -> AdapterProcess:
    return start_adapter()


@pytest.fixture
def mesh(adapter: AdapterProcess, rig: Rig) -> Iterator[Mesh]:
    """ModelMesh, after its start: nothing is loaded."""
    with Mesh(adapter.channel_target, rig.triton_target) as mesh:
        mesh.start()
        yield mesh
