"""The adapter as a process between a store that a test spoils and a fake Triton, with its memory measured by the kernel."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from adapter.volume.volume import Volume
from tests.builders import load_request
from tests.fakes.background_triton import BackgroundTriton
from tests.fakes.hell import Hell
from tests.fakes.http_proxy import VARIABLES
from tests.real.adapter import AdapterProcess
from tests.real.mesh import Mesh
from tests.real.pod import Pod
from tests.security import unmeasured
from tests.security.archive_rig import Ground, ground_in
from tests.security.clouds import NO_IDENTITY
from tests.security.stores import KEY, STORES, HonestStore

BUDGET_SECONDS = 4
STOP_SECONDS = 3
MIB = 1 << 20


class Sidecar:
    """A running adapter whose storage secret grows with each test, and ModelMesh's part."""

    def __init__(self, adapter: AdapterProcess, mesh: Mesh, secret: Path) -> None:
        self.adapter = adapter
        self.mesh = mesh
        self.secret = secret
        self._numbers = 0

    def add_key(self, config: dict[str, str]) -> str:
        """A new storage key."""
        self._numbers += 1
        name = f"key-{self._numbers}"
        (self.secret / name).write_text(json.dumps(config))
        return name

    def begin(self, key: str, model_id: str = "m") -> Any:
        """A load that goes on."""
        return self.mesh.runtime.loadModel.future(load_request(model_id, "python", KEY, storage_key=key), timeout=60)

    def stop(self, load: Any, model_id: str = "m") -> None:
        """The caller goes: the undo is over in time."""
        load.cancel()
        begun = time.monotonic()
        self.mesh.unload(model_id)
        assert time.monotonic() - begun < STOP_SECONDS

    @contextmanager
    def growth(self) -> Iterator[list[float]]:
        """MiB by which the most memory that was resident inside exceeds the memory before. Source: proc(5), clear_refs."""
        grown: list[float] = []
        before = unmeasured.forget_peak(self.adapter.pid)
        yield grown
        grown.append(unmeasured.mib("VmHWM", self.adapter.pid) - before)


@pytest.fixture(scope="session")
def fake_triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BackgroundTriton]:
    """One for all."""
    with BackgroundTriton(tmp_path_factory.mktemp("volume") / "_triton_models") as triton:
        yield triton


@pytest.fixture(scope="module")
def sidecar(fake_triton: BackgroundTriton, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sidecar]:
    """After its start: nothing is loaded."""
    secret = tmp_path_factory.mktemp("secret")
    env = {
        "LOADTIME_TIMEOUT": str(int(BUDGET_SECONDS * 1000 / 0.9)),
        "LOADING_CONCURRENCY": "32",
        "REQUEST_ENDPOINTS_DENIED": "169.254.0.0/16",
    }
    with Pod(fake_triton.repository.parent, secret, env, target=fake_triton.target) as pod:
        pod.mesh.start()
        yield Sidecar(pod.adapter, pod.mesh, secret)


@pytest.fixture(scope="module", params=list(STORES))
def store(request: pytest.FixtureRequest) -> HonestStore:
    """Of each type that is asked over a network."""
    return STORES[request.param]


@pytest.fixture
def hell(store: HonestStore) -> Iterator[Hell]:
    """A server that is honest until the test says otherwise."""
    with Hell(store.honest) as server:
        yield server


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Volume]:
    """A claimed volume in `models`."""
    made = Volume(tmp_path / "models/_triton_models", tmp_path / "models/_adapter")
    made.claim()
    yield made
    made.close()


@pytest.fixture
def no_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither of the machine that runs the tests, nor its proxies."""
    for name in (*NO_IDENTITY, *VARIABLES, "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GCE_METADATA_IP", "127.0.0.1:1")
    monkeypatch.setattr("google.auth.compute_engine._metadata.ping.__defaults__", (3, 1))  # one look


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    """Where one archive is unpacked."""
    with ground_in(tmp_path) as made:
        yield made
