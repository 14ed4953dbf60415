"""`probe --host`: every address of a name is asked over HTTP, and no pod is no failure."""

import contextlib
import errno
import io
import socket
from contextlib import ExitStack, closing
from typing import Any

import pytest

from adapter import cli
from adapter.telemetry.http import TelemetryServer
from tests.fakes import hell
from tests.fakes.hell import Hell

NAME = "adapters.models.svc"
FREE_BESIDE = ("127.0.0.2", "127.0.0.3", "127.0.0.4")
"""On Linux all of 127.0.0.0/8 is this machine: each address is a pod of its own."""


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What a name stands for: addresses, or what `getaddrinfo` raises, or a call. Addresses stand for themselves."""
    monkeypatch.setenv("ADAPTER_ENDPOINT", "wrong, and not asked for")
    known: dict[str, Any] = {}
    genuine = socket.getaddrinfo

    def look_up(host: str, port: Any, *args: Any, **options: Any) -> Any:
        found = known.get(host)
        if found is None:
            return genuine(host, port, *args, **options)
        found = found() if callable(found) else found
        if isinstance(found, Exception):
            raise found
        families = [socket.AF_INET6 if ":" in each else socket.AF_INET for each in found]
        return [(family, socket.SOCK_STREAM, 6, "", (each, 0)) for family, each in zip(families, found, strict=True)]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return known


def answering(address: str, port: int, status: int, body: bytes) -> Hell:
    """A pod that answers so."""
    return Hell(hell.answering(status, body=body), host=address, port=port)


def ask(port: int, *, ready: bool = True, timeout_seconds: float = 10, name: str = NAME) -> tuple[bool, list[str]]:
    """Whether the exit code is 0, and the lines."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        words = ["--ready"] if ready else []
        code = cli.main(["probe", *words, "--host", f"{name}:{port}", "--timeout", str(timeout_seconds)])
    assert code in (0, 1)
    return code == cli.OK, out.getvalue().splitlines()


def raising(code: int) -> socket.gaierror:
    return socket.gaierror(code, "Temporary failure in name resolution")


def test_every_address_has_a_line_and_one_bad_pod_decides(names: dict[str, Any]) -> None:
    """The address, the status, the text; sorted, so that two runs can be compared."""
    names[NAME] = FREE_BESIDE[::-1]
    with ExitStack() as stack:
        port = stack.enter_context(answering(FREE_BESIDE[0], 0, 200, b"ready\n")).port
        stack.enter_context(answering(FREE_BESIDE[1], port, 503, b"not ready: Triton does not answer at localhost:8001\n"))
        are_well, lines = ask(port)

    assert not are_well
    assert lines == [
        f"127.0.0.2:{port}: 200 ready",
        f"127.0.0.3:{port}: 503 not ready: Triton does not answer at localhost:8001",
        f"127.0.0.4:{port}: no answer: [Errno 111] Connection refused",
    ]


@pytest.mark.parametrize(("ready", "path", "word"), [(True, "/readyz", "ready"), (False, "/healthz", "alive")])
def test_both_questions_go_to_the_adapters_own_server(ready: bool, path: str, word: str, names: dict[str, Any]) -> None:
    """The words that a pod is known by are the ones that the adapter says; IPv6 has its brackets."""
    server = TelemetryServer(port=0, readiness=lambda: None, notice=lambda: None)
    written = ["127.0.0.1", *(["[::1]"] if socket.has_dualstack_ipv6() else [])]
    names[NAME] = [address.strip("[]") for address in written]
    try:
        assert ask(server.port, ready=ready) == (True, [f"{address}:{server.port}: 200 {word}" for address in written])
    finally:
        server.close()
    with answering("127.0.0.1", 0, 200, b"ready; restoring 7 of 10\n") as pod:
        assert ask(pod.port, ready=ready, name="127.0.0.1")[0] is ready
        assert [request.target for request in pod.requests] == [path]


def test_another_server_is_no_ready_adapter(names: dict[str, Any]) -> None:
    """A Service that selects the wrong pods, or a page of a proxy; what it says cannot spoil the terminal."""
    names[NAME] = [FREE_BESIDE[0]]
    with answering(FREE_BESIDE[0], 0, 200, b"<html>\x1b[31m\r\nhello\xff") as pod:
        assert ask(pod.port) == (False, [f"127.0.0.2:{pod.port}: 200 <html> [31m hello�"])


@pytest.mark.parametrize("code", [socket.EAI_NONAME, socket.EAI_NODATA])
def test_a_name_without_an_address_is_no_failure(code: int, names: dict[str, Any]) -> None:
    """Scale to zero: a headless Service without pods."""
    names[NAME] = raising(code)

    assert ask(9464) == (True, [f"{NAME} has no address, so there is no pod: with scale to zero, pods come with the first model"])


@pytest.mark.parametrize("code", [socket.EAI_AGAIN, socket.EAI_FAIL])
def test_a_look_up_without_an_answer_is_a_failure(code: int, names: dict[str, Any]) -> None:
    """Never "no pod"."""
    names[NAME] = raising(code)

    assert ask(9464) == (False, [f"{NAME} cannot be looked up: [Errno {code}] Temporary failure in name resolution"])


@pytest.mark.parametrize("name", ["a..b", "x" * 64])
def test_what_no_host_can_be_called_is_told(name: str) -> None:
    """Python's resolver raises something else for these."""
    are_well, (line,) = ask(9464, name=name)

    assert not are_well
    assert line.startswith(f"{name} cannot be looked up: ")


def test_a_pod_that_says_nothing_keeps_no_other_one(names: dict[str, Any]) -> None:
    names[NAME] = FREE_BESIDE[:2]
    with closing(socket.create_server((FREE_BESIDE[0], 0))) as silent:
        port = silent.getsockname()[1]
        with answering(FREE_BESIDE[1], port, 200, b"ready\n"):
            are_well, lines = ask(port, timeout_seconds=0.3)

    assert not are_well
    assert lines == [f"127.0.0.2:{port}: no answer: timed out", f"127.0.0.3:{port}: 200 ready"]


@pytest.mark.parametrize("begin", [b"HTTP/1.1 200 OK\r\n\r\nready", b"HTTP/1.1 200 OK\r\nX: y"])
def test_a_pod_whose_answer_never_ends_is_given_up_on(begin: bytes, names: dict[str, Any]) -> None:
    """A letter now and then is no sign of life: the time is for all of the answer."""
    names[NAME] = [FREE_BESIDE[0]]
    with Hell(hell.forever(begin, b"x", 0.05), host=FREE_BESIDE[0]) as pod:
        assert ask(pod.port, timeout_seconds=0.5) == (False, [f"127.0.0.2:{pod.port}: no answer: timed out"])


def test_a_body_without_end_takes_bounded_memory(names: dict[str, Any]) -> None:
    names[NAME] = [FREE_BESIDE[0]]
    with Hell(hell.endless_body(), host=FREE_BESIDE[0]) as pod:
        are_well, (line,) = ask(pod.port)

    assert (are_well, line.partition(" ")[2]) == (False, "200 ")


@pytest.mark.parametrize("spoil", [hell.forever(b"SSH-2.0-x\r\n", b"x"), lambda peer: peer.hang_up()])
def test_what_is_no_http_is_no_answer(spoil: hell.Behaviour, names: dict[str, Any]) -> None:
    """Words for the cause, no traceback."""
    names[NAME] = [FREE_BESIDE[0]]
    with Hell(spoil, host=FREE_BESIDE[0]) as pod:
        are_well, (line,) = ask(pod.port)

    assert not are_well
    assert ": no answer: " in line


def test_no_proxy_of_the_environment_is_used(names: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster's proxy knows no pod."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    names[NAME] = [FREE_BESIDE[0]]
    with answering(FREE_BESIDE[0], 0, 200, b"ready\n") as pod:
        assert ask(pod.port)[0]


def test_an_unreachable_address_is_told_in_words(names: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """As a machine without IPv6 says it."""

    def refuse(*_: Any, **__: Any) -> socket.socket:
        raise OSError(errno.ENETUNREACH, "Network is unreachable")

    monkeypatch.setattr(socket, "create_connection", refuse)
    names[NAME] = ["fd00::1"]

    assert ask(9464) == (False, ["[fd00::1]:9464: no answer: [Errno 101] Network is unreachable"])
