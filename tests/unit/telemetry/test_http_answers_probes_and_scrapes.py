"""Metrics and probes over HTTP, from threads that live when the event loop does not."""

import http.client
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from http import HTTPStatus

import pytest
from prometheus_client.parser import text_string_to_metric_families

from adapter.errors import ListenError
from adapter.telemetry import http as telemetry_http
from adapter.telemetry import metrics
from adapter.telemetry.http import CONNECTIONS, STUCK_AFTER_SECONDS, TelemetryServer
from adapter.triton.server import Health, Stuck
from tests.tables import metrics_markdown


class Clock:
    """Time that the test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@contextmanager
def serving(
    clock: Clock | None = None,
    readiness: Callable[[], str | None] = lambda: None,
    notice: Callable[[], str | None] = lambda: None,
    triton: Callable[[], Health] | None = None,
) -> Iterator[TelemetryServer]:
    server = TelemetryServer(port=0, readiness=readiness, notice=notice, triton=triton, clock=clock or Clock())
    try:
        yield server
    finally:
        server.close()


def ask(server: TelemetryServer, path: str, method: str = "GET", host: str = "127.0.0.1") -> tuple[int, str, http.client.HTTPMessage]:
    with closing(http.client.HTTPConnection(host, server.port, timeout=10)) as connection:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, response.read().decode(), response.headers


def test_metrics_are_prometheus_text() -> None:
    """Ours and those of the process."""
    with serving() as server:
        status, body, headers = ask(server, "/metrics")

    families = {family.name for family in text_string_to_metric_families(body)}
    assert status == 200
    assert headers["Content-Type"].startswith("text/plain; version=")
    assert {"triton_adapter_rpc_seconds", "triton_adapter_models", "process_resident_memory_bytes", "process_open_fds"} <= families


def test_alive_while_the_loop_beats() -> None:
    """Red only when the event loop has been stuck for longer than a probe's period."""
    clock = Clock()
    with serving(clock) as server:
        assert ask(server, "/healthz")[:2] == (200, "alive\n")

        clock.now += STUCK_AFTER_SECONDS
        assert ask(server, "/healthz")[0] == 200

        clock.now += 2
        assert ask(server, "/healthz")[:2] == (503, "the event loop has not run for 12 s\n")
        assert ask(server, "/readyz")[0] == 503


def test_not_ready_says_why() -> None:
    """Triton away is not the adapter dead."""
    with serving(readiness=lambda: "Triton does not answer on http://user:pw@host: ö") as server:
        assert ask(server, "/readyz")[:2] == (503, "not ready: Triton does not answer on http://host: ö\n")
        assert ask(server, "/healthz")[0] == 200
    with serving() as server:
        assert ask(server, "/readyz")[:2] == (200, "ready\n")


def test_ready_is_a_metric_too() -> None:
    """An alert cannot ask `/readyz`."""
    clock = Clock()
    problems = ["Triton does not answer"]
    with serving(clock, readiness=lambda: "; ".join(problems) or None) as server:
        assert "\ntriton_adapter_ready 0.0\n" in ask(server, "/metrics")[1]

        problems.clear()
        assert "\ntriton_adapter_ready 1.0\n" in ask(server, "/metrics")[1]

        clock.now += STUCK_AFTER_SECONDS + 2
        assert "\ntriton_adapter_ready 0.0\n" in ask(server, "/metrics")[1]


def test_ready_says_what_is_under_way() -> None:
    """Models come back: ModelMesh can be served meanwhile."""
    with serving(notice=lambda: "restoring 7 of 10") as server:
        assert ask(server, "/readyz")[:2] == (200, "ready; restoring 7 of 10\n")
    with serving(readiness=lambda: "Triton does not answer", notice=lambda: "restoring 7 of 10") as server:
        assert ask(server, "/readyz")[:2] == (503, "not ready: Triton does not answer\n")


HEALTHY = Health(is_live=True, silent_seconds=0.21, load_threads=4, stuck=(Stuck("load", "…m", 412),), why=None)
SICK = Health(is_live=False, silent_seconds=61.3, load_threads=4, stuck=(), why="Triton is silent")


def test_tritons_health_is_one_line_of_json() -> None:
    """503 only where nothing but a restart can help."""
    with serving(triton=lambda: HEALTHY) as server:
        status, body, headers = ask(server, "/healthz/triton")
        assert (status, headers["Content-Type"]) == (200, "application/json")
        assert body == (
            '{"format":1,"live":true,"silent_seconds":0.2,"load_threads":4,'
            '"stuck":[{"kind":"load","model_id":"\\u2026m","seconds":412}],"why":null}\n'
        )
    with serving(triton=lambda: SICK) as server:
        status, body, _ = ask(server, "/healthz/triton")
        assert status == 503
        assert body == '{"format":1,"live":false,"silent_seconds":61.3,"load_threads":4,"stuck":[],"why":"Triton is silent"}\n'


def test_an_adapter_whose_loop_is_stuck_asks_for_no_restart_of_triton() -> None:
    """It has heard nothing of Triton because it did not listen."""
    clock = Clock()
    with serving(clock, triton=lambda: SICK) as server:
        clock.now += STUCK_AFTER_SECONDS + 2

        status, body, _ = ask(server, "/healthz/triton")

    assert (status, body) == (500, "nothing is known of Triton: the adapter's event loop has not run for 12 s\n")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/metrics/", 404),
        ("GET", "/metrics?name[]=x", 200),
        ("GET", "/../healthz", 404),
        ("POST", "/healthz", 405),
        ("PUT", "/metrics", 405),
        ("DELETE", "/metrics", 405),
        ("PATCH", "/", 405),
        ("OPTIONS", "/healthz", 405),
        ("BREW", "/healthz", 405),
    ],
)
def test_only_three_paths_can_only_be_read(method: str, path: str, status: int) -> None:
    """Anything else is refused as HTTP says."""
    with serving() as server:
        answer = ask(server, path, method)

    assert answer[0] == status
    assert answer[2]["Allow"] == "GET, HEAD"


def test_port_in_use_is_one_sentence() -> None:
    """Another adapter, or ModelMesh's own metrics."""
    with serving() as first:
        with pytest.raises(ListenError, match=f"METRICS_PORT {first.port} cannot be used: address already in use"):
            TelemetryServer(port=first.port, readiness=lambda: None)
        assert ask(first, "/healthz")[0] == 200


def test_an_honest_client_behind_a_flood_is_answered() -> None:
    """Hundreds of connections that say nothing; a second flood comes while he asks. Open sockets are bounded, the oldest ones end."""
    with serving() as server, clients(server, CONNECTIONS) as first:
        began = time.monotonic()
        assert ask(server, "/healthz")[0] == 200
        with clients(server, CONNECTIONS) as second:
            assert ask(server, "/metrics")[0] == 200
            assert time.monotonic() - began < telemetry_http.CLIENT_SECONDS

            assert len(ours()) == 1
            assert all(connection.recv(1) == b"" for connection in first)
            assert select.select(second[1:], [], [], 0)[0] == []
    assert not ours()


def test_clients_that_do_not_take_their_answers_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """After their time is up, or when as many others have come."""
    answer = HTTPStatus.OK, "text/plain", b"x" * (16 << 20)
    monkeypatch.setattr(telemetry_http, "_metrics", lambda: answer)
    monkeypatch.setattr(telemetry_http, "CLIENT_SECONDS", 1.0)
    monkeypatch.setattr(telemetry_http, "CONNECTIONS", 8)
    says = b"GET /metrics HTTP/1.1\r\n\r\n"
    with serving() as server, clients(server, 8, says=says) as first, clients(server, 8, says=says) as second:
        assert ask(server, "/healthz")[0] == 200
        time.sleep(1.5)
        for connection in (*first, *second):
            with suppress(ConnectionResetError):
                assert sum(map(len, iter(lambda taken=connection: taken.recv(1 << 20), b""))) < len(answer[2])
    assert not ours()


@contextmanager
def clients(server: TelemetryServer, count: int, says: bytes = b"") -> Iterator[list[socket.socket]]:
    """`count` connections, each of which sends `says`."""
    with ExitStack() as stack:
        opened = [stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=10)) for _ in range(count)]
        for connection in opened if says else []:
            with suppress(OSError):
                connection.sendall(says)
        yield opened


def ours() -> list[str]:
    """Threads of the server."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("telemetry-http")]


def test_client_that_dribbles_is_cut_off_by_one_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte now and then does not keep a thread: the deadline is for the whole request."""
    monkeypatch.setattr(telemetry_http, "CLIENT_SECONDS", 0.2)
    with serving() as server, closing(socket.create_connection(("127.0.0.1", server.port))) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nX: ")
        sent = 0
        while not select.select([connection], [], [], 0.02)[0] and sent < 1000:
            sent += connection.send(b"x")

        with suppress(ConnectionResetError):
            assert connection.recv(100) == b""  # it hung up in the middle of our request

    assert 0 < sent < 1000


def test_readme_table_has_every_metric_with_a_unit() -> None:
    """Each metric that is registered is in the table, with the name that Prometheus shows."""
    rows = metrics_markdown().splitlines()[2:]
    described = {row.split("`")[1] for row in rows}

    registered = {
        f"{family.name}_total" if family.type == "counter" else family.name
        for family in metrics.REGISTRY.collect()
        if not family.name.startswith("process_")
    }
    assert described == registered
    assert all(name.startswith("triton_adapter_") for name in described)
