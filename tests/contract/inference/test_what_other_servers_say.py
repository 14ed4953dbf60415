"""What no Triton says, and other V2 servers may: typed contents, answers that contradict themselves, TLS, limits, headers."""

from __future__ import annotations

import math
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from adapter.inference import Failure, InferenceFailed, is_final, parameters_of
from adapter.serving import KnownModel
from adapter.stubs import service_pb2 as pb
from adapter.telemetry.redaction import redact
from adapter.triton.inference.channels import Tls
from adapter.triton.inference.client import TritonInference
from tests.contract.inference.rig import all_of, of, texts, wait, words
from tests.fakes.v2_server import V2Server
from tests.messages import tensors_of
from tests.real.certificates import make_certificates

TYPED: list[tuple[str, str, list[Any], str]] = [
    ("BOOL", "bool_contents", [True, False], "?"),
    ("INT8", "int_contents", [-128, 127], "b"),
    ("INT16", "int_contents", [-(2**15), 2**15 - 1], "h"),
    ("INT32", "int_contents", [-(2**31), 2**31 - 1], "i"),
    ("INT64", "int64_contents", [-(2**63), 2**63 - 1], "q"),
    ("UINT8", "uint_contents", [0, 255], "B"),
    ("UINT16", "uint_contents", [0, 2**16 - 1], "H"),
    ("UINT32", "uint_contents", [0, 2**32 - 1], "I"),
    ("UINT64", "uint64_contents", [0, 2**64 - 1], "Q"),
    ("FP32", "fp32_contents", [0.5, math.inf], "f"),
    ("FP64", "fp64_contents", [0.1, -math.inf], "d"),
]


@pytest.mark.parametrize(("datatype", "field", "values", "code"), TYPED)
async def test_typed_contents(server: V2Server, asked: TritonInference, datatype: str, field: str, values: list[Any], code: str) -> None:
    output = server.reply.outputs.add(name="y", datatype=datatype, shape=[2])
    getattr(output.contents, field).extend(values)
    (tensor,) = tensors_of(await asked.infer(wait(0)))
    assert (tensor.name, tensor.datatype, tuple(tensor.shape)) == ("y", datatype, (2,))
    assert tensor.data == struct.pack(f"<2{code}", *values)


async def test_typed_texts(server: V2Server, asked: TritonInference) -> None:
    output = server.reply.outputs.add(name="y", datatype="BYTES", shape=[3])
    output.contents.bytes_contents.extend([b"", "é".encode(), b"a\0b"])
    assert words(await asked.infer(wait(0)), "y") == ["", "é", "a\0b"]


async def test_raw_contents_and_parameters(server: V2Server, asked: TritonInference) -> None:
    server.reply.model_name, server.reply.id = "m", "i"
    for name, data in (("a", b"\1"), ("b", b"")):
        server.reply.outputs.add(name=name, datatype="UINT8", shape=[len(data)])
        server.reply.raw_output_contents.append(data)
    kinds: dict[str, tuple[str, Any]] = {
        "t": ("bool_param", True),
        "i": ("int64_param", -5),
        "u": ("uint64_param", 2**64 - 1),
        "d": ("double_param", 0.1),
        "s": ("string_param", "x"),
    }
    for name, (field, value) in kinds.items():
        setattr(server.reply.parameters[name], field, value)
    server.reply.outputs[0].parameters["q"].double_param = 0.5
    server.reply.parameters["unset"].SetInParent()
    answer = await asked.infer(wait(0))
    assert [tensor.data for tensor in tensors_of(answer)] == [b"\1", b""]
    assert parameters_of(answer) == {name: value for name, (_, value) in kinds.items()}
    assert parameters_of(answer.outputs[0]) == {"q": 0.5}


async def test_parameters_are_sent_as_what_they_are(server: V2Server, asked: TritonInference) -> None:
    await asked.infer(of("m", parameters={"t": False, "i": 7, "u": 2**63, "priority": 2**63, "huge": 2**70, "d": 1.0, "s": "1"}))
    (request,) = server.requests
    assert {name: value.WhichOneof("parameter_choice") for name, value in request.parameters.items()} == {
        "t": "bool_param",
        "i": "int64_param",
        "u": "double_param",
        "priority": "uint64_param",
        "huge": "double_param",
        "d": "double_param",
        "s": "string_param",
    }


async def _fails(asked: TritonInference) -> InferenceFailed:
    with pytest.raises(InferenceFailed) as failed:
        await asked.infer(wait(0))
    return failed.value


async def test_answers_that_contradict_themselves(server: V2Server, asked: TritonInference) -> None:
    output = server.reply.outputs.add(name="y", datatype="INT8", shape=[1])
    output.contents.int_contents.append(128)
    assert (await _fails(asked)).failure is Failure.INTERNAL
    server.reply.outputs.add(name="z", datatype="INT8", shape=[1])
    server.reply.raw_output_contents.append(b"\1")
    failed = await _fails(asked)
    assert (failed.failure, failed.text) == (Failure.INTERNAL, "the inference server's answer has 2 outputs and 1 contents")


async def test_a_stream_that_ends_too_soon(server: V2Server, asked: TritonInference) -> None:
    server.answers = [pb.ModelStreamInferResponse(infer_response=pb.ModelInferResponse(model_name="m"))]
    found: list[Any] = []
    with pytest.raises(InferenceFailed, match=r"^the stream ended before its last answer$"):
        async for answer in asked.stream(wait(0)):
            found.append(answer)  # noqa: PERF401 - those before the failure count
    assert len(found) == 1


MEANINGS = [
    (grpc.StatusCode.INVALID_ARGUMENT, Failure.INVALID),
    (grpc.StatusCode.FAILED_PRECONDITION, Failure.INVALID),
    (grpc.StatusCode.NOT_FOUND, Failure.NOT_FOUND),
    (grpc.StatusCode.UNAVAILABLE, Failure.UNAVAILABLE),
    (grpc.StatusCode.RESOURCE_EXHAUSTED, Failure.UNAVAILABLE),
    (grpc.StatusCode.UNIMPLEMENTED, Failure.UNSUPPORTED),
    (grpc.StatusCode.PERMISSION_DENIED, Failure.DENIED),
    (grpc.StatusCode.CANCELLED, Failure.TIMEOUT),
    (grpc.StatusCode.DEADLINE_EXCEEDED, Failure.TIMEOUT),
    (grpc.StatusCode.UNKNOWN, Failure.INTERNAL),
]


@pytest.mark.parametrize(("code", "failure"), MEANINGS)
async def test_every_status_has_a_meaning(server: V2Server, asked: TritonInference, code: grpc.StatusCode, failure: Failure) -> None:
    """CANCELLED by the server is no cancel of the caller, though grpc.aio has one exception for both."""
    server.failure = (code, "[request id: i] Internal: words\n  of two lines; password=hunter22")
    for asking in (asked.infer(wait(0, id="i")), all_of(asked, wait(0, id="i"))):
        with pytest.raises(InferenceFailed) as failed:
            await asking
        assert failed.value.failure is failure
        assert failed.value.text == "words of two lines; password=***"


async def test_headers_go_with_each_call_and_are_secrets(server: V2Server, asked: TritonInference) -> None:
    await asked.infer(wait(0))
    await asked.model_info(KnownModel("m", "m"))
    server.answers = [pb.ModelStreamInferResponse()]
    with pytest.raises(InferenceFailed):
        await all_of(asked, wait(0))
    assert [found["mm-key"] for found in server.metadata] == ["a-secret-value"] * 4
    assert redact("the value is a-secret-value") == "the value is ***"
    assert not any("triton_grpc_error" in found for found in server.metadata), "Triton 2.51 dies of it"


async def test_messages_above_the_limit_are_the_callers_mistake(server: V2Server) -> None:
    client = TritonInference(server.target, max_message_bytes=100_000)
    with pytest.raises(InferenceFailed, match="larger than max") as failed:
        await client.infer(of("m", texts("x", "y" * 200_000)))
    assert failed.value.failure is Failure.INVALID
    server.reply.outputs.add(name="y", datatype="UINT8", shape=[200_000])
    server.reply.raw_output_contents.append(bytes(200_000))
    with pytest.raises(InferenceFailed, match="larger than max"):
        await client.infer(wait(0))
    del server.reply.outputs[:], server.reply.raw_output_contents[:]
    assert is_final(await client.infer(wait(0)))
    await client.close()


async def test_tls(tmp_path: Path) -> None:
    made = make_certificates(tmp_path)
    ca, client_key, client_certificate = (text.encode() for text in (made.ca_pem, made.client_key, made.client_certificate))
    own = Tls(ca=ca, certificate=client_certificate, key=client_key)
    async with V2Server(certificates=tmp_path) as server:
        for tls, is_trusted in (
            (own, True),
            (replace(own, server_name="localhost"), True),
            (replace(own, server_name="another"), False),  # the certificate is not that host's
            (replace(own, ca=None), False),  # its signer is not trusted
            (Tls(ca=ca), False),  # the server asks for a certificate
            (None, False),
        ):
            client = TritonInference(server.target, tls=tls)
            if is_trusted:
                assert is_final(await client.infer(wait(0)))
            else:
                assert (await _fails(client)).failure is Failure.UNAVAILABLE
            await client.close()
