"""Real emulators of Google Cloud Storage and Azure Blob Storage as context managers."""

from __future__ import annotations

import base64
import json
import secrets
import shutil
import tempfile
import urllib.parse
import urllib.request
from pathlib import Path
from types import TracebackType

from azure.core.exceptions import ResourceNotFoundError
from azure.storage.blob import BlobServiceClient

from tests.real import emulators
from tests.real.children import Child, bare_environment
from tests.real.ports import free_ports, is_listening

START_SECONDS = 30


class _Emulator:
    def __init__(self) -> None:
        self.port = free_ports(1)[0]
        self.folder = Path(tempfile.mkdtemp(prefix="cloud-"))
        self._child: Child | None = None

    def command(self) -> list[str | Path]:
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        return bare_environment()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._child is not None:
            self._child.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start(self, name: str) -> None:
        self._child = Child(name, self.command(), env=self.environment())
        self._child.wait_until(lambda: is_listening(self.port), "listening", START_SECONDS)


class GcsServer(_Emulator):
    """fake-gcs-server in memory. Takes any credentials and none."""

    @property
    def endpoint_url(self) -> str:
        """As it stands in a storage secret."""
        return f"http://127.0.0.1:{self.port}"

    def command(self) -> list[str | Path]:
        """Its program and options."""
        options = ["-scheme=http", "-host=127.0.0.1", f"-port={self.port}", "-backend=memory", f"-public-host=127.0.0.1:{self.port}"]
        return [emulators.fake_gcs(), *options, "-log-level=error"]

    def make_bucket(self, name: str) -> None:
        """Make an empty one."""
        self._post("/storage/v1/b", json.dumps({"name": name}).encode(), "application/json")

    def put(self, bucket: str, key: str, content: bytes) -> None:
        """Store an object, or replace it."""
        name = urllib.parse.quote(key, safe="")
        self._post(f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name={name}", content, "application/octet-stream")

    def remove(self, bucket: str, key: str) -> None:
        """Delete an object."""
        self._send("DELETE", f"/storage/v1/b/{bucket}/o/{urllib.parse.quote(key, safe='')}", None, "")

    def storage_config(self, bucket: str) -> dict[str, str]:
        """One entry of ModelMesh's storage secret."""
        return {"type": "gcs", "endpoint_url": self.endpoint_url, "bucket": bucket, "anonymous": "true"}

    def __enter__(self) -> GcsServer:
        self._start("gcs")
        return self

    def _post(self, target: str, body: bytes, kind: str) -> None:
        self._send("POST", target, body, kind)

    def _send(self, method: str, target: str, body: bytes | None, kind: str) -> None:
        request = urllib.request.Request(f"{self.endpoint_url}{target}", data=body, method=method, headers={"Content-Type": kind})
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=20) as answer:
            answer.read()


class AzureServer(_Emulator):
    """Azurite with a random account key."""

    account = "testaccount"

    def __init__(self) -> None:
        super().__init__()
        self.key = base64.b64encode(secrets.token_bytes(32)).decode()

    @property
    def endpoint_url(self) -> str:
        """As it stands in a storage secret; Azurite has the account in its path."""
        return f"http://127.0.0.1:{self.port}/{self.account}"

    @property
    def connection_string(self) -> str:
        """As Azure's portal shows it."""
        parts = {"DefaultEndpointsProtocol": "http", "AccountName": self.account, "AccountKey": self.key, "BlobEndpoint": self.endpoint_url}
        return ";".join(f"{name}={value}" for name, value in parts.items())

    def command(self) -> list[str | Path]:
        """Its program and options."""
        options = ["--blobHost=127.0.0.1", f"--blobPort={self.port}", f"--location={self.folder}"]
        return ["node", emulators.azurite(), *options, "--silent", "--disableTelemetry", "--skipApiVersionCheck"]

    def environment(self) -> dict[str, str]:
        """Its account comes by a variable."""
        return {**bare_environment(), "AZURITE_ACCOUNTS": f"{self.account}:{self.key}"}

    def make_container(self, name: str, *, public: bool = False) -> None:
        """Make an empty one."""
        self._service().create_container(name, public_access="container" if public else None)

    def put(self, container: str, key: str, content: bytes) -> None:
        """Store a blob, or replace it."""
        self._service().get_blob_client(container, key).upload_blob(content, overwrite=True)

    def remove(self, container: str, key: str) -> None:
        """Delete a blob; one that is not there is fine."""
        try:
            self._service().get_blob_client(container, key).delete_blob()
        except ResourceNotFoundError:
            return

    def storage_config(self, container: str) -> dict[str, str]:
        """One entry of ModelMesh's storage secret."""
        return {
            "type": "azure",
            "account_name": self.account,
            "endpoint_url": self.endpoint_url,
            "account_key": self.key,
            "container": container,
        }

    def __enter__(self) -> AzureServer:
        self._start("azure")
        return self

    def _service(self) -> BlobServiceClient:
        return BlobServiceClient.from_connection_string(self.connection_string)
