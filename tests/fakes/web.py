"""
A web server whose every answer a test writes: redirects, strange headers, missing lengths.

Own threads, standard library only.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType


@dataclass(frozen=True)
class Answer:
    """One answer. Without a `Content-Length` of its own it gets the right one; None leaves it away."""

    status: int = 200
    headers: Mapping[str, str | None] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True)
class Request:
    """What was asked, with header names in lower case."""

    target: str
    headers: Mapping[str, str]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that cut the connection is what tests are about; anything else is told."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class Web:
    """Context manager. `answers` maps a target to what it is answered with, always; the rest is 404."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}
        self.requests: list[Request] = []
        web = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                web.requests.append(Request(self.path, {name.lower(): value for name, value in self.headers.items()}))
                answer = web.answers.get(self.path, Answer(404))
                self.send_response_only(answer.status)
                for name, value in {"Content-Length": str(len(answer.body)), **answer.headers}.items():
                    if value is not None:
                        self.send_header(name, value)
                self.send_header("Connection", "close")
                self.end_headers()
                self.wfile.write(answer.body)
                self.close_connection = True

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                self.do_GET()

            def log_message(self, format: str, *args: object) -> None:
                """Quiet."""

        self._server = _Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Web:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class PlainWeb(Web):
    """Python's own web server over a folder: no ranges, no ETags, only dates."""

    def __init__(self, folder: Path) -> None:
        super().__init__()

        class Handler(SimpleHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def __init__(self, *args: object, **options: object) -> None:
                super().__init__(*args, directory=str(folder), **options)  # type: ignore[arg-type]

            def log_message(self, format: str, *args: object) -> None:
                """Quiet."""

        self._server.RequestHandlerClass = Handler
