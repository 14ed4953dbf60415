"""
What Triton's own metrics say of GPUs: used and total bytes of each.

They are refreshed every two seconds (`--metrics-interval-ms`), and absent without a GPU, and with MIG. Source: Triton's `metrics.md`.
"""

from __future__ import annotations

import re
from contextlib import closing
from http.client import HTTPConnection, HTTPException
from typing import NamedTuple

from adapter.model import MAX_SIZE_BYTES
from adapter.units import MIB, Endpoint

MAX_ANSWER_BYTES = 32 * MIB
"""A Triton of thousands of models has long metrics."""
MAX_DEVICES = 64
ASK_SECONDS = 2.0
_LINE = re.compile(
    rb'^nv_gpu_memory_(used|total)_bytes\{[^}\n]*gpu_uuid="([\w.-]{1,128})"[^}\n]*\} (\d{1,19}(?:\.\d{1,19})?(?:e\+?\d{1,2})?)[ \r]*$', re.M
)


class Device(NamedTuple):
    """The memory of one GPU."""

    used_bytes: int
    total_bytes: int


def parsed(text: bytes) -> dict[str, Device]:
    """By the GPU's UUID; those of which both numbers are there."""
    numbers: dict[str, dict[bytes, int]] = {}
    for kind, uuid, number in _LINE.findall(text):
        if uuid.decode() in numbers or len(numbers) < MAX_DEVICES:
            numbers.setdefault(uuid.decode(), {})[kind] = int(float(number))
    found = {uuid: Device(each.get(b"used", -1), each.get(b"total", -1)) for uuid, each in numbers.items()}
    return {uuid: device for uuid, device in found.items() if 0 <= device.used_bytes <= device.total_bytes <= MAX_SIZE_BYTES}


def asked(endpoint: Endpoint) -> dict[str, Device]:
    """
    As `parsed`, of a Triton's metrics now. Blocks.

    Raises:
        OSError: no answer, or one that is no metrics.
    """
    with closing(HTTPConnection(endpoint.host, endpoint.port, timeout=ASK_SECONDS)) as connection:
        try:
            connection.request("GET", "/metrics", headers={"Connection": "close"})
            answer = connection.getresponse()
            text = answer.read(MAX_ANSWER_BYTES + 1)
        except (HTTPException, ValueError) as error:
            raise OSError(f"no HTTP answer: {error!r}") from error
    if answer.status != 200 or len(text) > MAX_ANSWER_BYTES:
        raise OSError(f"status {answer.status}, {len(text):,} bytes")
    return parsed(text)
