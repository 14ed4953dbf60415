"""The verbs `load` and `unload`: let the running adapter load a model as for ModelMesh, ask the model once, unload it."""

from __future__ import annotations

import asyncio
import http.client
import json
import math
import struct
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from adapter.inference import DATATYPES, InferenceFailed, add_input, joined, split
from adapter.settings import read_group
from adapter.settings.process import SpiSettings, TelemetrySettings
from adapter.settings.triton import TritonSettings
from adapter.spi import calls
from adapter.stubs import service_pb2
from adapter.telemetry.metrics import PREFIX
from adapter.triton.inference.client import TritonInference
from adapter.units import MIB, Endpoint

METRICS_SECONDS = 2.0
BAR_WIDTH, LINE_WIDTH = 30, 79
MOST_SHOWN = 16
"""Elements of an output."""
Say = Callable[[str], None]


class NotDoneError(Exception):
    """What was asked for did not work, or is refused; one line."""


@dataclass(frozen=True)
class Adapter:
    """The running adapter, by the settings of `serve`."""

    endpoint: Endpoint
    metrics_port: int

    @classmethod
    def from_env(cls, *, is_forced: bool) -> Adapter:
        """Raises NotDoneError: it has no SPI; a ModelMesh uses it, or that cannot be told, and it is not forced. Raises SettingsError."""
        endpoint = read_group(SpiSettings).listen
        if endpoint is None:
            raise NotDoneError("cannot be asked: ADAPTER_PORT is 0")
        adapter = cls(endpoint, read_group(TelemetrySettings).metrics_port)
        rows = {} if is_forced else adapter.metrics()
        if rows is None:
            raise NotDoneError("METRICS_PORT, which tells whether ModelMesh uses this adapter, does not answer; --force goes on without")
        if any(value for labels, value in rows.get("rpc_seconds_count", []) if labels["method"] == "runtimeStatus"):
            raise NotDoneError("ModelMesh uses this adapter and would not learn of it; --force does it all the same")
        return adapter

    def metrics(self) -> dict[str, list[tuple[Mapping[str, str], float]]] | None:
        """Name without prefix → labels and value of each series; None: no answer. Blocks for a bounded time."""
        found: dict[str, list[tuple[Mapping[str, str], float]]] = {}
        try:
            with closing(http.client.HTTPConnection("127.0.0.1", self.metrics_port, timeout=METRICS_SECONDS)) as connection:
                connection.request("GET", "/metrics")
                text = connection.getresponse().read().decode()
            for family in text_string_to_metric_families(text):
                for row in family.samples:
                    found.setdefault(row.name.removeprefix(f"{PREFIX}_"), []).append((row.labels, row.value))
        except (OSError, ValueError, http.client.HTTPException):
            return None
        return found

    def progress(self, model_id: str) -> str:
        """How far the pull of the model is; empty where nothing tells."""
        rows = (self.metrics() or {}).get("load_bytes", [])
        found = {labels["kind"]: int(value) for labels, value in rows if labels["model_id"] == model_id}
        done, expected = found.get("done", 0), found.get("expected", 0)
        if not expected:
            return ""
        filled = BAR_WIDTH * min(done, expected) // expected
        return f"{'#' * filled}{'.' * (BAR_WIDTH - filled)} {done / MIB:,.1f} of {expected / MIB:,.1f} MiB"


def load(
    adapter: Adapter,
    path: str,
    model_id: str,
    *,
    type_name: str,
    storage_key: str | None,
    config: Path | None,
    seconds: float,
    say: Say,
) -> None:
    """
    Load a model; print its progress and size. Blocks.

    Args:
        adapter: that loads it.
        path: in the storage.
        model_id: of the model in Triton.
        type_name: empty: what the model's config.pbtxt says.
        storage_key: entry of the storage config.
        config: file with a JSON object: what the request itself says of the storage.
        seconds: the longest time.
        say: prints a text.

    Raises:
        NotDoneError
    """
    key: dict[str, Any] = {} if storage_key is None else {"storage_key": storage_key}
    if config is not None:
        key["storage_params"] = _parameters(config)
    is_terminal, shown = sys.stdout.isatty(), ""

    def look() -> None:
        nonlocal shown
        if (line := adapter.progress(model_id)) != shown:
            say(f"\r{line:<{LINE_WIDTH}}" if is_terminal else f"{line or 'all bytes are there'}\n")
            shown = line

    try:
        with _failures_told():
            size = calls.load(adapter.endpoint, model_id, path, type_name=type_name, key=key, seconds=seconds, look=look)
    finally:
        if shown and is_terminal:
            say(f"\r{'':{LINE_WIDTH}}\r")
    say(f"{model_id}: loaded, {size:,} bytes\n")


def unload(adapter: Adapter, model_id: str, *, seconds: float, say: Say) -> None:
    """Unload a model; return when its memory is free. Blocks. Raises NotDoneError."""
    with _failures_told():
        calls.unload(adapter.endpoint, model_id, seconds=seconds)
    say(f"{model_id}: unloaded\n")


def infer(model_id: str, given: Sequence[str], say: Say) -> None:
    """
    One inference; print the model's inputs and outputs, and what it answers. Blocks.

    Args:
        model_id: of the model.
        given: `INPUT=1,2,3`; zeros for inputs that are missing.
        say: prints a text.

    Raises:
        NotDoneError
    """
    with _failures_told():
        asyncio.run(_infer(model_id, dict(_named_values(text) for text in given if text), say))


@contextmanager
def _failures_told() -> Iterator[None]:
    """What the adapter or Triton answers, as NotDoneError."""
    try:
        yield
    except (calls.CallFailedError, InferenceFailed) as failed:
        raise NotDoneError(str(failed)) from None


async def _infer(model_id: str, given: Mapping[str, Sequence[str]], say: Say) -> None:
    triton = read_group(TritonSettings)
    client = TritonInference(triton.target, triton.call_headers)
    try:
        info = (await client.model_info(model_id)).metadata
        for way, tensors in (("in", info.inputs), ("out", info.outputs)):
            for tensor in tensors:
                say(f"{way:>5} {tensor.name} {tensor.datatype} {list(tensor.shape)}\n")
        names = [tensor.name for tensor in info.inputs]
        if unknown := sorted(given.keys() - set(names)):
            raise NotDoneError(f"{model_id} has no input {', '.join(unknown)}; it has {', '.join(names)}")
        request = service_pb2.ModelInferRequest(model_name=model_id)
        for tensor in info.inputs:
            add_input(request, tensor.name, tensor.datatype, *shape_and_data(tensor, given.get(tensor.name)))
        answer = await client.infer(request)
        for output, data in zip(answer.outputs, answer.raw_output_contents, strict=True):
            elements = elements_of(data, output.datatype)
            more = f" and {len(elements) - MOST_SHOWN} more" if len(elements) > MOST_SHOWN else ""
            say(f"{output.name} {list(output.shape)} = {elements[:MOST_SHOWN]}{more}\n")
    finally:
        await client.close()


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
    try:
        data = (
            joined(value.encode() for value in values) if info.datatype == "BYTES" else b"".join(_packed(info, value) for value in values)
        )
    except KeyError:
        raise NotDoneError(f"{info.name} has the unknown type {info.datatype}") from None
    return shape, data


def elements_of(raw: bytes, datatype: str) -> list[Any]:
    """Raw form → numbers, or texts."""
    if datatype == "BYTES":
        return [element.decode(errors="replace") for element in split(raw)]
    if datatype == "BF16":
        return [struct.unpack("<f", b"\0\0" + raw[at : at + 2])[0] for at in range(0, len(raw), 2)]
    code = DATATYPES[datatype][0]
    return list(struct.unpack(f"<{len(raw) // struct.calcsize(code)}{code}", raw))


def _packed(info: Any, value: str) -> bytes:
    code = DATATYPES[info.datatype][0]
    try:
        if info.datatype == "BF16":
            return struct.pack("<f", float(value))[2:]
        return struct.pack(f"<{code}", float(value) if code in "efd" else int(value))
    except (ValueError, struct.error, OverflowError):
        raise NotDoneError(f"{info.name}: {value!r} is no {info.datatype}") from None


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
