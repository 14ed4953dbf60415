"""Web servers: one whose every answer a test writes (redirects, strange headers, missing lengths), and Python's own."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.fakes.hell import Hell, Peer


@dataclass(frozen=True)
class Answer:
    """One answer. Without a `Content-Length` of its own it gets the right one; None leaves it away."""

    status: int = 200
    headers: Mapping[str, str | None] = field(default_factory=dict)
    body: bytes = b""


class Web(Hell):
    """Context manager. `answers` maps a target to what it is answered with, always; the rest is 404."""

    def __init__(self) -> None:
        super().__init__(self._answer)
        self.answers: dict[str, Answer] = {}

    def _answer(self, peer: Peer) -> None:
        answer = self.answers.get(peer.target, Answer(404))
        given = {"Content-Length": str(len(answer.body)), **answer.headers}
        peer.head(answer.status, {**{name: value for name, value in given.items() if value is not None}, "Connection": "close"})
        peer.send(answer.body)
        peer.hang_up()


@contextmanager
def plain_web(folder: Path) -> Iterator[str]:
    """Python's own web server over a folder, with no ranges and no ETags, only dates; its URL."""

    class Handler(SimpleHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()
