"""ModelMesh as a V2 server: a header names the model of every call, and what is asked of no model is not asked."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from adapter.errors import StartError
from adapter.inference import Failure, InferenceFailed
from adapter.serving import KnownModel
from adapter.triton.inference.channels import pinned
from adapter.triton.inference.client import BINARY_HEADER, HEADER, MeshInference, TritonInference
from tests.contract.inference.rig import all_of, of, texts
from tests.fakes.v2_server import V2Server
from tests.real.certificates import make_certificates
from tests.real.ports import free_ports


@pytest.fixture
async def mesh(server: V2Server) -> AsyncIterator[MeshInference]:
    client = MeshInference(server.target)
    yield client
    await client.close()


@pytest.mark.parametrize(("name", "header"), [("m-1_x.y", (HEADER, "m-1_x.y")), ("é n", (BINARY_HEADER, "é n".encode()))])
async def test_each_call_about_a_model_names_it(server: V2Server, mesh: MeshInference, name: str, header: tuple[str, str | bytes]) -> None:
    await mesh.infer(of(name, texts("x", "y")))
    await mesh.model_info(KnownModel(name, name))
    await mesh.is_model_ready(name)
    with pytest.raises(InferenceFailed):
        await all_of(mesh, of(name, texts("x", "y")))
    assert len(server.metadata) == 5  # metadata and config are two
    assert all(found.get(header[0]) == header[1] for found in server.metadata)


async def test_a_triton_is_told_nothing_of_the_kind(server: V2Server, asked: TritonInference) -> None:
    await asked.infer(of("m", texts("x", "y")))
    assert not {HEADER, BINARY_HEADER} & server.metadata[0].keys()


async def test_a_runtime_without_configs_tells_its_metadata(server: V2Server, mesh: MeshInference) -> None:
    """As MLServer behind ModelMesh; a request for the config is told that there is none."""
    server.has_configs = False
    info = await mesh.model_info(KnownModel("m", "m"))
    assert (info.metadata.name, info.is_decoupled) == ("m", False)
    with pytest.raises(InferenceFailed) as failed:
        await mesh.model_config("m")
    assert failed.value.failure is Failure.UNSUPPORTED
    server.failure = (grpc.StatusCode.NOT_FOUND, "no such model")
    with pytest.raises(InferenceFailed, match="no such model"):
        await mesh.model_info(KnownModel("other", "other"))


async def test_it_is_live_while_it_answers_whatever_it_says(mesh: MeshInference) -> None:
    assert await mesh.is_live()
    assert await mesh.is_ready()
    assert (await mesh.server_info()).name == "modelmesh"
    (port,) = free_ports(1)
    absent = MeshInference(f"127.0.0.1:{port}")
    assert not await absent.is_live()
    await absent.close()
    with socket.create_server(("127.0.0.1", 0)) as hung:  # accepts, and says nothing
        silent = MeshInference(f"127.0.0.1:{hung.getsockname()[1]}")
        assert not await silent.is_live()
        await silent.close()


async def test_the_pods_own_certificate_is_the_one_that_is_trusted(tmp_path: Path) -> None:
    """Its signer does not matter; another certificate of the same signer is another server."""
    for pod in ("this", "other"):
        (tmp_path / pod).mkdir()
        make_certificates(tmp_path / pod)
    this = tmp_path / "this"
    (this / "both.pem").write_bytes((this / "server.pem").read_bytes() + (this / "ca.pem").read_bytes())
    for certificate, folder, is_trusted in (("server.pem", "this", True), ("both.pem", "this", True), ("server.pem", "other", False)):
        async with V2Server(certificates=this) as server:
            client = MeshInference(server.target, tls=pinned(tmp_path / folder / certificate, tmp_path / folder / "server.key"))
            assert await client.is_live() is is_trusted
            await client.close()


def test_files_of_a_certificate_that_cannot_be_used_end_the_start(tmp_path: Path) -> None:
    make_certificates(tmp_path)
    (tmp_path / "other").mkdir()
    make_certificates(tmp_path / "other")
    (tmp_path / "empty").write_bytes(b"")
    for certificate, key, words in (
        ("absent", "server.key", "no such file"),
        ("empty", "server.key", "cannot be used"),
        ("server.pem", "other/server.key", "mismatch"),
        ("server.pem", "empty", "cannot be used"),
    ):
        with pytest.raises(StartError, match="MM_TLS_KEY_CERT_PATH") as failed:
            pinned(tmp_path / certificate, tmp_path / key)
        assert words in str(failed.value)
