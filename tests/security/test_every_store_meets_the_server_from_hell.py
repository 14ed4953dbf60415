"""
Whatever a store answers, the adapter keeps its memory, ends when it is told to, and says what happened.

Over the SPI, with the adapter as a process of its own: memory is what the kernel has counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack

import grpc
import pytest

from tests.builders import predict_request
from tests.fakes import hell as bad
from tests.fakes.background_triton import BackgroundTriton
from tests.fakes.hell import Behaviour, Hell
from tests.real.polls import until
from tests.security.conftest import BUDGET_SECONDS, STOP_SECONDS, Sidecar
from tests.security.stores import CONTENT, ETAG, KEY, STORES, HonestStore

MOST_MIB = 64
MOST_AT_ONCE_MIB = 256
"""Of 32 loads, the first client of a store included."""
PREDICT_SECONDS = 0.5
BIG_BYTES = 64 << 20
"""More than any bound of ours: an answer that was read so far is an answer without one."""
AWAY, LATE, WRONG = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.INVALID_ARGUMENT

TOLD = (AWAY, grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.NOT_FOUND)

ENDLESS: dict[str, Callable[[], Behaviour]] = {
    "chunks": lambda: bad.endless_body(200),
    "chunks of a part": lambda: bad.endless_body(206, {"Content-Range": f"bytes 0-0/{len(CONTENT)}"}),
    "bytes until the end of the connection": lambda: bad.endless_body(200, is_chunked=False),
    "an error": lambda: bad.endless_body(500),
    "a refusal": lambda: bad.endless_body(403, is_chunked=False),
    "a redirect": lambda: bad.endless_body(302, {"Location": "/elsewhere"}),
    "a changed version": lambda: bad.endless_body(412),
    "a range that cannot be": lambda: bad.endless_body(416),
    "text": lambda: bad.endless_body(200, {"Content-Type": "application/xml"}, block=b"<a>" * 20_000),
    "brackets": lambda: bad.endless_body(200, {"Content-Type": "application/json"}, block=b"[" * 60_000),
    "chunk lines": bad.endless_chunk_lines,
    "trailers": bad.endless_trailers,
    "headers": bad.endless_headers,
    "a status line": bad.endless_line,
    "100 Continue": bad.endless_continue,
    "a bomb": lambda: bad.bomb(512),
}
SLOW: dict[str, Callable[[], Behaviour]] = {
    "silence": bad.silent,
    "headers that trickle": lambda: bad.trickled_headers(0.2),
    "100 Continue that trickles": lambda: bad.trickled_continue(0.2),
    "a body that trickles": lambda: bad.trickled_body(len(CONTENT), pause_seconds=0.2),
    "a body that stalls": lambda: bad.stalled_body(len(CONTENT), 100),
}
PHASES = ("listing", "reading")
_OTHER = {"ETag": '"another"', "X-Goog-Generation": "8", "Last-Modified": "Sun, 22 Nov 2026 10:00:00 GMT"}


def _part(start: int, length: int, headers: dict[str, str | int] | None = None, *, said: int | None = None) -> Behaviour:
    """A part that is told as this one, whatever was asked for."""
    span = f"bytes {start}-{start + length - 1}/{len(CONTENT)}"
    return bad.answering(206, {"Content-Length": said or length, "Content-Range": span, **(headers or {})}, CONTENT[start : start + length])


LIES: dict[str, Callable[[], Behaviour]] = {
    "an empty body": lambda: bad.answering(200, {"Content-Length": 0}),
    "an empty part": lambda: bad.answering(206, {"Content-Length": 0}),
    "a part of another object": lambda: bad.honest(CONTENT[:1000]),
    "a body that ends early": lambda: bad.short_body(len(CONTENT), 1000),
    "a part that ends early": lambda: bad.short_body(1 << 20, 1000, 206, {"Content-Range": f"bytes 0-{(1 << 20) - 1}/{len(CONTENT)}"}),
    "another part": lambda: _part(17, 1 << 20),
    "a part that is too short": lambda: _part(0, 1000),
    "a part that is too long": lambda: _part(0, len(CONTENT)),
    "a part without a range": lambda: bad.answering(206, {"Content-Length": 1 << 20}, CONTENT[: 1 << 20]),
    "a range in another unit": lambda: bad.answering(206, {"Content-Length": 9, "Content-Range": "pages 0-8/9"}, b"x" * 9),
    "many parts": lambda: bad.answering(
        206, {"Content-Length": 40, "Content-Type": "multipart/byteranges; boundary=B"}, b"--B" + b"-" * 37
    ),
    "the whole for a part": lambda: bad.answering(200, {"Content-Length": len(CONTENT), "ETag": f'"{ETAG}"'}, CONTENT),
    "a longer object": lambda: bad.honest(CONTENT + b"more"),
    "another version": lambda: bad.honest(b"!" * len(CONTENT), _OTHER),
    "a packed body": lambda: bad.answering(200, {"Content-Encoding": "gzip", "Content-Length": 40}, b"\x1f\x8b" + b"x" * 38),
    "two lengths": lambda: bad.answering(206, {"Content-Length": "5, 6"}, b"xxxxxx"),
    "a length below zero": lambda: bad.answering(200, {"Content-Length": -1}, b"x"),
    "a length without end": lambda: bad.answering(200, {"Content-Length": 10**30}, b"x"),
    "nothing at all": bad.resetting,
    "a redirect to the metadata": lambda: bad.redirecting("http://169.254.169.254/latest/meta-data/"),
    "a redirect to itself": lambda: bad.redirecting("/m.py"),
}


@pytest.fixture(scope="module")
def honest_mib(sidecar: Sidecar, store: HonestStore) -> float:
    """What the first honest pull takes, its client included: the first of a kind may need more than one budget on a busy machine."""
    with Hell(store.honest) as server:
        key = sidecar.add_key(store.config(server.url))

        def is_loaded() -> bool:
            try:
                sidecar.mesh.load("honest", "python", KEY, storage_key=key)
            except grpc.RpcError as failure:
                if failure.code() is LATE:
                    return False
                raise
            return True

        with sidecar.growth() as grown:
            until(is_loaded, "the honest model is loaded")
        sidecar.mesh.unload("honest")
    return grown[0]


def test_endless_answers_end_by_themselves(store: HonestStore, sidecar: Sidecar) -> None:
    """All at once: none of them is read for longer than the bounds allow. One by one, with its memory: below."""
    servers = [(f"{kind} in {phase}", Hell(store.spoiled(phase, make()))) for kind, make in ENDLESS.items() for phase in PHASES]
    with sidecar.growth() as grown:
        failures = _loaded_at_once(sidecar, store, "endless", servers)
    for number in range(len(servers)):
        sidecar.mesh.unload(f"endless-{number}")
    assert not {name: failure for name, failure in failures.items() if failure and failure.code() not in (*TOLD, WRONG, LATE)}
    assert not {name: failure for name, failure in failures.items() if failure and "internal error" in (failure.details() or "")}
    assert not {name: server.sent_bytes for name, server in servers if server.sent_bytes >= BIG_BYTES}
    assert grown[0] <= MOST_AT_ONCE_MIB


def test_no_lie_becomes_a_model(store: HonestStore, sidecar: Sidecar, fake_triton: BackgroundTriton) -> None:
    """All at once: a load fails in words, or what Triton sees is what the store has, byte for byte; nothing is left of the others."""
    servers = [(f"{kind} in {phase}", Hell(store.spoiled(phase, make()))) for kind, make in LIES.items() for phase in PHASES]
    failures = _loaded_at_once(sidecar, store, "lie", servers)
    served = {name: fake_triton.repository / f"lie-{number}/1/model.py" for number, name in enumerate(failures)}
    try:
        right = (CONTENT, b"")  # a web server may say that the file is empty
        models = {name: path.read_bytes() for name, path in served.items() if failures[name] is None}
        assert not {name for name, found in models.items() if found not in (right if name.endswith("listing") else (CONTENT,))}
        failed = {name: failure for name, failure in failures.items() if failure is not None}
        assert not {name: failure for name, failure in failed.items() if failure.code() not in (*TOLD, WRONG, LATE)}
        assert not {name for name, failure in failed.items() if "internal error" in failure.details()}
        assert all(failures[f"{kind} in reading"] for kind in ("another version", "a longer object", "another part"))
    finally:
        for number in range(len(servers)):
            sidecar.mesh.unload(f"lie-{number}")
    assert list(fake_triton.repository.iterdir()) == []


def test_a_handshake_that_stalls_is_given_up(sidecar: Sidecar) -> None:
    """A stop is heard; without one, the end of the budget says what was waited for. Each type of store at once."""
    calls = {}
    with ExitStack() as stack:
        for kind, store in STORES.items():
            server = stack.enter_context(Hell(store.honest, stalls_in_tls=True))
            key = sidecar.add_key(store.config(server.url))
            load = sidecar.begin(key)
            assert server.hanging.wait(10)
            sidecar.stop(load)
            calls[kind] = sidecar.begin(key, kind)
        failures = {kind: call.exception() for kind, call in calls.items()}
    assert not {kind for kind, failure in failures.items() if failure is None or failure.code() not in (AWAY, LATE)}
    assert all("TLS handshake" in failure.details() for failure in failures.values())


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("kind", [*SLOW, "chunks", "headers"])
def test_a_stop_is_heard_at_once(kind: str, phase: str, store: HonestStore, hell: Hell, sidecar: Sidecar) -> None:
    """The caller goes while the answer is awaited: the undo is over within three seconds."""
    spoiled = store.spoiled(phase, ({**ENDLESS, **SLOW})[kind]())
    arrived: list[object] = []

    def behaviour(peer: bad.Peer) -> None:
        if store.is_listing(peer) == (phase == "listing"):
            arrived.append(peer)
        spoiled(peer)

    hell.behaviour = behaviour
    key = sidecar.add_key(store.config(hell.url))
    load = sidecar.begin(key)
    until(lambda: arrived, "the request has come")
    sidecar.stop(load)


def test_slow_answers_end_with_the_budget(store: HonestStore, sidecar: Sidecar) -> None:
    """All at once, each from an endpoint of its own: each load says what it waited for, before ModelMesh gives up."""
    servers = [(f"{kind} in {phase}", Hell(store.spoiled(phase, make()))) for kind, make in SLOW.items() for phase in PHASES]
    begun = time.monotonic()
    failures = _loaded_at_once(sidecar, store, "slow", servers)
    seconds = time.monotonic() - begun
    failed = {name: failure for name, failure in failures.items() if failure is not None}
    assert failures.keys() - failed.keys() <= {f"a body that {does} in listing" for does in ("trickles", "stalls")}, "web servers have none"
    assert not {name: failure for name, failure in failed.items() if failure.code() not in (AWAY, LATE)}
    assert all("127.0.0.1" in failure.details() or KEY in failure.details() for failure in failed.values())
    assert seconds < BUDGET_SECONDS + STOP_SECONDS


@pytest.mark.parametrize("kind", ["chunks", "an error", "headers", "100 Continue", "silence", "headers that trickle"])
def test_a_prediction_is_quick_whatever_the_store_does(
    kind: str, store: HonestStore, hell: Hell, sidecar: Sidecar, honest_mib: float
) -> None:
    """ModelMesh waits half a second; memory has the same bound."""
    hell.behaviour = store.spoiled("listing", ({**ENDLESS, **SLOW})[kind]())
    key = sidecar.add_key(store.config(hell.url))
    request = predict_request("m", "python", KEY, storage_key=key)
    with sidecar.growth() as grown:
        begun = time.monotonic()
        assert sidecar.mesh.runtime.predictModelSize(request, timeout=30).sizeInBytes > 8192
        seconds = time.monotonic() - begun
    assert grown[0] - honest_mib <= MOST_MIB
    assert seconds < 3 * PREDICT_SECONDS, "a busy machine may add to the 0.3 s, a store may not"


def _loaded_at_once(sidecar: Sidecar, store: HonestStore, prefix: str, servers: list[tuple[str, Hell]]) -> dict[str, grpc.RpcError | None]:
    """How a load from each of these servers ended; the models are numbered."""
    calls = {}
    with ExitStack() as stack:
        for number, (name, server) in enumerate(servers):
            key = sidecar.add_key(store.config(stack.enter_context(server).url))
            calls[name] = sidecar.begin(key, f"{prefix}-{number}")
        return {name: call.exception() for name, call in calls.items()}
