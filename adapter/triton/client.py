"""
Triton's gRPC service as coroutines: the calls that control models, and what their failures mean.

The only place beside `spi` that knows gRPC. It waits for nothing and repeats nothing: whether a
Triton that is away is waited for is decided above. A failure is one of four things that the caller
may conclude from (`CallError`), or an error of `adapter.errors` that goes to the user as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import grpc
import grpc.aio

from adapter.errors import ModelRefused, WrongServer
from adapter.model import Overrides, ServerModel
from adapter.stubs import service_pb2, service_pb2_grpc
from adapter.telemetry.redaction import remember
from adapter.triton.reason import reason_of_refusal

METADATA_BYTES = 16 * 1024 * 1024
"""Triton puts the reason of a failed load into the trailers; gRPC's own 16 KiB turn long ones into RESOURCE_EXHAUSTED."""
ANSWER_SECONDS = 10.0
"""For calls that never wait for a model. Longer means that Triton hangs."""

CONNECTION_OPTIONS = (
    ("grpc.max_metadata_size", METADATA_BYTES),
    ("grpc.absolute_max_metadata_size", METADATA_BYTES),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 1000),  # in fact the time for one attempt to connect
    ("grpc.max_reconnect_backoff_ms", 200),  # and a fifth of it, up or down, by chance
    ("grpc.enable_http_proxy", 0),  # proxies are for the object stores
)
# No keepalive pings: Triton answers them with GOAWAY when no calls are made (triton-inference-server's gRPC defaults).
CHANNEL_OPTIONS = (("grpc.max_receive_message_length", -1), *CONNECTION_OPTIONS)

Parameter = service_pb2.ModelRepositoryParameter

_EXPLICIT_MODE = "explicit model load / unload is not allowed"
_RESTRICTED = "This protocol is restricted"
_CLOSED = ("Connection refused", "No such file or directory")
"""The second one of a Unix socket."""
_NOT_TAKEN = ("failed to connect to all addresses", "DNS resolution failed", "empty address list", "Server exiting", "Server not ready")
_BROKEN = ("Stream removed", "RST_STREAM", "Socket closed")


class CallError(Exception):
    """A call brought no answer, for reasons that are not the model's."""


class TritonAway(CallError):
    """Triton does not answer, or is stopping. It has not taken the call, or the call may be repeated."""


class TritonSilent(TritonAway):
    """No answer in time: Triton hangs, or is too slow."""


class PortClosed(TritonAway):
    """There is nothing to connect to: Triton is starting; one that had answered before is no more."""


class TritonDied(TritonAway):
    """The connection broke during the call: Triton may have taken it."""


class CallRefused(CallError):
    """Triton answered with an error, or what it answered cannot be read."""


class TritonClient:
    """One channel to one Triton."""

    def __init__(self, target: str, headers: Sequence[tuple[str, str]] = ()) -> None:
        """
        Args:
            target: in gRPC's form.
            headers: of every call; their values are secrets.
        """
        self.target = target
        self._headers = tuple(headers)
        for _, value in self._headers:
            remember(value, lasts=True)
        self._channel = grpc.aio.insecure_channel(target, options=CHANNEL_OPTIONS)
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)

    async def close(self) -> None:
        """End the channel and whatever calls run on it."""
        await self._channel.close()

    async def live(self, timeout_seconds: float) -> None:
        """
        Returns when Triton answers.

        Raises:
            TritonAway: not within the time, or ServerLive answers false.
        """
        reply = await self._call("ServerLive", timeout_seconds)
        if not reply.live:
            raise TritonAway("ServerLive answers false")

    @property
    def is_connected(self) -> bool:
        """
        Whether there is a connection. One that has ended is made anew by the next call alone.

        So who asks this before each call misses no end.
        """
        return self._channel.get_state() is grpc.ChannelConnectivity.READY

    async def metadata(self, timeout_seconds: float = ANSWER_SECONDS) -> tuple[str, str]:
        """Name (`--id`; without that, each Triton has the same) and version of the server. Raises CallError."""
        reply = await self._call("ServerMetadata", timeout_seconds)
        return reply.name, reply.version

    async def index(self, timeout_seconds: float | None = ANSWER_SECONDS) -> list[ServerModel]:
        """
        The rows of the repository index.

        Triton goes on with a call that is cancelled or whose time is over, and answers nothing else meanwhile.

        Raises:
            CallRefused: one bad entry in the repository folder breaks it for all, and so does one that vanishes meanwhile.
            CallError: or it could not be asked.
        """
        reply = await self._call("RepositoryIndex", timeout_seconds)
        return [ServerModel(row.name, row.version, row.state, row.reason) for row in reply.models]

    async def load(self, name: str, overrides: Overrides | None = None) -> None:
        """
        RepositoryModelLoad: returns when every version is ready. Has no deadline; a cancelled one goes on in Triton.

        `overrides` are its parameters: a text, or the content of a file.

        Raises:
            TritonAway: the load was not taken.
            TritonDied: the load was taken; its outcome is unknown.
            ModelRefused, WrongServer
        """
        parameters = {
            key: Parameter(bytes_param=value) if isinstance(value, bytes) else Parameter(string_param=value)
            for key, value in (overrides or {}).items()
        }
        try:
            await self._call("RepositoryModelLoad", None, model_name=name, parameters=parameters)
        except CallRefused as refused:
            raise ModelRefused(reason_of_refusal(name, str(refused))) from refused

    async def unload(self, name: str, *, has_dependents: bool = True) -> None:
        """
        RepositoryModelUnload, composing models included; returns while the memory is still held. Unknown names are fine.

        Without `has_dependents` the composing models stay.

        Has no deadline: it waits in Triton for a load of the same name. One that is cancelled takes effect all the same.

        Raises:
            CallError, WrongServer
        """
        parameters = {"unload_dependents": Parameter(bool_param=has_dependents)}
        await self._call("RepositoryModelUnload", None, model_name=name, parameters=parameters)

    async def ready(self, name: str) -> bool:
        """ModelReady: whether inference works now. Raises CallError."""
        reply = await self._call("ModelReady", ANSWER_SECONDS, name=name)
        return bool(reply.ready)

    async def reported_bytes(self, name: str) -> int:
        """Sum of the memory that the backend reports for all versions and devices; 0 without reports. Raises CallError."""
        reply = await self._call("ModelStatistics", ANSWER_SECONDS, name=name)
        return sum(usage.byte_size for model in reply.model_stats for usage in model.memory_usage)

    async def served_names(self) -> set[str]:
        """Every model that can infer now, also models that the index leaves out for want of a directory. Raises CallError."""
        return {model.name for model in (await self._call("ModelStatistics", ANSWER_SECONDS)).model_stats}

    async def _call(self, method: str, timeout_seconds: float | None, **fields: Any) -> Any:
        request = getattr(service_pb2, f"{method}Request")(**fields)
        try:
            reply = await getattr(self._stub, method)(request, timeout=timeout_seconds, metadata=self._headers)
        except grpc.aio.AioRpcError as error:
            raise _meaning(error.code(), error.details() or "", timeout_seconds) from error
        if reply is None:  # grpc.aio's answer when the reply cannot be parsed: a directory name that is not UTF-8
            raise CallRefused("Triton's answer cannot be parsed")
        return reply


def _meaning(code: grpc.StatusCode, details: str, timeout_seconds: float | None) -> Exception:
    if code is grpc.StatusCode.DEADLINE_EXCEEDED and timeout_seconds is not None:
        return TritonSilent(f"no answer within {timeout_seconds:g} s")
    if code is grpc.StatusCode.CANCELLED or details.startswith(_BROKEN):
        return TritonDied(details)
    return _unavailable(details) if code is grpc.StatusCode.UNAVAILABLE else CallRefused(details)


def _unavailable(details: str) -> Exception:
    """Of the one code that Triton and gRPC use for everything: what it was."""
    if _RESTRICTED in details:  # never the value: Triton's words name the header alone
        return WrongServer(
            "Triton restricts the calls that the adapter needs: set TRITON_RESTRICTED_KEY, and TRITON_RESTRICTED_VALUE "
            "or TRITON_RESTRICTED_VALUE_FILE, to key (in small letters) and value of Triton's "
            f"--grpc-restricted-protocol (it says: {details})"
        )
    if _EXPLICIT_MODE in details:
        return WrongServer(
            f"Triton refuses to load and unload models on request: it runs without --model-control-mode=explicit (it says: {details})"
        )
    if not details.startswith(_NOT_TAKEN):
        return TritonDied(details)
    cause = details.rpartition(": ")[2]  # of gRPC's chain the last one
    return PortClosed(cause) if cause in _CLOSED else TritonAway(cause)
