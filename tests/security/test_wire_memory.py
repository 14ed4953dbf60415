"""No answer of a server takes the pod's memory, whatever part of it has no end, and whatever library reads it."""

from __future__ import annotations

import json

import pytest

from tests.fakes import hell
from tests.security import unmeasured
from tests.unit.storage.wire.askers import ASKERS

MOST_BYTES = 64 << 20
"""That may be taken above what an honest answer takes."""
FLOODS = {
    "an honest answer": hell.honest(b"x" * 1000),
    "headers": hell.endless_headers(),
    "a line": hell.endless_line(),
    "100 Continue": hell.endless_continue(),
    "a body": hell.endless_body(200),
    "a body of a part": hell.endless_body(206, {"Content-Range": "bytes 0-0/1"}),
    "a body until the end": hell.endless_body(200, is_chunked=False),
    "chunk extensions": hell.endless_chunk_lines(),
    "trailers": hell.endless_trailers(),
    "an error": hell.endless_body(500),
    "a redirect": hell.endless_body(302, {"Location": "/"}),
    "a bomb": hell.bomb(512),
    "a bomb in an error": hell.bomb(512, 500),
    "a length": hell.answering(200, {"Content-Length": 1 << 62, "Connection": "close"}, b"x"),
    "a chunk's length": hell.answering(200, {"Transfer-Encoding": "chunked", "Connection": "close"}, b"%x\r\nx" % (1 << 62)),
}
CLIENT = """
import json, sys
from pathlib import Path
from adapter.storage.wire.cutting import PAGE_BYTES, cuttable
from adapter.storage.wire.network import network_words
from adapter.workers import Stop
from tests.unit.storage.wire.askers import ASKERS, Trust

def peak():
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) << 10

told = {}
with ASKERS[sys.argv[1]](Trust(read_seconds=1)) as ask:
    for name, url in json.loads(sys.argv[2]).items():
        try:
            with cuttable(Stop(), most_bytes=PAGE_BYTES):
                answer = ask.get(url)
                words = f"{answer.status} with {len(answer.read(decode_content=True))} bytes"
        except Exception as error:
            words = network_words(error)
        told[name] = [words, peak()]
print(json.dumps(told))
"""


@pytest.mark.parametrize("library", list(ASKERS))
def test_a_flood_takes_little_more_memory_than_an_honest_answer(library):
    """In a process that meets nothing else, whose highest mark is read after each."""
    servers = {name: hell.Hell(behaviour) for name, behaviour in FLOODS.items()}
    try:
        for server in servers.values():
            server.__enter__()
        urls = json.dumps({name: server.url for name, server in servers.items()})
        client = unmeasured.run("-c", CLIENT, library, urls)
    finally:
        for server in servers.values():
            server.__exit__(None, None, None)
    assert client.returncode == 0, client.stderr
    told = json.loads(client.stdout)
    honest = told["an honest answer"]
    assert honest[0] == "200 with 1000 bytes"
    assert told["a bomb in an error"][0] == "500 with 0 bytes"
    assert {name: peak - honest[1] for name, (_, peak) in told.items() if peak - honest[1] > MOST_BYTES} == {}
    print({name: (words, (peak - honest[1]) >> 10) for name, (words, peak) in told.items()})
