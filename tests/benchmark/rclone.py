"""rclone as a daemon, so that its start is no part of a pull: told over its own HTTP interface, measured from outside."""

from __future__ import annotations

import json
import sysconfig
import urllib.request
from pathlib import Path

from tests.benchmark.gauge import Figures, Job, gauged
from tests.benchmark.peers import BUCKET, THREADS, target
from tests.real.children import Child, bare_environment
from tests.real.ports import free_ports, is_listening

START_SECONDS = 20
RUN_SECONDS = 300


def rclone_program() -> Path:
    """Of the test tools."""
    return Path(sysconfig.get_path("scripts")) / "rclone"


def rclone(job: Job) -> Figures:
    """As many streams as the others have threads, in ranges of 16 MiB, for an object of its own."""
    port = free_ports(1)[0]
    command: list[str | Path] = [rclone_program(), "rcd", "--rc-no-auth", f"--rc-addr=127.0.0.1:{port}", "--config="]
    command += [f"--multi-thread-streams={THREADS}", "--multi-thread-cutoff=32M", "--multi-thread-chunk-size=16M"]
    command += ["--no-check-dest", "--ignore-checksum", *([f"--ca-cert={job.ca}"] if job.ca else [])]
    daemon = Child("rclone", command, env=bare_environment())
    try:
        daemon.wait_until(lambda: is_listening(port), "listening", START_SECONDS)
        _copy(port, job, job.warm[0])
        with gauged(job, daemon.pid) as figures:
            _copy(port, job, job.prefix)
    finally:
        daemon.kill()
    return figures


def _copy(port: int, job: Job, key: str) -> None:
    store = f":s3,provider=Other,access_key_id=k,secret_access_key=s,endpoint='{job.url}',list_version=2:{BUCKET}"
    goal = Path(target(job, key))
    words = {"srcFs": store, "srcRemote": key, "dstFs": str(goal.parent), "dstRemote": goal.name}
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/operations/copyfile", json.dumps(words).encode(), headers)
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=RUN_SECONDS) as answer:
        answer.read()
