"""The adapter under a uid that no passwd knows, without HOME, with any umask, where nothing but the volume can be written."""

from __future__ import annotations

import json
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.integration.conftest import BUCKET, TEXT, Put, Rig, get, until_nothing_is_left
from tests.real.adapter import AdapterProcess
from tests.real.anybody import UID, UNSET, as_anybody, check_permitted
from tests.real.mesh import Mesh
from tests.real.models import affine, text_statistics
from tests.real.s3 import S3Server
from tests.real.triton import Triton


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that everybody can enter; pytest's own are root's."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def volume(place: Path) -> Path:
    """As an emptyDir is: anybody may write there."""
    folder = place / "volume"
    folder.mkdir()
    folder.chmod(0o777)
    return folder


@pytest.fixture
def config(place: Path, s3: S3Server) -> Path:
    """As a secret is mounted: anybody may read it, nobody may write there."""
    folder = place / "storage-config"
    folder.mkdir()
    (folder / "s3").write_text(json.dumps(s3.storage_config() | {"bucket": BUCKET}))
    for path, mode in ((folder / "s3", 0o444), (folder, 0o555)):
        path.chmod(mode)
    return folder


@pytest.mark.parametrize("umask", [pytest.param("077", marks=pytest.mark.long), "000"])
def test_any_user_on_a_read_only_root_loads_serves_and_leaves_nothing(volume: Path, config: Path, put: Put, umask: str) -> None:
    """From S3, files and an archive, for a Triton of root's, which reads whatever the umask is, and writes beside the code."""
    check_permitted(volume, read_only=True)
    put("texts", dict(text_statistics()))
    put("large", {**affine(2, 1), "1/weights.bin": bytes(3 << 20)})
    with (
        Triton(volume / "_triton_models") as triton,
        AdapterProcess(
            volume=volume,
            storage_config=config,
            triton_target=triton.grpc_target,
            env={},
            wrapper=as_anybody(volume, umask, read_only=True),
            wait=False,
        ) as adapter,
    ):
        (volume / "_triton_models").chmod(0o777)
        adapter.start()
        assert_is_anybody_in_a_closed_place(adapter)
        with Mesh(adapter.channel_target, triton.grpc_target) as mesh:
            mesh.start()
            mesh.load("t", "python", "texts")
            mesh.load("l", "python", "large")
            assert (mesh.infer("t", TEXT)["COUNTS"] == [[3, 2]]).all()
            assert (mesh.infer("l", {"X": np.array([3], dtype=np.float32)})["Y"] == [7]).all()
            placed = [path for path in (volume / "_triton_models" / "t").rglob("*") if path.lstat().st_uid == UID]
            modes = {(path.is_dir(), stat.S_IMODE(path.lstat().st_mode)) for path in placed}
            assert modes == {(True, 0o755), (False, 0o644)}
            assert get(f"{adapter.metrics_url}/readyz")[0] == 200
            mesh.unload("t")
            mesh.unload("l")
            until_nothing_is_left(mesh, Rig(triton.grpc_target, volume))
        said = adapter.log_text()

    assert all(word not in said for word in ("Traceback", "Read-only", "Permission denied", "KeyError", "HOME"))


def assert_is_anybody_in_a_closed_place(adapter: AdapterProcess) -> None:
    """The process itself says so."""
    status = Path(f"/proc/{adapter.pid}/status").read_text()
    assert f"Uid:\t{UID}\t{UID}" in status
    assert "CapEff:\t0000000000000000" in status
    names = {entry.partition(b"=")[0] for entry in Path(f"/proc/{adapter.pid}/environ").read_bytes().split(b"\0")}
    assert not names & {name.encode() for name in UNSET}
    root = next(line for line in Path(f"/proc/{adapter.pid}/mounts").read_text().splitlines() if line.split()[1] == "/")
    assert "ro" in root.split()[3].split(",") or "/ / ro" in Path(f"/proc/{adapter.pid}/mountinfo").read_text()
