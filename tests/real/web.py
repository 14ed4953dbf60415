"""
A real web server as a context manager: `rclone serve webdav` over a folder.

It gives ETags, ranges and conditional answers, and can ask for a password or a client certificate.
"""

from __future__ import annotations

import secrets
import shutil
import sysconfig
import tempfile
from pathlib import Path
from types import TracebackType

from tests.real.certificates import Certificates, make_certificates
from tests.real.children import Child, bare_environment
from tests.real.ports import free_ports

START_SECONDS = 20
USER = "client"


class WebServer:
    """A web server over a folder of its own."""

    def __init__(self, *, tls: bool = False, wants_password: bool = False, wants_client_certificate: bool = False) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="web-"))
        self.root = self._folder / "files"
        self.root.mkdir()
        self.password = secrets.token_hex(10) if wants_password else None
        self.certificates: Certificates | None = make_certificates(self._folder) if tls else None
        self._wants_client_certificate = wants_client_certificate
        self._port = free_ports(1)[0]
        self._child: Child | None = None

    @property
    def url(self) -> str:
        """Where its root is."""
        return f"{'https' if self.certificates else 'http'}://127.0.0.1:{self._port}"

    def put(self, path: str, content: bytes) -> None:
        """Store a file, or replace it in one step."""
        target, new = self.root / path, self._folder / secrets.token_hex(8)
        target.parent.mkdir(parents=True, exist_ok=True)
        new.write_bytes(content)
        new.replace(target)

    def __enter__(self) -> WebServer:
        command: list[str | Path] = [Path(sysconfig.get_path("scripts")) / "rclone", "serve", "webdav", self.root, "--config="]
        command += [f"--addr=127.0.0.1:{self._port}", "--dir-cache-time=0s", "--poll-interval=0", "--read-only"]
        if self.password:
            command += [f"--user={USER}", f"--pass={self.password}"]
        if self.certificates:
            command += [f"--cert={self._folder / 'server.pem'}", f"--key={self._folder / 'server.key'}"]
        if self._wants_client_certificate:
            command += [f"--client-ca={self._folder / 'ca.pem'}"]
        self._child = child = Child("web", command, env=bare_environment())
        child.wait_until(lambda: "Server started on" in child.log_text() or "started on" in child.log_text(), "serving", START_SECONDS)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._child is not None:
            self._child.kill()
        shutil.rmtree(self._folder, ignore_errors=True)
