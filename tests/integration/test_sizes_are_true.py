"""Sizes, as ModelMesh hears of them: only what is served counts, and a prediction is quick whatever lies in storage."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest

from tests.integration.conftest import BUCKET, TEXT, Put, Rig, Start
from tests.real.mesh import Mesh
from tests.real.models import text_statistics
from tests.real.polls import until
from tests.real.s3 import S3Server

MODELMESH_SECONDS = 0.5
"""How long ModelMesh waits for a prediction."""
DEFAULT_BYTES = 1_000_000
WAYS = 5
"""So often each is asked; the quickest counts, for other tests may have the processor."""
MANY = 50_000
MIB = 1 << 20
SMALL = {"CONTAINER_MEM_REQ_BYTES": "272MiB", "MEM_BUFFER_BYTES": "256MiB"}
"""A capacity of 16 MiB."""


@pytest.fixture
def small(start_adapter: Start, rig: Rig) -> Iterator[Mesh]:
    """ModelMesh after its start, with an adapter that has a capacity of 16 MiB."""
    with Mesh(start_adapter(**SMALL).channel_target, rig.triton_target) as mesh:
        mesh.start()
        yield mesh


def version_of_2_mib(files: dict[str, bytes], number: int) -> dict[str, bytes]:
    """The model's version 1, as another one with weights beside it."""
    moved = {path.replace("1/", f"{number}/", 1): content for path, content in files.items() if path.startswith("1/")}
    return moved | {f"{number}/weights.bin": bytes(2 * MIB)}


def of_files(mesh: Mesh, model_id: str, path: str) -> int | None:
    """A prediction, unless the store was slower than one may be: then it is the default."""
    predicted = mesh.predict(model_id, "python", path)
    return None if predicted == DEFAULT_BYTES else predicted


def test_ten_versions_are_no_ten_models(small: Mesh, put: Put) -> None:
    """20 MiB of files in a capacity of 16 MiB: one version is served, so the model is predicted as that, fits, and answers."""
    files = dict(text_statistics())
    versions = {path: content for number in range(1, 11) for path, content in version_of_2_mib(files, number).items()}
    put("ten-versions", {"config.pbtxt": files["config.pbtxt"]} | versions)

    predicted = until(lambda: of_files(small, "v", "ten-versions"), "a listing in the time of a prediction")
    loaded = small.load("v", "python", "ten-versions").sizeInBytes

    assert 2 * MIB < loaded == predicted < 3 * MIB
    assert small.infer("v", TEXT)["COUNTS"].tolist() == [[3, 2]]


def test_versions_that_are_all_served_all_count(small: Mesh, put: Put) -> None:
    """The config says so, and is read for that: predicted small, and refused by the load with the arithmetic."""
    files = dict(text_statistics())
    versions = {path: content for number in range(1, 11) for path, content in version_of_2_mib(files, number).items()}
    put("all-versions", {"config.pbtxt": files["config.pbtxt"] + b"\nversion_policy: { all { } }\n"} | versions)

    until(lambda: of_files(small, "v", "all-versions") == 16 * 1024, "a listing, and the config, in the time of a prediction")
    with pytest.raises(grpc.RpcError) as refused:
        small.load("v", "python", "all-versions")
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "20 MiB" in refused.value.details() and "less ModelMesh's reserve for unloads" in refused.value.details()


def test_a_changed_model_is_not_predicted_by_what_was_measured(mesh: Mesh, put: Put) -> None:
    files = dict(text_statistics())
    put("grows", files | {"1/weights.bin": bytes(MIB)})
    assert mesh.load("g", "python", "grows").sizeInBytes == mesh.predict("g", "python", "grows")

    put("grows", {"1/weights.bin": bytes(4 * MIB)})
    predicted = until(lambda: (size := mesh.predict("g", "python", "grows")) > 5 * MIB and size, "a listing in the time of a prediction")
    mesh.unload("g")

    assert predicted == mesh.load("g", "python", "grows").sizeInBytes


def fill(folder: Path) -> None:
    """A python model of many files."""
    for path, content in dict(text_statistics()).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    parts = folder / "1" / "parts"
    parts.mkdir()
    for number in range(MANY):
        os.close(os.open(parts / f"part-{number:05}", os.O_CREAT | os.O_WRONLY))


@pytest.mark.long
@pytest.mark.parametrize("where", ["a bucket", "a claim"])
def test_a_prediction_of_50_000_files_is_in_time(
    where: str, start_adapter: Start, rig: Rig, s3: S3Server, tmp_path: Path, shown: Callable[..., None]
) -> None:
    """The deadline holds over listing, reading and planning; others are answered meanwhile. Writing the files takes most of the time."""
    fill(s3.root / BUCKET / "many" if where == "a bucket" else tmp_path / "claim" / "many")
    key = {} if where == "a bucket" else {"storage_params": {"type": "pvc", "name": "claim"}}
    with Mesh(start_adapter(PVC_MOUNTS_DIR=str(tmp_path)).channel_target, rig.triton_target) as mesh:
        mesh.start()
        seconds: list[float] = []

        def is_in_time() -> bool:
            begun = time.monotonic()
            assert mesh.predict("many", "python", "many", **key) >= 8193
            seconds.append(time.monotonic() - begun)
            assert mesh.predict("none", "python", "there-is-nothing") == 1_000_000
            return len(seconds) >= WAYS and min(seconds) < MODELMESH_SECONDS

        until(is_in_time, "a prediction in the time that ModelMesh waits")
    shown("predictions of 50,000 files, seconds over the SPI", where=where, least=round(min(seconds), 3), most=round(max(seconds), 3))
