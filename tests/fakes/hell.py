"""
The server from hell: speaks HTTP over raw sockets, with or without TLS, and answers as badly as a test wants.

`Hell(behaviour)` is a context manager; a behaviour is called with a `Peer` for each request that comes in, on a
thread of its connection. The functions below make behaviours, one for each kind of malice; `honest` is the measure.
`BlackHole` is an address that never answers a connection attempt. Standard library only; memory stays small, also
for answers without end.
"""

from __future__ import annotations

import contextlib
import gzip
import socket
import threading
from collections.abc import Mapping

from tests.fakes.raw_server import Behaviour, BlackHole, Hell, Peer, head_of

__all__ = ["Behaviour", "BlackHole", "Hell", "Peer"]  # as if they were here

_BLOCK = b"\0" * (64 * 1024)

# ---- honest, and what chooses


def honest(content: bytes, headers: Mapping[str, str | int] | None = None) -> Behaviour:
    """The content, or the range of it that was asked for, with right lengths. The measure for all that follow."""

    def answer(peer: Peer) -> None:
        start, last = peer.span or (0, None)
        part = content[start : len(content) if last is None else last + 1]
        if peer.span is None:
            peer.head(200, {"Content-Length": len(part), **(headers or {})})
        else:
            span = f"bytes {start}-{start + len(part) - 1}/{len(content)}"
            peer.head(206, {"Content-Length": len(part), "Content-Range": span, **(headers or {})})
        if peer.method != "HEAD":
            peer.send(part)

    return answer


def answering(status: int, headers: Mapping[str, str | int] | None = None, body: bytes = b"") -> Behaviour:
    """Exactly these headers, which may lie, and this body. The connection is closed when the headers do not say how long the body is."""

    def answer(peer: Peer) -> None:
        peer.head(status, headers)
        if peer.method != "HEAD":
            peer.send(body)
        if not {"content-length", "transfer-encoding"} & {name.lower() for name in headers or {}}:
            peer.hang_up()

    return answer


def in_turn(*behaviours: Behaviour) -> Behaviour:
    """The first request gets the first, the second the second; the last one stays."""
    left = list(behaviours)
    lock = threading.Lock()

    def answer(peer: Peer) -> None:
        with lock:
            chosen = left.pop(0) if len(left) > 1 else left[0]
        chosen(peer)

    return answer


def by_target(choices: Mapping[str, Behaviour], otherwise: Behaviour) -> Behaviour:
    """The first choice whose text occurs in the target of the request."""

    def answer(peer: Peer) -> None:
        next((behaviour for part, behaviour in choices.items() if part in peer.target), otherwise)(peer)

    return answer


# ---- endless, and slow


def forever(begin: bytes, piece: bytes, pause_seconds: float = 0.0) -> Behaviour:
    """This beginning, and the same piece again and again, with a pause after each."""

    def answer(peer: Peer) -> None:
        peer.send(begin)
        while True:
            peer.send(piece)
            peer.pause(pause_seconds)

    return answer


def endless_body(
    status: int = 200, headers: Mapping[str, str | int] | None = None, *, is_chunked: bool = True, block: bytes = _BLOCK
) -> Behaviour:
    """A body without end: in chunks, or until the connection ends. With a `Content-Length` in `headers`: more than that follows."""
    lines = {"Transfer-Encoding": "chunked"} if is_chunked else {}
    return forever(head_of(status, {**lines, **(headers or {})}), b"%x\r\n%b\r\n" % (len(block), block) if is_chunked else block)


def endless_chunk_lines() -> Behaviour:
    """Chunks of one byte, each with an extension of 4 KiB: framing without end around nearly nothing."""
    return forever(head_of(200, {"Transfer-Encoding": "chunked"}), (b"1;" + b"x" * 4096 + b"\r\n0\r\n") * 16)


def endless_trailers() -> Behaviour:
    """A whole body in chunks, and trailers without end behind it."""
    whole = head_of(200, {"Transfer-Encoding": "chunked"}) + b"5\r\nwhole\r\n0\r\n"
    return forever(whole, (b"X-Trailer: " + b"y" * 1000 + b"\r\n") * 64)


def endless_headers() -> Behaviour:
    """Header lines without end. http.client itself takes 100 of 64 KiB each."""
    return forever(b"HTTP/1.1 200 Whatever\r\n", b"X-Flood: " + b"z" * 60_000 + b"\r\n")


def endless_line() -> Behaviour:
    """A status line that has no end."""
    return forever(b"HTTP/1.1 200 ", b"a" * len(_BLOCK))


def endless_continue() -> Behaviour:
    """`100 Continue` without end, each with a header."""
    return forever(b"", b"HTTP/1.1 100 Continue\r\nX-Note: nothing yet\r\n\r\n" * 64)


def silent() -> Behaviour:
    """Takes the request and says nothing."""
    return lambda peer: peer.hang()


def trickled_headers(pause_seconds: float = 1.0) -> Behaviour:
    """A short header line after each pause, without end: no single read waits for long."""
    return forever(b"HTTP/1.1 200 OK\r\n", b"X-Slow: 1\r\n", pause_seconds)


def trickled_continue(pause_seconds: float = 1.0) -> Behaviour:
    """A `100 Continue` after each pause, without end."""
    return forever(b"", b"HTTP/1.1 100 Continue\r\n\r\n", pause_seconds)


def trickled_body(length: int, *, pause_seconds: float = 1.0) -> Behaviour:
    """The right length, one byte after each pause."""
    return forever(head_of(200, {"Content-Length": length}), b"t", pause_seconds)


def stalled_body(length: int, sent: int, status: int = 200, headers: Mapping[str, str | int] | None = None) -> Behaviour:
    """Says `length`, sends so many bytes of it, then nothing more."""

    def answer(peer: Peer) -> None:
        peer.send(head_of(status, {"Content-Length": length, **(headers or {})}) + b"s" * sent)
        peer.hang()

    return answer


# ---- lying


def short_body(length: int, sent: int, status: int = 200, headers: Mapping[str, str | int] | None = None) -> Behaviour:
    """Says `length`, sends so many bytes of it, and hangs up."""

    def answer(peer: Peer) -> None:
        peer.send(head_of(status, {"Content-Length": length, **(headers or {})}) + b"s" * sent)
        peer.hang_up()

    return answer


def bomb(mebibytes: int = 256, status: int = 200, headers: Mapping[str, str | int] | None = None) -> Behaviour:
    """`Content-Encoding: gzip` that nobody asked for: about 1 KiB of it for each MiB that comes out."""
    packed = gzip.compress(b"\0" * (1 << 20)) * mebibytes
    return answering(status, {"Content-Encoding": "gzip", "Content-Length": len(packed), **(headers or {})}, packed)


def redirecting(location: str, status: int = 302) -> Behaviour:
    """To another place."""
    return answering(status, {"Location": location, "Content-Length": 0})


def resetting() -> Behaviour:
    """Resets the connection instead of an answer."""
    return lambda peer: peer.reset()


# ---- a proxy, honest in itself


def proxying(resolve: Mapping[str, tuple[str, int]] | None = None) -> Behaviour:
    """
    A proxy: `CONNECT host:port` becomes a tunnel, `GET http://host/…` is sent on.

    `resolve` maps a `host` or `host:port` that only this proxy knows to an address.
    """

    def reach(name: str, port: int) -> socket.socket:
        return socket.create_connection((resolve or {}).get(name) or (resolve or {}).get(f"{name}:{port}") or (name, port), timeout=10)

    def answer(peer: Peer) -> None:
        peer.hang_up()
        whole = peer.target if peer.method == "CONNECT" else peer.target.partition("://")[2].partition("/")[0]
        name, _, port = whole.rpartition(":") if ":" in whole else (whole, "", "80")
        try:
            far = reach(name.strip("[]"), int(port))
        except OSError:
            return peer.head(502, {"Content-Length": 0})
        with far:
            far.settimeout(None)
            if peer.method == "CONNECT":
                peer.head(200)
                back = threading.Thread(target=_pour, args=(far, peer.line), daemon=True)
                back.start()
                _pour(peer.line, far)
                return back.join()
            path = "/" + peer.target.partition("://")[2].partition("/")[2]
            headers = {name: value for name, value in peer.headers.items() if not name.startswith(("connection", "proxy-"))}
            lines = "".join(f"{name}: {value}\r\n" for name, value in {**headers, "connection": "close"}.items())
            far.sendall(f"{peer.method} {path} HTTP/1.1\r\n{lines}\r\n".encode("latin-1") + peer.body)
            head = b""
            while b"\r\n\r\n" not in head and (some := far.recv(65536)):
                head += some
            peer.line.sendall(head.replace(b"\r\n", b"\r\nConnection: close\r\n", 1))
            return _pour(far, peer.line)

    return answer


def _pour(source: socket.socket, sink: socket.socket) -> None:
    """Until one of them ends; then the other one learns it."""
    try:
        while some := source.recv(65536):
            sink.sendall(some)
    except OSError:
        return
    finally:
        with contextlib.suppress(OSError):
            socket.socket.shutdown(sink, socket.SHUT_RDWR)
