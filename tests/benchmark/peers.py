"""
Other clients, each as it is meant to be used: `python -m tests.benchmark.peers NAME JOB`. Nothing of the adapter is imported.

Each function makes its client, warms it with a small object, and gives what pulls all keys of a job.
"""

from __future__ import annotations

import http.client
import os
import queue
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

from tests.benchmark.gauge import MIB, Job, gauged, told

PART_BYTES = 16 * MIB
CHUNK_BYTES = MIB
THREADS = 8
BUCKET = "models"
Pull = Callable[[list[tuple[str, int]]], None]
Part = tuple[str, int, int, int]
"""Key, size of the object, start, length."""


def target(job: Job, key: str) -> str:
    """Where a key goes."""
    return f"{job.folder}/{key.replace('/', '_')}"


def parts_of(keys: list[tuple[str, int]]) -> Iterator[Part]:
    """Ranges of 16 MiB."""
    for key, size in keys:
        for start in range(0, max(size, 1), PART_BYTES):
            yield key, size, start, min(PART_BYTES, size - start)


def in_threads(job: Job, keys: list[tuple[str, int]], worker: Callable[[queue.SimpleQueue[Part | None], dict[str, int]], None]) -> None:
    """Files opened at their size, parts in a queue, one connection a thread."""
    files = {}
    for key, size in keys:
        files[key] = os.open(target(job, key), os.O_RDWR | os.O_CREAT, 0o644)
        if size > PART_BYTES:
            os.posix_fallocate(files[key], 0, size)
    parts: queue.SimpleQueue[Part | None] = queue.SimpleQueue()
    for part in parts_of(keys):
        parts.put(part)
    threads = [threading.Thread(target=worker, args=(parts, files)) for _ in range(THREADS)]
    for thread in threads:
        parts.put(None)
        thread.start()
    for thread in threads:
        thread.join()
    for file in files.values():
        os.close(file)


def connected(job: Job) -> http.client.HTTPConnection:
    """A connection of the standard library."""
    host = urlsplit(job.url).netloc
    return (
        http.client.HTTPSConnection(host, context=ssl.create_default_context(cafile=job.ca)) if job.ca else http.client.HTTPConnection(host)
    )


def threads(job: Job) -> Pull:
    """The least that one can write: ranged GETs in threads over http.client, into a reused buffer, and pwrite."""

    def worker(parts: queue.SimpleQueue[Part | None], files: dict[str, int]) -> None:
        connection, view = connected(job), memoryview(bytearray(CHUNK_BYTES))
        while (part := parts.get()) is not None:
            key, _, start, length = part
            connection.request("GET", f"/{BUCKET}/{key}", headers={"Range": f"bytes={start}-{start + length - 1}"})
            answer = connection.getresponse()
            left = length
            while left:
                count = answer.fp.readinto1(view[: min(left, CHUNK_BYTES)])
                os.pwrite(files[key], view[:count], start + length - left)
                left -= count
            answer.length = 0  # the rest of the class has seen none of it
            answer.close()
        connection.close()

    return lambda keys: in_threads(job, keys, worker)


def awscrt(job: Job) -> Pull:
    """Amazon's common runtime, straight to files."""
    from awscrt import io  # noqa: PLC0415
    from awscrt.auth import AwsCredentialsProvider  # noqa: PLC0415
    from awscrt.http import HttpHeaders, HttpRequest  # noqa: PLC0415
    from awscrt.s3 import S3Client, S3RequestTlsMode, S3RequestType  # noqa: PLC0415

    group = io.EventLoopGroup(os.cpu_count() or 1)
    options: dict[str, Any] = {"tls_mode": S3RequestTlsMode.DISABLED}
    if job.ca:
        trust = io.TlsContextOptions()
        trust.override_default_trust_store_from_path(None, job.ca)
        made = io.ClientTlsContext(trust).new_connection_options()
        made.set_server_name("localhost")
        options = {"tls_mode": S3RequestTlsMode.ENABLED, "tls_connection_options": made}
    client = S3Client(
        bootstrap=io.ClientBootstrap(group, io.DefaultHostResolver(group)),
        region="us-east-1",
        credential_provider=AwsCredentialsProvider.new_static("k", "s"),
        throughput_target_gbps=25,
        part_size=8 * MIB,  # by itself it takes larger ones, and was measured to be slower with them
        **options,
    )

    def pull(keys: list[tuple[str, int]]) -> None:
        waiting = [
            client.make_request(
                type=S3RequestType.GET_OBJECT,
                request=HttpRequest("GET", f"/{BUCKET}/{key}", HttpHeaders([("Host", urlsplit(job.url).netloc)])),
                recv_filepath=target(job, key),
            ).finished_future
            for key, _ in keys
        ]
        for each in waiting:
            each.result()

    return pull


def pycurl(job: Job) -> Pull:
    """libcurl in threads: as `threads`."""
    import pycurl as curl  # noqa: PLC0415

    def worker(parts: queue.SimpleQueue[Part | None], files: dict[str, int]) -> None:
        handle = curl.Curl()
        handle.setopt(curl.BUFFERSIZE, 512 * 1024)
        if job.ca:
            handle.setopt(curl.CAINFO, job.ca)
        while (part := parts.get()) is not None:
            key, _, start, length = part
            at = start

            def write(chunk: bytes, file: int = files[key]) -> None:
                nonlocal at
                at += os.pwrite(file, chunk, at)

            handle.setopt(curl.URL, f"{job.url}/{BUCKET}/{key}")
            handle.setopt(curl.RANGE, f"{start}-{start + length - 1}")
            handle.setopt(curl.WRITEFUNCTION, write)
            handle.perform()
        handle.close()

    return lambda keys: in_threads(job, keys, worker)


PEERS = {each.__name__: each for each in (threads, awscrt, pycurl)}


def main() -> None:
    """Run one."""
    name, job = sys.argv[1], Job.from_json(sys.argv[2])
    pull = PEERS[name](job)
    pull([job.warm])
    with gauged(job) as figures:
        pull(job.keys)
    told(figures)
    sys.stdout.flush()
    os._exit(0)  # threads of libraries may hang on


if __name__ == "__main__":
    main()
