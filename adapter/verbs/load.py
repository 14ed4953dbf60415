"""The verbs `load` and `unload`: let the running adapter load a model as for ModelMesh, ask the model once, unload it."""

from __future__ import annotations

import asyncio
import http.client
import json
import math
import struct
import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from adapter.inference import DATATYPES, InferenceFailed, add_input, joined, split
from adapter.serving import KnownModel
from adapter.settings import read_group
from adapter.settings.process import SpiSettings, TelemetrySettings, TritonSettings
from adapter.spi import calls
from adapter.stubs import service_pb2
from adapter.telemetry import asking
from adapter.telemetry.metrics import PREFIX
from adapter.triton.inference.client import TritonInference
from adapter.units import MIB

METRICS_SECONDS = 2.0
BAR_WIDTH, CLEAR_LINE, TRITONS_LOAD = 30, "\r\033[K", "Triton loads it"
MOST_SHOWN = 16
"""Elements of an output."""


class NotDoneError(Exception):
    """What was asked for did not work, or is refused; one line."""


def run(chosen: Namespace) -> Iterator[str]:
    """
    What the verb says meanwhile: progress and size of a load, then the answer of one inference where `--infer` asks for it. Blocks.

    Raises:
        NotDoneError: the adapter has no SPI; a ModelMesh uses it, or that cannot be told, and it is not forced; the call has failed.
        SettingsError
    """
    endpoint = read_group(SpiSettings).listen
    if endpoint is None:
        raise NotDoneError("cannot be asked: ADAPTER_PORT is 0")
    rows = [] if chosen.force else _metrics()
    if rows is None:
        raise NotDoneError("METRICS_PORT, which tells whether ModelMesh uses it, does not answer (is it running?); --force goes on without")
    if any(row.value for row in rows if row.name == f"{PREFIX}_rpc_seconds_count" and row.labels["method"] == "runtimeStatus"):
        raise NotDoneError("ModelMesh uses this adapter and would not learn of it; --force does it all the same")
    try:
        if chosen.verb == "unload":
            calls.unload(endpoint, chosen.id, seconds=chosen.timeout)
            yield f"{chosen.id}: unloaded\n"
            return
        key: dict[str, Any] = {} if chosen.storage_key is None else {"storage_key": chosen.storage_key}
        if chosen.config is not None:
            key["storage_params"] = _parameters(chosen.config)
        model_id = chosen.id or chosen.path.strip("/").replace("/", "-")
        yield from _progress(model_id, calls.load(endpoint, model_id, chosen.path, type_name=chosen.type, key=key, seconds=chosen.timeout))
        if chosen.infer is not None:
            yield asyncio.run(_infer(model_id, dict(_named_values(text) for text in chosen.infer if text)))
    except (calls.CallFailedError, InferenceFailed) as failed:
        raise NotDoneError(str(failed)) from None


def _progress(model_id: str, sizes: Iterator[int | None]) -> Iterator[str]:
    """What the adapter does, on a terminal in one line that changes, elsewhere a line for each step of the pull and for what follows it."""
    is_terminal, shown = sys.stdout.isatty(), ""
    for size in sizes:
        words = _bar(model_id) or (TRITONS_LOAD if shown else "listing")
        step = words.partition(" ")[0]
        if size is None and is_terminal:
            yield f"{CLEAR_LINE}{words}"
        elif size is None and step not in (shown, "listing"):
            yield f"{words}\n"
        shown = shown if step == "listing" else step
    yield f"{CLEAR_LINE if is_terminal else ''}{model_id}: loaded, {size:,} bytes\n"


def _bar(model_id: str) -> str:
    """How far the pull of the model is; empty where nothing tells."""
    rows = [row for row in _metrics() or () if row.name == f"{PREFIX}_load_bytes" and row.labels["model_id"] == model_id]
    found = {row.labels["kind"]: int(row.value) for row in rows}
    done, expected = found.get("done", 0), found.get("expected", 0)
    if not expected:
        return ""
    filled = BAR_WIDTH * min(done, expected) // expected
    return f"{'#' * filled}{'.' * (BAR_WIDTH - filled)} {done / MIB:,.1f} of {expected / MIB:,.1f} MiB"


def _metrics() -> list[Sample] | None:
    """Of the running adapter; None: no answer. Blocks for a bounded time."""
    try:
        _, text = asking.get("127.0.0.1", read_group(TelemetrySettings).metrics_port, "/metrics", METRICS_SECONDS)
        return [row for family in text_string_to_metric_families(text) for row in family.samples]
    except (OSError, ValueError, http.client.HTTPException):
        return None


async def _infer(model_id: str, given: Mapping[str, Sequence[str]]) -> str:
    """The model's inputs and outputs, and what it answers; zeros for inputs that are missing. Raises NotDoneError, InferenceFailed."""
    triton = read_group(TritonSettings)
    client = TritonInference(triton.target, triton.call_headers)
    try:
        info = (await client.model_info(KnownModel(model_id, model_id))).metadata
        names = [tensor.name for tensor in info.inputs]
        if unknown := sorted(given.keys() - set(names)):
            raise NotDoneError(f"{model_id} has no input {', '.join(unknown)}; it has {', '.join(names)}")
        request = service_pb2.ModelInferRequest(model_name=model_id)
        for tensor in info.inputs:
            add_input(request, tensor.name, tensor.datatype, *shape_and_data(tensor, given.get(tensor.name)))
        answer = await client.infer(request)
    finally:
        await client.close()
    ways = [*(("in", tensor) for tensor in info.inputs), *(("out", tensor) for tensor in info.outputs)]
    lines = [f"{way:>5} {tensor.name} {tensor.datatype} {list(tensor.shape)}\n" for way, tensor in ways]
    for output, data in zip(answer.outputs, answer.raw_output_contents, strict=True):
        elements = elements_of(data, output.datatype)
        more = f" and {len(elements) - MOST_SHOWN} more" if len(elements) > MOST_SHOWN else ""
        lines.append(f"{output.name} {list(output.shape)} = {elements[:MOST_SHOWN]}{more}\n")
    return "".join(lines)


def shape_and_data(info: Any, values: Sequence[str] | None) -> tuple[list[int], bytes]:
    """
    The values as an input that has this TensorMetadata. Without values: zeros, or empty texts, with 1 for each open dimension.

    With values, the last open dimension takes what there is. Raises NotDoneError: they do not fit.
    """
    shape = [max(size, 1) for size in info.shape]
    if values is None:
        values = ["" if info.datatype == "BYTES" else "0"] * math.prod(shape)
    elif open_ends := [place for place, size in enumerate(info.shape) if size < 0]:
        shape[open_ends[-1]] = len(values) // math.prod(shape)
    if math.prod(shape) != len(values):
        raise NotDoneError(f"{info.name} has the shape {list(info.shape)}, which {len(values)} values do not fill")
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
        raise NotDoneError(f"{info.name}: {value!r} is no {info.datatype}") from None
    return packed[2:] if info.datatype == "BF16" else packed


def _named_values(text: str) -> tuple[str, list[str]]:
    name, equals, values = text.partition("=")
    if not name or not equals:
        raise NotDoneError(f"{text!r} is not INPUT=VALUE,VALUE…")
    return name, values.split(",")


def _parameters(config: Path) -> dict[str, str]:
    try:
        fields = json.loads(config.read_text())
    except (OSError, ValueError) as error:
        raise NotDoneError(f"{config} cannot be used: {error}") from None
    if not isinstance(fields, dict):
        raise NotDoneError(f"{config} must hold a JSON object")
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in fields.items()}
