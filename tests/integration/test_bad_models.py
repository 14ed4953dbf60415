"""What cannot work is refused in words, by the adapter as users run it; nothing is left, and Triton lives on."""

from __future__ import annotations

import subprocess
import sys

import grpc
import pytest

from tests.builders import load_request
from tests.integration.bad_models import BAD_MODELS, PYTHON, BadModel, request_of
from tests.integration.conftest import BUCKET, Rig, Start, until_nothing_is_left
from tests.real.adapter import AdapterProcess
from tests.real.children import TOP
from tests.real.mesh import Mesh
from tests.real.s3 import S3Server

COMPLETES_CONFIGS = True


@pytest.fixture(scope="module", autouse=True)
def bucket(s3: S3Server) -> None:
    s3.put_folder(BUCKET, "bad/near-miss-v1", PYTHON)
    for bad in BAD_MODELS:
        s3.put_folder(BUCKET, bad.folder, bad.files)


@pytest.mark.parametrize("bad", BAD_MODELS, ids=lambda bad: bad.name)
def test_a_bad_model_is_refused_in_words(bad: BadModel, mesh: Mesh, rig: Rig, s3: S3Server) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        mesh.runtime.loadModel(request_of(bad), timeout=60)

    text = refused.value.details()
    assert refused.value.code() is grpc.StatusCode[bad.code], text
    assert [word for word in bad.words if word not in text] == [], text
    assert "\n" not in text
    assert s3.secret_key not in text
    until_nothing_is_left(mesh, rig)


def test_storage_that_is_away_is_asked_until_the_budget_ends(start_adapter: Start, rig: Rig) -> None:
    """And the answer comes within the timeout that ModelMesh was told, with the cause."""
    away = {"storage_params": {"endpoint_url": "http://127.0.0.1:9"}}
    with Mesh(start_adapter(LOADTIME_TIMEOUT="6000").channel_target, rig.triton_target) as mesh:
        mesh.start()
        with pytest.raises(grpc.RpcError) as refused:
            mesh.runtime.loadModel(load_request("bad", "python", "m", **away), timeout=6)

        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE, refused.value.details()
        assert "127.0.0.1:9" in refused.value.details()
        until_nothing_is_left(mesh, rig)


@pytest.mark.long
def test_the_sanity_suite_holds_on_the_running_adapter(adapter: AdapterProcess, mesh: Mesh, s3: S3Server) -> None:
    """The SPI suite that anybody can point at an endpoint, with nothing skipped."""
    s3.put_folder(BUCKET, "sane", PYTHON)
    options = {
        "--spi-endpoint": adapter.channel_target,
        "--spi-model-path": "sane",
        "--spi-model-type": "mt:python",
        "--spi-model-key": '{"storage_key": "s3", "model_type": "python"}',
    }
    words = [f"{name}={value}" for name, value in options.items()]
    suite = subprocess.run(
        [sys.executable, "-m", "pytest", "tests/contract/spi", "--purge", "-q", "-p", "no:cacheprovider", *words],
        cwd=TOP, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert suite.returncode == 0, suite.stdout[-3000:]
    assert "skipped" not in suite.stdout.splitlines()[-1]
