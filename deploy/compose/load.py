"""
Loads a model and asks it, as ModelMesh would: one `loadModel` to the adapter, inference straight to Triton.

Runs in the adapter's image (`docker compose run --rm load`), or wherever the adapter is installed.
"""

from __future__ import annotations

import argparse
import json
import math
import struct
import sys
from collections.abc import Sequence
from typing import Any

import grpc

from adapter._pb import model_runtime_pb2 as spi
from adapter._pb import model_runtime_pb2_grpc as spi_rpc
from adapter.stubs import service_pb2 as v2
from adapter.stubs import service_pb2_grpc as v2_rpc

SECONDS = 300
FORMATS = {
    "BOOL": "?", "INT8": "b", "INT16": "h", "INT32": "i", "INT64": "q", "UINT8": "B", "UINT16": "H", "UINT32": "I", "UINT64": "Q",
    "FP16": "e", "FP32": "f", "FP64": "d",
}  # fmt: skip
"""Triton's type → the letter of `struct`. Texts (BYTES) have a length before each."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what is asked, in this order: load, infer, unload. Exit code 1 with one line when it does not work."""
    chosen = _parser().parse_args(arguments)
    model_id = chosen.id or chosen.path.strip("/").replace("/", "-")
    options = [("grpc.enable_http_proxy", 0)]
    try:
        with grpc.insecure_channel(chosen.adapter, options) as adapter, grpc.insecure_channel(chosen.triton, options) as triton:
            runtime, server = spi_rpc.ModelRuntimeStub(adapter), v2_rpc.GRPCInferenceServiceStub(triton)
            if chosen.unload:
                runtime.unloadModel(spi.UnloadModelRequest(modelId=model_id), timeout=SECONDS)
                print(f"{model_id}: unloaded")
                return 0
            key = json.dumps({"storage_key": chosen.storage_key, "model_type": {"name": chosen.type}})
            request = spi.LoadModelRequest(modelId=model_id, modelType=f"mt:{chosen.type}", modelPath=chosen.path, modelKey=key)
            size = runtime.loadModel(request, timeout=SECONDS, wait_for_ready=True).sizeInBytes
            print(f"{model_id}: loaded, {size:,} bytes")
            metadata = server.ModelMetadata(v2.ModelMetadataRequest(name=model_id), timeout=SECONDS)
            for way, tensors in (("in", metadata.inputs), ("out", metadata.outputs)):
                for tensor in tensors:
                    print(f"{way:>5} {tensor.name} {tensor.datatype} {list(tensor.shape)}")
            if chosen.infer:
                answer = server.ModelInfer(_request(model_id, dict(chosen.infer), metadata), timeout=SECONDS)
                for output, raw in zip(answer.outputs, answer.raw_output_contents, strict=True):
                    print(f"{output.name} {list(output.shape)} = {_unpacked(raw, output.datatype)}")
    except grpc.RpcError as error:
        print(f"{error.code().name}: {error.details()}", file=sys.stderr)
        return 1
    except ValueError as error:
        print(str(error), file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="load", description="Load a model from the bucket, and ask it.")
    parser.add_argument("path", help="the model's path in the bucket")
    parser.add_argument("--type", default="", help="onnx, pytorch, python, …; default: what the model's config.pbtxt says")
    parser.add_argument("--id", help="the model's name in Triton; default: its path")
    parser.add_argument("--infer", action="append", type=_named_values, metavar="INPUT=1,2,3", help="ask the model; once for each input")
    parser.add_argument("--unload", action="store_true", help="unload the model instead")
    parser.add_argument("--storage-key", default="laptop", help="entry of the storage config (default: %(default)s)")
    parser.add_argument("--adapter", default="127.0.0.1:8085", help=argparse.SUPPRESS)
    parser.add_argument("--triton", default="127.0.0.1:8001", help=argparse.SUPPRESS)
    return parser


def _named_values(text: str) -> tuple[str, list[str]]:
    name, equals, values = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not INPUT=VALUE,VALUE…")
    return name, values.split(",")


def _request(model_id: str, given: dict[str, list[str]], metadata: Any) -> Any:
    """The values in the shape that the model wants: its last open dimension takes what there is. Raises ValueError."""
    request = v2.ModelInferRequest(model_name=model_id)
    if unknown := set(given) - {tensor.name for tensor in metadata.inputs}:
        raise ValueError(f"{model_id} has no input {', '.join(sorted(unknown))}; it has {', '.join(t.name for t in metadata.inputs)}")
    for tensor in metadata.inputs:
        if values := given.get(tensor.name):
            shape = _shape(list(tensor.shape), len(values), tensor.name)
            request.inputs.add(name=tensor.name, datatype=tensor.datatype, shape=shape)
            request.raw_input_contents.append(_packed(values, tensor.datatype, tensor.name))
    return request


def _shape(wanted: list[int], count: int, name: str) -> list[int]:
    known = math.prod(size for size in wanted if size > 0)
    open_ends = [position for position, size in enumerate(wanted) if size < 0]
    shape = [max(size, 1) for size in wanted]
    if open_ends:
        shape[open_ends[-1]] = count // known
    if math.prod(shape) != count:
        raise ValueError(f"{name} has the shape {wanted}, which {count} values do not fill")
    return shape


def _packed(values: list[str], datatype: str, name: str) -> bytes:
    if datatype == "BYTES":
        return b"".join(struct.pack("<I", len(text)) + text for text in (value.encode() for value in values))
    letter = FORMATS[datatype]
    packed = b""
    for value in values:
        try:
            packed += struct.pack(f"<{letter}", float(value) if letter in "efd" else int(value))
        except (ValueError, struct.error, OverflowError):
            raise ValueError(f"{name}: {value!r} is no {datatype}") from None
    return packed


def _unpacked(raw: bytes, datatype: str) -> list[Any]:
    if datatype != "BYTES":
        return list(struct.unpack(f"<{len(raw) // struct.calcsize(FORMATS[datatype])}{FORMATS[datatype]}", raw))
    texts, at = [], 0
    while at < len(raw):
        (length,) = struct.unpack_from("<I", raw, at)
        texts.append(raw[at + 4 : at + 4 + length].decode(errors="replace"))
        at += 4 + length
    return texts


if __name__ == "__main__":
    sys.exit(main())
