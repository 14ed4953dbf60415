"""No answer of a server takes the pod's memory, whatever part of it has no end."""

from __future__ import annotations

import json

from tests.fakes import hell
from tests.security import unmeasured

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
import asyncio, json, sys
from pathlib import Path
from adapter.storage.net import engine, transfer
from adapter.storage.net.messages import Access, Trust
from adapter.storage.net.failures import Unanswered
from adapter.storage.net.messages import FREE
from adapter.storage.net.messages import Collected, Request
from adapter.storage.stores.cloud import PAGE_BYTES

def peak():
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) << 10

async def main():
    transfer.ANSWER_SECONDS = 1
    asked, told = engine.Engine(1), {}
    for name, url in json.loads(sys.argv[1]).items():
        page = Collected()
        try:
            async with asyncio.timeout(5):  # for as long as a load may wait
                head = await asked.fetch(Request(url, {}, page, Access(Trust(), FREE, ""), PAGE_BYTES))
            words = f"{head.status} with {len(page.content)} bytes"
        except (Unanswered, TimeoutError) as failure:
            words = str(failure)
        told[name] = [words, peak()]
    print(json.dumps(told))

asyncio.run(main())
"""


def test_a_flood_takes_little_more_memory_than_an_honest_answer():
    """In a process that meets nothing else, whose highest mark is read after each."""
    servers = {name: hell.Hell(behaviour) for name, behaviour in FLOODS.items()}
    try:
        for server in servers.values():
            server.__enter__()
        urls = json.dumps({name: server.url for name, server in servers.items()})
        client = unmeasured.run("-c", CLIENT, urls)
    finally:
        for server in servers.values():
            server.__exit__(None, None, None)
    assert client.returncode == 0, client.stderr
    told = json.loads(client.stdout)
    honest = told["an honest answer"]
    assert honest[0] == "200 with 1000 bytes"
    assert told["a bomb in an error"][0] == "it sent an error of more than 64 KiB"
    assert {name: peak - honest[1] for name, (_, peak) in told.items() if peak - honest[1] > MOST_BYTES} == {}
    print({name: (words, (peak - honest[1]) >> 10) for name, (words, peak) in told.items()})
