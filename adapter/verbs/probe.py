"""
The verb `probe`: ask running adapters for their health, over gRPC, or over HTTP at METRICS_PORT where there is no interface for ModelMesh.

Starts for every probe of Kubernetes, so it imports little, and late: the two messages of `grpc.health.v1` are read and written by
hand, which saves the protobuf runtime. The name of a headless Service stands for the addresses of its pods. Nothing here looks for a
proxy, nor asks ModelMesh's own interface for the runtime's status, which would remove every model.
"""

from __future__ import annotations

import socket
from contextlib import closing
from http import HTTPStatus
from urllib.parse import unquote

from adapter.settings import read_group
from adapter.settings.process import SpiSettings, TelemetrySettings
from adapter.telemetry.redaction import in_one_line
from adapter.units import Endpoint
from adapter.workers import Workers

OPTIONS = (("grpc.enable_http_proxy", 0),)
MOST_BYTES = 16 * 1024 * 1024
"""Of a body."""
_SERVING = b"\x08\x01"
"""HealthCheckResponse with field 1, status, set to SERVING."""
_NO_ADDRESS = (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME))
"""A headless Service without pods has no records. A name server that is away or refuses is EAI_AGAIN or EAI_FAIL."""


def ask(service: Endpoint | None = None, *, ready: bool, timeout_seconds: float) -> tuple[bool, str]:
    """
    Whether every pod of a service is alive (or ready), or the adapter with these settings, and a line for each.

    The pods are asked one after another, each for no longer than the time. A name without an address is well, and one line says so.
    """
    if service is None and (endpoint := read_group(SpiSettings).listen) is not None:
        return _over_grpc(endpoint, ready, timeout_seconds)
    service = service or Endpoint(host="127.0.0.1", port=read_group(TelemetrySettings).metrics_port)
    if not service.port:
        return False, "cannot be asked: ADAPTER_PORT and METRICS_PORT are 0"
    try:
        rows = socket.getaddrinfo(service.host.strip("[]"), service.port, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as error:
        if isinstance(error, socket.gaierror) and error.errno in _NO_ADDRESS:
            return True, f"{service.host} has no address, so there is no pod: with scale to zero, pods come with the first model"
        return False, f"{service.host} cannot be looked up: {error}"
    outcomes = [_over_http(address, service.port, ready, timeout_seconds) for address in sorted({str(row[4][0]) for row in rows})]
    return all(is_well for is_well, _ in outcomes), "\n".join(line for _, line in outcomes)


def _over_http(address: str, port: int, ready: bool, seconds: float) -> tuple[bool, str]:
    """A well pod begins its answer with the word."""
    word, path = ("ready", "/readyz") if ready else ("alive", "/healthz")
    place = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
    try:
        status, body = get(address, port, path, seconds)
    except OSError as error:
        return False, f"{place}: no answer: {in_one_line('timed out' if isinstance(error, TimeoutError) else str(error))}"
    return status == HTTPStatus.OK and body.startswith(word), f"{place}: {status} {in_one_line(body)}"


def get(address: str, port: int, path: str, seconds: float) -> tuple[int, str]:
    """Status and body. Blocks for the time at most, however slowly the answer comes. Raises OSError: no answer."""
    from http.client import HTTPConnection, HTTPException  # noqa: PLC0415 - costs a tenth of a probe over gRPC

    def asked() -> tuple[int, str]:
        try:
            with closing(HTTPConnection(address, port, timeout=seconds)) as connection:
                connection.request("GET", path)
                answer = connection.getresponse()
                return answer.status, answer.read(MOST_BYTES).decode(errors="replace")
        except HTTPException as error:
            raise ConnectionError(str(error) or type(error).__name__) from None

    thread = Workers("probe", 1)
    return thread.submit(asked).result(seconds)


def _over_grpc(endpoint: Endpoint, ready: bool, seconds: float) -> tuple[bool, str]:
    """The cause in words: gRPC's own text names every address that it tried."""
    import grpc  # noqa: PLC0415 - costs half of a probe over HTTP

    request = b"\x0a\x05ready" if ready else b""
    with grpc.insecure_channel(endpoint.target, options=OPTIONS) as channel:
        check = channel.unary_unary("/grpc.health.v1.Health/Check", request_serializer=bytes, response_deserializer=bytes)
        try:
            response, call = check.with_call(request, timeout=seconds)
        except grpc.RpcError as error:
            code, details = error.code(), error.details() or ""
            known = ("connection refused", "no such file or directory", "permission denied", "connection reset")
            cause = next((words for words in known if words in details.lower()), f"{code.name.lower().replace('_', ' ')}: {details}")
            cause = f"nothing within {seconds:g} s" if code is grpc.StatusCode.DEADLINE_EXCEEDED else in_one_line(cause)[:300]
            return False, f"no answer from {endpoint}: {cause}"
    if response == _SERVING:
        return True, "ready" if ready else "alive"
    reason = next((str(value) for key, value in call.trailing_metadata() or () if key == "reason"), "no reason given")
    return False, f"not ready: {in_one_line(unquote(reason))}"
