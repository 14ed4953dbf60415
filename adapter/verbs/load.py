"""
The verbs `load` and `unload`: let the running adapter load a model as for ModelMesh, ask the model once, unload it.

The runtime's status is never asked for: that removes every model.
"""

from __future__ import annotations

import asyncio
import json
import math
import shutil
import struct
import sys
import threading
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import grpc
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from adapter._pb import model_runtime_pb2 as pb
from adapter._pb.model_runtime_pb2_grpc import ModelRuntimeStub
from adapter.errors import AdapterError
from adapter.inference import DATATYPES, add_input, joined, split
from adapter.serving import KnownModel
from adapter.settings import read_group
from adapter.settings.process import SpiSettings, TelemetrySettings, TritonSettings
from adapter.stubs import service_pb2
from adapter.telemetry.metrics import PREFIX
from adapter.triton.inference.client import TritonInference
from adapter.units import MIB
from adapter.verbs import probe
from adapter.verbs.tables import shown

METRICS_SECONDS, LOOK_SECONDS = 2.0, 0.5
SIZE_SECONDS = 30.0
"""As ModelMesh. Source: modelmesh `SidecarModelMesh.java` 119."""
BAR_WIDTH, CLEAR_LINE, TRITONS_LOAD = 30, "\r\033[K", "Triton loads it"
MOST_SHOWN = 16
"""Elements of an output."""


def run(chosen: Namespace) -> Iterator[str]:
    """
    What the verb says meanwhile: progress and size of a load, then the answer of one inference where `--infer` asks for it. Blocks.

    Raises:
        AdapterError: the adapter has no SPI; a ModelMesh uses it, or that cannot be told, and it is not forced; the call has failed.
        SettingsError
    """
    endpoint = read_group(SpiSettings).listen
    if endpoint is None:
        raise AdapterError("cannot be asked: ADAPTER_PORT is 0")
    rows = [] if chosen.force else _samples("rpc_seconds_count")
    if rows is None:
        raise AdapterError("METRICS_PORT, which tells whether ModelMesh uses it, does not answer (is it running?); --force goes on without")
    if any(row.value for row in rows if row.labels["method"] == "runtimeStatus"):
        raise AdapterError("ModelMesh uses this adapter and would not learn of it; --force does it all the same")
    if chosen.verb == "load":
        request, given = _request(chosen), dict(_named_values(text) for text in chosen.infer or () if text)
    try:
        with grpc.insecure_channel(endpoint.target, probe.OPTIONS) as channel:
            runtime: Any = ModelRuntimeStub(channel)
            if chosen.verb == "unload":
                runtime.unloadModel(pb.UnloadModelRequest(modelId=chosen.id), timeout=chosen.timeout)
                yield f"{chosen.id}: unloaded\n"
                return
            call, has_ended = runtime.loadModel.future(request, timeout=chosen.timeout, wait_for_ready=True), threading.Event()
            call.add_done_callback(lambda _: has_ended.set())
            yield from _progress(request.modelId, has_ended)
            size_bytes = call.result().sizeInBytes  # 0: it is measured now
            size_bytes = size_bytes or runtime.modelSize(pb.ModelSizeRequest(modelId=request.modelId), timeout=SIZE_SECONDS).sizeInBytes
            yield f"{request.modelId}: loaded, {size_bytes:,} bytes\n"
    except grpc.RpcError as error:
        raise AdapterError(f"{error.code().name}: {error.details()}") from None
    if chosen.infer is not None:
        yield asyncio.run(_infer(request.modelId, given))


def _request(chosen: Namespace) -> pb.LoadModelRequest:
    key: dict[str, Any] = {"model_type": {"name": chosen.type}, "storage_key": chosen.storage_key}
    if chosen.config is not None:
        try:
            fields = json.loads(chosen.config.read_text())
        except (OSError, ValueError) as error:
            raise AdapterError(f"{chosen.config} cannot be used: {error}") from None
        if not isinstance(fields, dict):
            raise AdapterError(f"{chosen.config} must hold a JSON object")
        key["storage_params"] = {name: value if isinstance(value, str) else json.dumps(value) for name, value in fields.items()}
    model_id = chosen.id or chosen.path.strip("/").replace("/", "-")
    return pb.LoadModelRequest(modelId=model_id, modelType=f"mt:{chosen.type}", modelPath=chosen.path, modelKey=json.dumps(key))


def _progress(model_id: str, has_ended: threading.Event) -> Iterator[str]:
    """What the adapter does, on a terminal in one line that changes, elsewhere a line for each step of the pull and for what follows it."""
    is_terminal, last = sys.stdout.isatty(), ""
    while not has_ended.wait(LOOK_SECONDS):
        words = _bar(model_id) or (last and TRITONS_LOAD)
        step = words.partition(" ")[0]
        if is_terminal:
            yield f"{CLEAR_LINE}{words or 'listing'}"
        elif step != last:
            yield f"{words}\n"
        last = step
    yield CLEAR_LINE * is_terminal


def _bar(model_id: str) -> str:
    """How far the pull of the model is; empty where nothing tells."""
    rows = _samples("load_bytes") or ()
    found = {row.labels["kind"]: int(row.value) for row in rows if row.labels["model_id"] == model_id}
    done, expected = found.get("done", 0), found.get("expected", 0)
    if not expected:
        return ""
    words = f" {done / MIB:,.1f} of {expected / MIB:,.1f} MiB"
    width = max(1, min(BAR_WIDTH, shutil.get_terminal_size().columns - len(words) - 1))
    return f"{'#' * (width * min(done, expected) // expected):.<{width}}{words}"


def _samples(name: str) -> list[Sample] | None:
    """Of a metric of the running adapter; None: no answer. Blocks for a bounded time."""
    try:
        _, text = probe.get("127.0.0.1", read_group(TelemetrySettings).metrics_port, "/metrics", METRICS_SECONDS)
        return [row for family in text_string_to_metric_families(text) for row in family.samples if row.name == f"{PREFIX}_{name}"]
    except (OSError, ValueError):
        return None


async def _infer(model_id: str, given: Mapping[str, Sequence[str]]) -> str:
    """The model's inputs and outputs, and what it answers; zeros for inputs that are missing. Raises AdapterError."""
    triton = read_group(TritonSettings)
    client = TritonInference(triton.reach.target, triton.call_headers)
    try:
        info = (await client.model_info(KnownModel(model_id, model_id))).metadata
        names = [tensor.name for tensor in info.inputs]
        if unknown := sorted(given.keys() - set(names)):
            raise AdapterError(f"{model_id} has no input {', '.join(unknown)}; it has {', '.join(names)}")
        request = service_pb2.ModelInferRequest(model_name=model_id)
        for tensor in info.inputs:
            add_input(request, tensor.name, tensor.datatype, *shape_and_data(tensor, given.get(tensor.name)))
        answer = await client.infer(request)
    finally:
        await client.close()
    lines = []
    for way, tensors in (("   in", info.inputs), ("  out", info.outputs)):
        lines += [f"{way} {shown(tensor.name)} {tensor.datatype} {list(tensor.shape)}\n" for tensor in tensors]
    for output, data in zip(answer.outputs, answer.raw_output_contents, strict=True):
        elements = elements_of(data, output.datatype)
        more = f" and {len(elements) - MOST_SHOWN} more" if len(elements) > MOST_SHOWN else ""
        lines.append(f"{shown(output.name)} {list(output.shape)} = {elements[:MOST_SHOWN]}{more}\n")
    return "".join(lines)


def shape_and_data(info: Any, values: Sequence[str] | None) -> tuple[list[int], bytes]:
    """
    The values as an input that has this TensorMetadata. Without values: zeros, or empty texts, with 1 for each open dimension.

    With values, the last open dimension takes what there is. Raises AdapterError: they do not fit.
    """
    shape = [max(size, 1) for size in info.shape]
    if values is None:
        values = ["" if info.datatype == "BYTES" else "0"] * math.prod(shape)
    elif open_ends := [place for place, size in enumerate(info.shape) if size < 0]:
        shape[open_ends[-1]] = len(values) // math.prod(shape)
    if math.prod(shape) != len(values):
        raise AdapterError(f"{info.name} has the shape {list(info.shape)}, which {len(values)} values do not fill")
    if info.datatype == "BYTES":
        return shape, joined(value.encode() for value in values)
    return shape, b"".join(_packed(info, value) for value in values)


def elements_of(raw: bytes, datatype: str) -> list[Any]:
    """Raw form → numbers, or texts."""
    if datatype == "BYTES":
        return [element.decode(errors="replace") for element in split(raw)]
    if datatype == "BF16":  # the upper half of FP32
        raw, datatype = b"".join(b"\0\0" + raw[at : at + 2] for at in range(0, len(raw), 2)), "FP32"
    return [element for (element,) in struct.iter_unpack(f"<{DATATYPES[datatype][0]}", raw)]


def _packed(info: Any, value: str) -> bytes:
    code = "f" if info.datatype == "BF16" else DATATYPES[info.datatype][0]
    try:
        packed = struct.pack(f"<{code}", float(value) if code in "efd" else int(value))
    except (ValueError, struct.error, OverflowError):
        raise AdapterError(f"{info.name}: {value!r} is no {info.datatype}") from None
    return packed[2:] if info.datatype == "BF16" else packed


def _named_values(text: str) -> tuple[str, list[str]]:
    name, equals, values = text.partition("=")
    if not name or not equals:
        raise AdapterError(f"{text!r} is not INPUT=VALUE,VALUE…")
    return name, values.split(",")
