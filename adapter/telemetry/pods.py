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
from concurrent.futures import Future
from contextlib import closing
from http import HTTPStatus

from adapter.units import Endpoint
from adapter.workers import Threads

MAX_THREADS = 64
_MAX_BODY_BYTES = 4096
_MAX_TEXT = 300
_NO_ADDRESS = (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME))
"""A headless Service without pods has no records. A name server that is away or refuses is EAI_AGAIN or EAI_FAIL."""


def ask(service: Endpoint, *, ready: bool, timeout_seconds: float) -> tuple[bool, list[str]]:
    """Whether every pod is alive (or ready), and a line for each. A name without an address is well, and one line says so."""
    end = time.monotonic() + timeout_seconds
    try:
        addresses = _addresses(service.host.strip("[]"), timeout_seconds)
    except LookupError as failure:
        return False, [f"{service.host} cannot be looked up: {failure}"]
    if not addresses:
        return True, [f"{service.host} has no address, so there is no pod: with scale to zero, pods come with the first model"]
    threads = Threads("pods", min(len(addresses), MAX_THREADS))
    asked = [threads.submit(_ask, address, service.port, "ready" if ready else "alive", end) for address in addresses]
    outcomes = [_outcome(future, end, timeout_seconds) for future in asked]
    places = [f"{f'[{address}]' if ':' in address else address}:{service.port}" for address in addresses]
    return all(is_well for is_well, _ in outcomes), [f"{place}: {text}" for place, (_, text) in zip(places, outcomes, strict=True)]


def _addresses(host: str, seconds: float) -> list[str]:
    """Of both families, sorted; none where the name has none. Raises LookupError: nobody could tell; says why."""
    threads = Threads("lookup", 1)
    looked_up = threads.submit(socket.getaddrinfo, host, None, type=socket.SOCK_STREAM)
    try:
        return sorted({str(address[0]) for _, _, _, _, address in looked_up.result(seconds)})
    except TimeoutError:
        raise LookupError("no answer of a name server") from None
    except UnicodeError:
        raise LookupError("it cannot be the name of a host") from None
    except socket.gaierror as error:
        if error.errno in _NO_ADDRESS:
            return []
        raise LookupError((error.strerror or str(error)).lower()) from None


def _outcome(asked: Future[tuple[bool, str]], end: float, timeout_seconds: float) -> tuple[bool, str]:
    try:
        return asked.result(max(0.0, end - time.monotonic()))
    except TimeoutError:
        return False, f"no answer: nothing within {timeout_seconds:g} s"
    except (OSError, http.client.HTTPException) as error:
        cause = error.strerror if isinstance(error, OSError) else None
        return False, f"no answer: {(cause or type(error).__name__).lower()}"


def _ask(address: str, port: int, word: str, end: float) -> tuple[bool, str]:
    """A well pod begins its answer with the word. Raises OSError, HTTPException."""
    path = "/readyz" if word == "ready" else "/healthz"
    with closing(http.client.HTTPConnection(address, port, timeout=max(0.01, end - time.monotonic()))) as connection:
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read(_MAX_BODY_BYTES).decode(errors="replace")
    text = " ".join("".join(letter if letter.isprintable() else " " for letter in body).split())[:_MAX_TEXT]
    is_well = answer.status == HTTPStatus.OK and text.startswith(word)
    if answer.status == HTTPStatus.OK and not is_well:
        return False, f"{answer.status:d} is no adapter's answer: {text}"
    return is_well, f"{answer.status:d} {text}"
