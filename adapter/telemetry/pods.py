"""
Ask every pod behind a name for its health over HTTP, as `modelmesh-triton-adapter probe --host` does.

The name of a headless Service stands for the addresses of its pods. Only the port of `METRICS_PORT` is asked: ModelMesh's
own interface is left alone, because a question for the runtime's status there purges every model. Nothing here looks for
a proxy, and one bound holds for the look-up and for all answers together.
"""

from __future__ import annotations

import http.client
import socket
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing
from http import HTTPStatus

from adapter.units import Endpoint
from adapter.workers import Threads

PAUSE_SECONDS = 0.5
"""Between look-ups that failed for the time being."""
MAX_THREADS = 64
_MAX_BODY_BYTES = 4096
_MAX_TEXT = 300
_NO_ADDRESS = (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME))
"""A headless Service without pods has no records. A name server that is away or refuses is EAI_AGAIN or EAI_FAIL."""


class _LookUpFailedError(Exception):
    """Nobody could tell which addresses the name has; says why."""


def ask(service: Endpoint, *, ready: bool, timeout_seconds: float) -> tuple[bool, list[str]]:
    """Whether every pod is alive (or ready), and a line for each. A name without an address is well, and one line says so."""
    end = time.monotonic() + timeout_seconds
    try:
        addresses = _addresses(service.host.strip("[]"), end)
    except _LookUpFailedError as failure:
        return False, [f"{service.host} cannot be looked up: {failure}"]
    if not addresses:
        return True, [f"{service.host} has no address, so there is no pod: with scale to zero, pods come with the first model"]
    outcomes = list(_outcomes(addresses, service.port, "ready" if ready else "alive", end, timeout_seconds))
    return all(is_well for is_well, _ in outcomes), [line for _, line in outcomes]


def _addresses(host: str, end: float) -> list[str]:
    """Of both families, sorted; none where the name has none. Raises _LookUpFailedError."""
    threads = Threads("lookup", 1)
    while True:
        looked_up = threads.submit(socket.getaddrinfo, host, None, type=socket.SOCK_STREAM)
        try:
            rows = looked_up.result(max(0.0, end - time.monotonic()))
            return sorted({str(address[0]) for _, _, _, _, address in rows})
        except TimeoutError:
            raise _LookUpFailedError("no answer of a name server") from None
        except UnicodeError:
            raise _LookUpFailedError("it cannot be the name of a host") from None
        except socket.gaierror as error:
            if error.errno in _NO_ADDRESS:
                return []
            if error.errno != socket.EAI_AGAIN or end - time.monotonic() <= PAUSE_SECONDS:
                raise _LookUpFailedError((error.strerror or str(error)).lower()) from None
        time.sleep(PAUSE_SECONDS)


def _outcomes(addresses: list[str], port: int, word: str, end: float, timeout_seconds: float) -> Iterator[tuple[bool, str]]:
    threads = Threads("pods", min(len(addresses), MAX_THREADS))
    asked: list[Future[tuple[bool, str]]] = [threads.submit(_ask, address, port, word, end) for address in addresses]
    for address, future in zip(addresses, asked, strict=True):
        try:
            is_well, text = future.result(max(0.0, end - time.monotonic()))
        except TimeoutError:
            is_well, text = False, f"no answer: nothing within {timeout_seconds:g} s"
        except (OSError, http.client.HTTPException) as error:
            is_well, text = False, f"no answer: {_cause(error)}"
        yield is_well, f"{f'[{address}]' if ':' in address else address}:{port}: {text}"


def _ask(address: str, port: int, word: str, end: float) -> tuple[bool, str]:
    """A well pod begins its answer with the word. Raises OSError, HTTPException."""
    path = "/readyz" if word == "ready" else "/healthz"
    with closing(http.client.HTTPConnection(address, port, timeout=max(0.01, end - time.monotonic()))) as connection:
        connection.request("GET", path)
        answer = connection.getresponse()
        text = _one_line(answer.read(_MAX_BODY_BYTES))
    is_well = answer.status == HTTPStatus.OK and text.startswith(word)
    if answer.status == HTTPStatus.OK and not is_well:
        return False, f"{answer.status:d} is no adapter's answer: {text}"
    return is_well, f"{answer.status:d} {text}"


def _one_line(body: bytes) -> str:
    text = "".join(letter if letter.isprintable() else " " for letter in body.decode(errors="replace"))
    return " ".join(text.split())[:_MAX_TEXT]


def _cause(error: OSError | http.client.HTTPException) -> str:
    if isinstance(error, OSError):
        return (error.strerror or str(error) or "the connection was cut").lower()
    return f"no HTTP ({type(error).__name__})"
