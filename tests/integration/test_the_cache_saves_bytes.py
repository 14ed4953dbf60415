"""
What a load costs when the files were here before: requests and bytes at the S3 server, counted on the wire.

The adapter is a process, Triton and the S3 server are real; between adapter and store stands a proxy that counts, and can
refuse. Each test has a CACHE_DIR of its own on the volume. What is damaged, away or short of room:
`tests/fault/test_nothing_is_pulled_twice.py`.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.fakes.s3_proxy import Fault, S3Proxy
from tests.integration.conftest import TEXT, get
from tests.real.mesh import Mesh
from tests.real.models import text_statistics
from tests.real.pod import Pod
from tests.real.s3 import S3Server
from tests.real.triton import Triton

BUCKET = "cached"
"""Of these tests alone: the server takes seconds to list thousands of objects of others, which would lie beside the model."""
WEIGHTS = 1_000_000
TITLE = "what a load costs at the S3 server (tests/integration/test_the_cache_saves_bytes.py, tests/fault/test_nothing_is_pulled_twice.py)"
Show = Callable[..., None]


@dataclass(frozen=True)
class Cost:
    """What a piece of work has taken from the store."""

    listings: int
    reads: int
    size_bytes: int


NOTHING_BUT_A_LISTING = Cost(1, 0, 0)


@dataclass
class Shop:
    """One volume with Triton, a store behind a proxy, and adapters that come and go."""

    volume: Path
    cache: Path
    triton: Triton
    s3: S3Server
    proxy: S3Proxy
    config: Path
    stack: ExitStack
    pods: list[Pod] = field(default_factory=list)

    def put(self, path: str, **more: bytes) -> None:
        """A python model with a file of a megabyte; further files by name, with `__` for a slash."""
        files = dict(text_statistics()) | {"1/weights.bin": os.urandom(WEIGHTS)}
        files |= {name.replace("__", "/"): content for name, content in more.items()}
        for name, content in files.items():
            self.s3.put(BUCKET, f"{path}/{name}", content)

    def start(self, *, purge: bool = True, **env: str) -> Mesh:
        """A new adapter process, in place of the one before, which is killed (-9)."""
        for pod in self.pods:
            pod.adapter.kill()
        settings = {"CACHE_MAX_BYTES": "256Mi", "LOADTIME_TIMEOUT": "30000", "CACHE_DIR": str(self.cache)} | env
        pod = self.stack.enter_context(Pod(self.volume, self.config, settings, target=self.triton.grpc_target))
        self.pods.append(pod)
        if purge:
            pod.mesh.start()
        return pod.mesh

    @contextmanager
    def costing(self) -> Iterator[list[Cost]]:
        """What the work inside costs; the list has it afterwards."""
        costs: list[Cost] = []
        requests, size_bytes = len(self.proxy.requests), self.proxy.object_bytes
        yield costs
        made = self.proxy.requests[requests:]
        listings = sum("list-type=" in request for request in made)
        costs.append(Cost(listings, len(made) - listings, self.proxy.object_bytes - size_bytes))

    def metric(self, name: str, **labels: str) -> float:
        """Of the last adapter; 0 where it has no such row."""
        wanted = {f'{key}="{value}"' for key, value in labels.items()}
        for line in get(f"{self.pods[-1].adapter.metrics_url}/metrics")[1].splitlines():
            head, _, value = line.rpartition(" ")
            if head.partition("{")[0] == f"triton_adapter_{name}" and all(label in head for label in wanted):
                return float(value)
        return 0.0

    @property
    def artifacts(self) -> list[Path]:
        """On the disk."""
        return sorted((self.cache / "artifacts").iterdir())

    def held_bytes(self) -> int:
        """Of all files of the adapter's, each inode once."""
        seen: dict[int, int] = {}
        for top in (self.cache, self.volume / "_triton_models"):
            for folder, _, names in os.walk(top):
                for name in names:
                    try:
                        state = Path(folder, name).lstat()
                    except FileNotFoundError:  # meanwhile deleted
                        continue
                    seen[state.st_ino] = state.st_size
        return sum(seen.values())


@pytest.fixture(scope="module")
def triton_rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Triton]]:
    volume = tmp_path_factory.mktemp("cached")
    (volume / "_triton_models").mkdir()
    with Triton(volume / "_triton_models") as triton:
        yield volume, triton


@pytest.fixture
def shop(triton_rig: tuple[Path, Triton], s3: S3Server, tmp_path: Path) -> Iterator[Shop]:
    volume, triton = triton_rig
    cache = volume / tmp_path.name
    with ExitStack() as stack:
        proxy = stack.enter_context(S3Proxy(s3.endpoint_url))
        config = tmp_path / "config"
        config.mkdir()
        given = s3.storage_config() | {"bucket": BUCKET, "endpoint_url": proxy.endpoint_url}
        (config / "s3").write_text(json.dumps(given))
        (config / "other").write_text(json.dumps(given | {"credential_endpoints": "http://elsewhere"}))
        yield Shop(volume, cache, triton, s3, proxy, config, stack)
    shutil.rmtree(cache)


def answers(mesh: Mesh, model_id: str) -> bool:
    return bool((mesh.infer(model_id, TEXT)["COUNTS"] == [[3, 2]]).all())


def refusal(mesh: Mesh, model_id: str, path: str, **key: Any) -> grpc.RpcError:
    with pytest.raises(grpc.RpcError) as refused:
        mesh.load(model_id, "python", path, **key)
    return refused.value


def test_a_model_that_was_here_costs_one_listing(shop: Shop, shown: Show) -> None:
    """Loaded again after an unload, under a second id, after a kill -9 of the adapter, after a purge."""
    shop.put("m")
    mesh = shop.start()
    rows: dict[str, Cost] = {}

    def load(case: str, model_id: str) -> None:
        with shop.costing() as costs:
            mesh.load(model_id, "python", "m")
        assert answers(mesh, model_id)
        (rows[case],) = costs
        shown(TITLE, case=case, listings=costs[0].listings, reads=costs[0].reads, bytes=costs[0].size_bytes)

    load("cold", "a")
    load("again, loaded already", "a")
    load("a second id", "b")
    assert len(shop.artifacts) == 1
    for model_id in ("a", "b"):
        mesh.unload(model_id)
    load("reload after an unload", "a")
    mesh = shop.start(purge=False)
    load("equal load after kill -9 of the adapter", "a")
    mesh.unload("a")
    load("reload after kill -9", "a")
    mesh.start()
    assert mesh.index() == {}
    load("reload after a purge", "a")

    assert rows.pop("cold").size_bytes > WEIGHTS
    assert rows == dict.fromkeys(rows, NOTHING_BUT_A_LISTING)
    assert shop.metric("cache_requests_total", result="hit") == 2
    assert shop.metric("cache_saved_bytes_total") > 2 * WEIGHTS
    held = shop.held_bytes()
    assert WEIGHTS < held < WEIGHTS * 1.2
    assert abs(sum(shop.metric("volume_bytes", kind=kind) for kind in ("placed", "idle", "staging", "trash")) - held) < 32_768


def test_only_what_has_changed_is_pulled(shop: Shop, shown: Show) -> None:
    """One object of two is replaced in the store."""
    shop.put("m", **{"1__more.bin": os.urandom(500_000)})
    mesh = shop.start()
    mesh.load("a", "python", "m")
    shop.s3.put(BUCKET, "m/1/more.bin", os.urandom(400_000))

    with shop.costing() as costs:
        mesh.load("a", "python", "m")

    shown(TITLE, case="one of two objects changed", listings=costs[0].listings, reads=costs[0].reads, bytes=costs[0].size_bytes)
    assert answers(mesh, "a")
    assert (shop.volume / "_triton_models/a/1/more.bin").stat().st_size == 400_000
    assert costs[0].reads == 1
    assert costs[0].size_bytes == 400_000


def test_who_may_list_and_not_read_gets_nothing(shop: Shop) -> None:
    """Another storage key, whose credentials may list the bucket."""
    shop.put("m")
    mesh = shop.start()
    mesh.load("a", "python", "m")
    shop.proxy.next(Fault(status=403, code="AccessDenied"), times=1000, having="/m/")

    assert refusal(mesh, "b", "m", storage_key="other").code() == grpc.StatusCode.PERMISSION_DENIED
    shop.proxy.heal()
    mesh.load("b", "python", "m", storage_key="other")
    assert len(shop.artifacts) == 2, "a storage key has a copy of its own"


def test_nobody_but_us_may_read_what_was_asked(shop: Shop) -> None:
    """Journal and metas are ours alone, and hold no secret."""
    shop.put("m")
    own = json.loads((shop.config / "s3").read_text())
    mesh = shop.start()
    mesh.load("a", "python", "m")
    mesh.load("b", "python", "m", storage_params=own)

    files = [shop.cache / "journal.jsonl", *shop.cache.glob("artifacts/*/meta.json")]
    assert len(files) == 2
    for file in files:
        assert file.stat().st_mode & 0o777 == 0o600
        assert own["secret_access_key"] not in file.read_text()
    first = json.loads((shop.cache / "journal.jsonl").read_text().splitlines()[0])
    assert first["format"] == 1
    assert first["boot_id"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
