"""
The name server of a pod's network, run as a program there: `names.py TABLE`, a file of JSON that is read at each question.

Name → addresses. A name that is not there does not exist, one with an empty list has no address, and for one that has null the
server fails: the three that a resolver must tell apart.
"""

from __future__ import annotations

import json
import socket
import struct
import sys
from pathlib import Path

NOERROR, SERVFAIL, NXDOMAIN = 0, 2, 3
IPV4 = 1
_ANSWER = 0x8580
"""A response, authoritative, recursion wanted and available."""


def answer(question: bytes, table: dict[str, list[str] | None]) -> bytes:
    """To one question, as RFC 1035 has it."""
    name, kind, end = _asked(question)
    known = table.get(name, [])
    code = SERVFAIL if known is None else NOERROR if name in table else NXDOMAIN
    addresses = known if known and kind == IPV4 else []
    head = question[:2] + struct.pack("!HHHHH", _ANSWER | code, 1, len(addresses), 0, 0)
    records = (b"\xc0\x0c" + struct.pack("!HHIH", IPV4, 1, 1, 4) + socket.inet_aton(address) for address in addresses)
    return head + question[12:end] + b"".join(records)


def _asked(question: bytes) -> tuple[str, int, int]:
    """The name, the kind of record, and where the question ends."""
    labels, at = [], 12
    while length := question[at]:
        labels.append(question[at + 1 : at + 1 + length].decode())
        at += 1 + length
    return ".".join(labels).lower(), int.from_bytes(question[at + 1 : at + 3]), at + 5


def main() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 53))
        print("up", flush=True)
        while True:
            question, client = server.recvfrom(4096)
            server.sendto(answer(question, json.loads(Path(sys.argv[1]).read_text())), client)


if __name__ == "__main__":
    main()
