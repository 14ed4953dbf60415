"""rclone as a daemon, so that its start is no part of a pull: told over its own HTTP interface, measured from outside."""

from __future__ import annotations

import json
import sysconfig
import urllib.request
from pathlib import Path
from urllib.error import HTTPError

from tests.benchmark.gauge import Figures, Job, gauged
from tests.benchmark.peers import BUCKET, target
from tests.real.children import Child, bare_environment
from tests.real.ports import free_ports, is_listening

START_SECONDS = 20
RUN_SECONDS = 300


def rclone_program() -> Path:
    """Of the test tools."""
    return Path(sysconfig.get_path("scripts")) / "rclone"


def rclone(job: Job) -> Figures:
    """
    As many streams as the others have threads, in ranges of 16 MiB, and 32 small files at once.

    Raises RuntimeError with what it answered.
    """
    port = free_ports(1)[0]
    command: list[str | Path] = [rclone_program(), "rcd", "--rc-no-auth", f"--rc-addr=127.0.0.1:{port}", "--config="]
    command += [f"--multi-thread-streams={job.threads}", "--multi-thread-cutoff=32M", "--multi-thread-chunk-size=16M"]
    command += ["--transfers=32", "--checkers=16", "--no-check-dest", "--ignore-checksum", *([f"--ca-cert={job.ca}"] if job.ca else [])]
    daemon = Child("rclone", command, env=bare_environment())
    try:
        daemon.wait_until(lambda: is_listening(port), "listening", START_SECONDS)
        _copy(port, job, [job.warm])
        Path(target(job, job.warm[0])).unlink()
        with gauged(job, daemon.pid) as figures:
            _copy(port, job, job.keys)
    finally:
        daemon.kill()
    return figures


def _copy(port: int, job: Job, keys: list[tuple[str, int]]) -> None:
    options = f"s3,provider=Other,access_key_id=k,secret_access_key=s,endpoint='{job.url}',list_version=2"
    remote = f":{options}:{BUCKET}"
    if len(keys) == 1:
        key = keys[0][0]
        goal = Path(target(job, key))
        words = {"srcFs": remote, "srcRemote": key, "dstFs": str(goal.parent), "dstRemote": goal.name}
        _call(port, "operations/copyfile", words)
    else:
        _call(port, "sync/copy", {"srcFs": f"{remote}/{job.prefix.rstrip('/')}", "dstFs": f"{job.folder}/tree"})


def _call(port: int, method: str, words: dict[str, str]) -> None:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/{method}", data=json.dumps(words).encode(), headers={"Content-Type": "application/json"}
    )
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=RUN_SECONDS) as answer:
            answer.read()
    except HTTPError as error:
        with error:
            raise RuntimeError(f"rclone: {error.read()[-500:].decode(errors='replace')}") from None
