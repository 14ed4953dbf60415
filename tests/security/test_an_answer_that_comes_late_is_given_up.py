"""The head of an answer has ten seconds in all, however its bytes are spread."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from tests.fakes.background_triton import BackgroundTriton
from tests.fakes.hell import Hell, Peer
from tests.real.pod import Pod
from tests.security.conftest import Sidecar
from tests.security.stores import STORES

HEAD_SECONDS, LATE_SECONDS = 10, 4
"""What the text and the page say, and what a busy machine may add. The defect adds nine and a half."""


@pytest.mark.long
def test_a_head_that_begins_late_and_drips_has_no_time_of_its_own(fake_triton: BackgroundTriton, tmp_path: Path) -> None:
    """Its first byte comes after nine seconds, and one line every 0.2 s after that; of a file, since a listing is given up in time."""
    lasted: list[float] = []
    is_over = threading.Event()

    def late(peer: Peer) -> None:
        begun = time.monotonic()
        try:
            peer.pause(9)
            peer.send(b"HTTP/1.1 206 OK\r\n")
            while True:
                peer.send(b"X-Slow: 1\r\n")
                peer.pause(0.2)
        finally:
            lasted.append(time.monotonic() - begun)
            is_over.set()

    with (
        Hell(STORES["s3"].spoiled("reading", late)) as server,
        Pod(fake_triton.repository.parent, tmp_path, {"LOADTIME_TIMEOUT": "60000"}, target=fake_triton.target) as pod,
    ):
        pod.mesh.start()
        sidecar = Sidecar(pod.adapter, pod.mesh, tmp_path)
        key = sidecar.add_key(STORES["s3"].config(server.url))
        load = sidecar.begin(key)
        assert is_over.wait(60)
        sidecar.stop(load)
    assert HEAD_SECONDS - 1 < lasted[0] < HEAD_SECONDS + LATE_SECONDS
