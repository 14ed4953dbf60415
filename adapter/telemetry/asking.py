"""
Ask running adapters over HTTP, at METRICS_PORT: as `probe` does for all pods of a Service, or where there is no interface for ModelMesh.

The name of a headless Service stands for the addresses of its pods. ModelMesh's own interface is left alone, because a question
for the runtime's status there purges every model. Nothing here looks for a proxy.
"""

from __future__ import annotations

import http.client
import socket
from contextlib import closing
from http import HTTPStatus

from adapter.telemetry.redaction import in_one_line
from adapter.units import Endpoint
from adapter.workers import Workers

MOST_BYTES = 16 * 1024 * 1024
"""Of a body."""
_NO_ADDRESS = (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME))
"""A headless Service without pods has no records. A name server that is away or refuses is EAI_AGAIN or EAI_FAIL."""


def get(address: str, port: int, path: str, seconds: float) -> tuple[int, str]:
    """Status and body. Blocks for the time at most, however slowly the answer comes. Raises OSError, HTTPException: no answer."""

    def asked() -> tuple[int, str]:
        with closing(http.client.HTTPConnection(address, port, timeout=seconds)) as connection:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read(MOST_BYTES).decode(errors="replace")

    thread = Workers("asking", 1)
    return thread.submit(asked).result(seconds)


def probe(service: Endpoint, *, ready: bool, timeout_seconds: float) -> tuple[bool, str]:
    """
    Whether every pod is alive (or ready), and a line for each. A name without an address is well, and one line says so.

    The pods are asked one after another, each for no longer than the time.
    """
    try:
        rows = socket.getaddrinfo(service.host.strip("[]"), service.port, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as error:
        if isinstance(error, socket.gaierror) and error.errno in _NO_ADDRESS:
            return True, f"{service.host} has no address, so there is no pod: with scale to zero, pods come with the first model"
        return False, f"{service.host} cannot be looked up: {error}"
    outcomes = [_ask(address, service.port, ready, timeout_seconds) for address in sorted({str(row[4][0]) for row in rows})]
    return all(is_well for is_well, _ in outcomes), "\n".join(line for _, line in outcomes)


def _ask(address: str, port: int, ready: bool, seconds: float) -> tuple[bool, str]:
    """A well pod begins its answer with the word."""
    word, path = ("ready", "/readyz") if ready else ("alive", "/healthz")
    place = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
    try:
        status, body = get(address, port, path, seconds)
    except (OSError, http.client.HTTPException) as error:
        words = "timed out" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
        return False, f"{place}: no answer: {in_one_line(words)}"
    return status == HTTPStatus.OK and body.startswith(word), f"{place}: {status} {in_one_line(body)}"
