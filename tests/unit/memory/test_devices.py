"""Memory of GPUs, from metrics as a Triton with an H100 has told them, and from an exporter that misbehaves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import pytest

from adapter.memory import devices
from adapter.memory.devices import Device, asked, parsed
from adapter.units import Endpoint
from tests.fakes.hell import answering
from tests.fakes.raw_server import Behaviour, Hell, Peer

RECORDED = b"""# HELP nv_inference_request_success Number of successful inference requests, all batch sizes
# TYPE nv_inference_request_success counter
nv_inference_request_success{model="digits",version="1"} 17
# HELP nv_gpu_memory_total_bytes GPU total memory, in bytes
# TYPE nv_gpu_memory_total_bytes gauge
nv_gpu_memory_total_bytes{gpu_uuid="GPU-dcafe381-ddcd-2122-7fe0-6d559997ea0a"} 85520809984
nv_gpu_memory_total_bytes{gpu_uuid="GPU-0c3d4e7c-1111-2222-3333-444455556666"} 8.589934592e+10
# HELP nv_gpu_memory_used_bytes GPU used memory, in bytes
# TYPE nv_gpu_memory_used_bytes gauge
nv_gpu_memory_used_bytes{gpu_uuid="GPU-dcafe381-ddcd-2122-7fe0-6d559997ea0a"} 618659840
nv_gpu_memory_used_bytes{gpu_uuid="GPU-0c3d4e7c-1111-2222-3333-444455556666"} 0.000000
"""
"""Triton 2.51 with driver 580.159; the second GPU is added in the same form, with numbers that Prometheus also allows."""


def test_used_and_total_of_each_gpu() -> None:
    assert parsed(RECORDED) == {
        "GPU-dcafe381-ddcd-2122-7fe0-6d559997ea0a": Device(618_659_840, 85_520_809_984),
        "GPU-0c3d4e7c-1111-2222-3333-444455556666": Device(0, 85_899_345_920),
    }


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b'nv_gpu_memory_used_bytes{gpu_uuid="a"} 5',
        b'nv_gpu_memory_used_bytes{gpu_uuid="a"} 5\nnv_gpu_memory_total_bytes{gpu_uuid="a"} 4\n',
        b'nv_gpu_memory_used_bytes{gpu_uuid="a"} nan\nnv_gpu_memory_total_bytes{gpu_uuid="a"} 1e99\n',
        b'nv_gpu_memory_used_bytes{gpu_uuid="a"} -1\nnv_gpu_memory_total_bytes{gpu_uuid="a"} 4\n',
    ],
)
def test_what_is_not_both_numbers_is_no_gpu(text: bytes) -> None:
    """As with MIG, where they are absent."""
    assert parsed(text) == {}


def test_more_gpus_than_any_machine_has_are_not_kept() -> None:
    lines = "".join(f'nv_gpu_memory_{kind}_bytes{{gpu_uuid="g{n}"}} 1\n' for n in range(1000) for kind in ("used", "total"))
    assert len(parsed(lines.encode())) == devices.MAX_DEVICES


@contextmanager
def exporting(behaviour: Behaviour) -> Iterator[Endpoint]:
    """An exporter on loopback."""
    with Hell(behaviour) as server:
        yield Endpoint(host="127.0.0.1", port=server.port)


def rubbish(peer: Peer) -> None:
    """No answer of HTTP."""
    peer.send(b"rubbish\r\n")
    peer.hang_up()


def test_an_exporter_is_asked() -> None:
    with exporting(answering(200, body=RECORDED)) as endpoint:
        assert len(asked(endpoint)) == 2


def test_an_exporter_that_misbehaves_tells_nothing() -> None:
    with exporting(answering(404, body=RECORDED)) as endpoint, pytest.raises(OSError, match="404"):
        asked(endpoint)
    with exporting(rubbish) as endpoint, pytest.raises(OSError, match="HTTP"):
        asked(endpoint)
    with (
        mock.patch.object(devices, "MAX_ANSWER_BYTES", 100),
        exporting(answering(200, body=RECORDED)) as endpoint,
        pytest.raises(OSError, match="101"),
    ):
        asked(endpoint)
    with pytest.raises(OSError, match="refused"):
        asked(endpoint)
