"""
A server of objects that costs next to nothing, in the languages of three stores: `python -m tests.benchmark.server`.

Prints one line, with its address, when it listens. For https, `ca.pem` in the folder of `--tls` is what to trust.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from tests.benchmark.server.stock import Stock, items_of
from tests.benchmark.server.tongues import Tongues
from tests.benchmark.server.wire import Manners, Server
from tests.real.certificates import server_tls


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmark.server", description=(__doc__ or "").strip().splitlines()[0])
    parser.add_argument("--port", type=int, help="of loopback")
    parser.add_argument("--latency-ms", type=float, help="before the first byte of each answer")
    parser.add_argument("--connection-mb", type=float, help="million bytes a second for each connection; 0: any")
    parser.add_argument("--tls", type=Path, metavar="FOLDER", help="https, with a certificate that is made there")
    parser.add_argument("object", nargs="+", help="PATH=SIZE (big/model.onnx=2GiB), or PATH=COUNTxSIZE ('many/{}=1000x64KiB')")
    given = parser.parse_args()
    stock = Stock(item for spec in given.object for item in items_of(spec))
    context = None
    if given.tls is not None:
        context, _ = server_tls(given.tls)
    manners = Manners(given.latency_ms / 1000, int(given.connection_mb * 1_000_000), context)
    server = Server(given.port, Tongues(stock), manners, os.cpu_count() or 1)
    print(server.url, flush=True)
    server.serve()


if __name__ == "__main__":
    main()
