"""Settings that cannot work end the start, with the name of each: sizes below zero, and two listeners on one address."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.real.adapter import AdapterProcess
from tests.real.polls import until
from tests.real.ports import free_ports

TRITON = "127.0.0.1:1"
"""Is not there: none of these starts needs it."""
USAGE = 2


def started(folder: Path, **env: str) -> AdapterProcess:
    """An adapter that is started with these settings, whatever comes of it."""
    (folder / "volume").mkdir()
    return AdapterProcess(volume=folder / "volume", storage_config=folder, triton_target=TRITON, env=env, wait=False)


@pytest.mark.parametrize("name", ["HTTP_MAX_REQUESTS", "HTTP_MAX_BODY_BYTES", "UNPACK_MAX_BYTES", "REST_PROXY_GRPC_MAX_MSG_SIZE_BYTES"])
def test_a_size_below_zero_is_refused(name: str, tmp_path: Path) -> None:
    """By its name. A start that answers is no refusal."""
    with started(tmp_path, V2_REST_PORT=str(free_ports(1)[0]), **{name: "-1"}) as adapter:
        until(lambda: adapter.returncode is not None or adapter.answers(), "the start has an end", 30)
        assert adapter.returncode == USAGE, "it has started"
        assert name in adapter.log_text()


def test_two_listeners_on_one_address_are_refused_by_both_names(tmp_path: Path) -> None:
    """Before either of them listens."""
    (port,) = free_ports(1)
    with started(tmp_path, ADAPTER_ENDPOINT=f"127.0.0.1:{port}", V2_REST_PORT=str(port)) as adapter:
        assert adapter.wait(30) == USAGE
        assert "ADAPTER_ENDPOINT" in adapter.log_text() and "V2_REST_PORT" in adapter.log_text()
