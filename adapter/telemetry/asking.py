"""
Ask a running adapter on this machine over HTTP, at METRICS_PORT: as `probe` does where there is no interface for ModelMesh.

Nothing here looks for a proxy.
"""

from __future__ import annotations

import http.client
from contextlib import closing
from http import HTTPStatus


def get(port: int, path: str, seconds: float) -> tuple[int, str]:
    """Status and body. Blocks. Raises OSError, HTTPException: no answer."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=seconds)) as connection:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(errors="replace")


def probe(port: int, *, ready: bool, timeout_seconds: float) -> tuple[bool, str]:
    """Whether the adapter is alive (or ready), and one line that says so, or why not."""
    word, path = ("ready", "/readyz") if ready else ("alive", "/healthz")
    try:
        status, body = get(port, path, timeout_seconds)
    except (OSError, http.client.HTTPException) as error:
        return False, f"no answer from 127.0.0.1:{port}: {str(error) or type(error).__name__}"
    return status == HTTPStatus.OK and body.startswith(word), f"127.0.0.1:{port}: {status} {' '.join(body.split())}"
