"""GCS and Azure: what a server answers to a listing takes no more memory than we chose, measured in a process of its own."""

from __future__ import annotations

import ctypes
import gc
import json
import sys
from pathlib import Path

import pytest

from adapter.errors import AdapterError
from adapter.workers import Stop
from tests.fakes.hell import Hell
from tests.security import unmeasured
from tests.security.chosen import long_but
from tests.security.clouds import ROW, bucket_of, cloud, page, values

MOST_MIB = 64
"""Above what an honest page of 1,000 names of 1 KiB takes."""
_BYTES = 4 * 1024 * 1024 - 70_000
"""As much as a page may have."""


def _filled(begin: bytes, some: bytes, end: bytes = b"") -> bytes:
    return begin + some * ((_BYTES - len(begin) - len(end)) // len(some)) + end


def _honest_rows() -> list[str]:
    return [f"{number:04}" + "a" * 1020 for number in range(1000)]


def _blob(name: str) -> str:
    properties = "<Etag>0x8D4</Etag><Content-Length>1</Content-Length><BlobType>BlockBlob</BlobType>"
    return f"<Blob><Name>{name}</Name><Properties>{properties}</Properties></Blob>"


def _honest_page() -> bytes:
    return f"<E><Blobs>{''.join(_blob(name) for name in _honest_rows())}</Blobs></E>".encode()


BODIES = {
    "gcs": {
        "honest": lambda: json.dumps({"items": [{**ROW, "name": name} for name in _honest_rows()]}).encode(),
        "lists": lambda: _filled(b"[", b"[],", b"[]]"),
        "objects": lambda: _filled(b"[", b"{},", b"{}]"),
        "deep": lambda: _filled(b"", b"["),
        "strings": lambda: _filled(b"[", b'"ab",', b'""]'),
        "one string": lambda: _filled(b'{"a": "', b"\\u0041", b'"}'),
        "a wide string": lambda: _filled(b'{"a": "', b"a", '\U0001f600"}'.encode()),
        "numbers": lambda: _filled(b"[", b"1.5,", b"1]"),
    },
    "azure": {
        "honest": _honest_page,
        "elements": lambda: _filled(b"<x>", b"<a/>", b"</x>"),
        "deep": lambda: _filled(b"", b"<a>"),
        "attributes": lambda: b"<x " + b" ".join(b'a%d=""' % number for number in range(_BYTES // 12)) + b"/>",
        "as many elements as a page has": lambda: b"<x>" + b"<a/>" * 120_000 + b"</x>",
        "one text": lambda: _filled(b"<x>", b"a", b"</x>"),
        "a wide text": lambda: _filled(b"<x>", b"a", "\U0001f600</x>".encode()),
        "entities": lambda: _filled(b'<!DOCTYPE x [<!ENTITY a "aaaaaaaaaaaaaaaa">]><x>', b"&a;", b"</x>"),
    },
}
CASES = [(kind, name) for kind, bodies in BODIES.items() for name in bodies if name != "honest"]


def measure() -> None:
    """Print how many KiB the process had at most, above what it had before; runs as a process of its own."""
    kind, name = sys.argv[1:]
    body = BODIES[kind][name]()
    for listing in (page(kind, BODIES[kind]["honest"]()), page(kind, body)):
        with Hell(cloud(kind, listing=listing)) as server:
            bucket = bucket_of(values(kind, server.url))
            gc.collect()
            ctypes.CDLL(None).malloc_trim(0)
            Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew: proc(5)
            before = _kib("VmRSS")
            try:
                bucket.list_page("m/", Stop())
            except AdapterError as error:
                assert "gave an answer that is not" in error.text, error.text
            print(_kib("VmHWM") - before)


def _kib(field: str) -> int:
    return int(Path("/proc/self/status").read_text().partition(f"{field}:")[2].split()[0])


@pytest.mark.parametrize(("kind", "name"), long_but(CASES, ("gcs", "numbers"), ("azure", "entities")))
def test_a_listing_takes_no_more_than_an_honest_one_and_a_bound(kind, name):
    """Whatever a parser would make of it."""
    done = unmeasured.run("-c", "from tests.security.test_clouds_memory import measure; measure()", kind, name)
    assert done.returncode == 0, done.stderr
    honest, peak = (int(line) / 1024 for line in done.stdout.split())
    print(f"{kind} {name}: {peak:.1f} MiB; honest: {honest:.1f} MiB")
    assert peak < honest + MOST_MIB
