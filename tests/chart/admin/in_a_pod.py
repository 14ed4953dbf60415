"""
`python -c` as in a pod: `python -m tests.chart.admin.in_a_pod HOSTS CODE ARGUMENT…`.

HOSTS is JSON: the names that a cluster's name server knows, each with its addresses. No other name has an address.
"""

from __future__ import annotations

import json
import socket
import sys
from typing import Any

_look_up = socket.getaddrinfo


def _from(hosts: dict[str, list[str]]) -> Any:
    def look_up(host: str, port: Any, *arguments: Any, **options: Any) -> list[Any]:
        addresses = [host] if host.replace(".", "").isdigit() else hosts.get(host)
        if not addresses:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [row for address in addresses for row in _look_up(address, port, *arguments, **options)]

    return look_up


if __name__ == "__main__":
    socket.getaddrinfo = _from(json.loads(sys.argv[1]))
    code, sys.argv = sys.argv[2], ["-c", *sys.argv[3:]]
    exec(code)
