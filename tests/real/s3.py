"""
A real S3 server as a context manager: `rclone serve s3` over a folder, with keys of its own.

Its sub-folders are the buckets. Also over https, with a certificate of a private authority.
"""

from __future__ import annotations

import secrets
import shutil
import sysconfig
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from tests.real.certificates import make_certificates
from tests.real.children import Child, PartError, bare_environment
from tests.real.ports import started_on

START_SECONDS = 20


class S3Server:
    """An S3 server with random keys. The port stays the same over `kill` and `start`."""

    region = "us-east-1"

    def __init__(self, root: Path | None = None, *, tls: bool = False, extra_args: Sequence[str] = (), wrapper: Sequence[str] = ()) -> None:
        """`root`: a folder to serve; by default a temporary one. `wrapper`: a command that becomes the one that follows it."""
        self._folder = Path(tempfile.mkdtemp(prefix="s3-"))
        self.root = root or self._folder / "buckets"
        self.access_key = secrets.token_hex(10)
        self.secret_key = secrets.token_hex(20)
        self.ca_pem = make_certificates(self._folder).ca_pem if tls else None
        self._extra_args = tuple(extra_args)
        self._wrapper = tuple(wrapper)
        self._port = 0
        self._child: Child | None = None

    @property
    def endpoint_url(self) -> str:
        """As it stands in a storage secret."""
        return f"{'https' if self.ca_pem else 'http'}://127.0.0.1:{self._port}"

    @property
    def log_path(self) -> Path:
        """What it has written: with `--verbose` in `extra_args`, every request."""
        return self._started().log_path

    def storage_config(self, bucket: str | None = None) -> dict[str, str]:
        """One entry of ModelMesh's storage secret."""
        config = {
            "type": "s3",
            "endpoint_url": self.endpoint_url,
            "region": self.region,
            "access_key_id": self.access_key,
            "secret_access_key": self.secret_key,
        }
        return config | ({"bucket": bucket} if bucket else {}) | ({"certificate": self.ca_pem} if self.ca_pem else {})

    def put(self, bucket: str, key: str, content: bytes) -> None:
        """Store an object, or replace it in one step: a running read goes on with the old one."""
        target, new = self.root / bucket / key, self.root / f".new-{secrets.token_hex(8)}"
        target.parent.mkdir(parents=True, exist_ok=True)
        new.write_bytes(content)
        new.replace(target)

    def put_folder(self, bucket: str, prefix: str, files: Mapping[str, bytes]) -> None:
        """Store a model, path by path, under a prefix."""
        for path, content in files.items():
            self.put(bucket, f"{prefix}/{path}", content)

    def start(self) -> S3Server:
        """Raises PartError when it does not come up, with its log in short."""
        self.kill()
        self.root.mkdir(parents=True, exist_ok=True)
        return started_on([self._port] if self._port else [], 1, self._start, "address already in use")

    def kill(self) -> None:
        """`kill -9`; objects stay. One that does not run is fine."""
        if self._child is not None:
            self._child.kill()

    def stop(self) -> None:
        """Kill it and remove the temporary folder."""
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> S3Server:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def _started(self) -> Child:
        assert self._child is not None, "the S3 server was not started"
        return self._child

    def _start(self, ports: list[int]) -> S3Server:
        (self._port,) = ports
        command: list[str | Path] = [Path(sysconfig.get_path("scripts")) / "rclone", "serve", "s3", self.root, "--config="]
        command += [f"--addr=127.0.0.1:{self._port}", f"--auth-key={self.access_key},{self.secret_key}"]
        command += ["--dir-cache-time=0s", "--poll-interval=0"]  # what is written into the folder is seen at once
        if self.ca_pem:
            command += [f"--cert={self._folder / 'server.pem'}", f"--key={self._folder / 'server.key'}"]
        self._child = child = Child("s3", [*self._wrapper, *command, *self._extra_args], env=bare_environment())
        try:
            child.wait_until(lambda: "Starting s3 server" in child.log_text(), "serving", START_SECONDS)
        except PartError:
            self.kill()
            raise
        return self
