"""
A pod with HTTP fronts: a real Triton, a real adapter without ModelMesh, and a plain client of HTTP.

Models lie in a folder that stands for SageMaker's `/opt/ml/models`.
"""

from __future__ import annotations

import http.client
import json
import re
import shutil
import socket
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.real.models import Files, affine, write
from tests.real.pod import Pod
from tests.real.polls import until
from tests.real.ports import free_ports

CLIENT_SECONDS = 60


@dataclass(frozen=True)
class Answer:
    """Of one request; header names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def rest_of(connection: socket.socket) -> bytes:
    """What still comes, until the server closes."""
    return b"".join(iter(lambda: connection.recv(65536), b""))


class Http:
    """A client of one port."""

    def __init__(self, port: int) -> None:
        self.port = port

    def __call__(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Answer:
        """One request on a connection of its own; what is no bytes goes as JSON."""
        with self.kept() as ask:
            answer: Answer = ask(method, path, body, headers)
        return answer

    @contextmanager
    def kept(self) -> Iterator[Any]:
        """Requests on one connection."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=CLIENT_SECONDS)

        def ask(method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Answer:
            content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
            connection.request(method, path, content, dict(headers or {}))
            answer = connection.getresponse()
            return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())

        try:
            yield ask
        finally:
            connection.close()

    @contextmanager
    def begun(self, path: str, body: Any, *headers: str) -> Iterator[socket.socket]:
        """A POST that was sent; the client leaves at the end."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        head = "\r\n".join([f"POST {path} HTTP/1.1", "Host: x", f"Content-Length: {len(content)}", *headers, "", ""])
        with socket.create_connection(("127.0.0.1", self.port), timeout=CLIENT_SECONDS) as connection:
            connection.sendall(head.encode() + content)
            yield connection

    def raw(self, text: bytes) -> bytes:
        """What comes back for these bytes, until the server closes."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=CLIENT_SECONDS) as connection:
            connection.sendall(text)
            return rest_of(connection)


class FrontsPod(Pod):
    """A Triton, an adapter with all fronts, and the folder of models."""

    def __init__(self, folder: Path, env: Mapping[str, str] | None = None) -> None:
        self.models = folder / "opt" / "ml" / "models"
        self.models.mkdir(parents=True)
        (folder / "secret").mkdir()
        sagemaker, v2, llm = free_ports(3)
        self.sagemaker, self.v2, self.llm = Http(sagemaker), Http(v2), Http(llm)
        settings = {
            "ADAPTER_PORT": "0",
            "SAGEMAKER_PORT": str(sagemaker),
            "V2_REST_PORT": str(v2),
            "LMI_PORT": str(llm),
            "HTTP_ADDRESS": "127.0.0.1",
            "SAGEMAKER_MODEL_ROOTS": str(self.models),
            "LOADING_CONCURRENCY": "2",
            **(env or {}),
        }
        super().__init__(folder / "volume", folder / "secret", settings)

    def start_adapter(self, *, wait: bool = True) -> None:
        """A first one, or another one in place of the one that has ended. `wait`: until the platform would say that it is well."""
        super().start_adapter(wait=False)
        if wait:
            until(self.is_well, "the adapter's fronts", 40)

    def is_well(self) -> bool:
        """Whether the platform would say so."""
        return self.status("/ping") == 200

    def status(self, path: str) -> int | None:
        """Of a GET; None: the port is closed."""
        try:
            return self.sagemaker("GET", path).status
        except OSError:
            return None

    def put(self, name: str, files: Files) -> str:
        """Files as the platform has unpacked them; their url."""
        folder = self.models / re.sub(r"[^0-9A-Za-z._-]", "_", name)[:100] / "model"
        write(files, folder)
        return str(folder)

    def load(self, name: str, files: Files | None = None) -> Answer:
        """POST /models."""
        return self.sagemaker("POST", "/models", {"model_name": name, "url": self.put(name, files or affine(2, 1))})

    def keep(self, models: Mapping[str, Callable[[], Files]]) -> None:
        """Load those that are not loaded yet, two at a time."""
        missing = [name for name in models if name not in self.listed()]
        with ThreadPoolExecutor(2) as pool:
            for name, answer in zip(missing, pool.map(lambda name: self.load(name, models[name]()), missing), strict=True):
                assert answer.status == 200, (name, answer.body)

    def until_has(self, name: str, mark: str = "busy") -> None:
        """Wait until the model has written this file beside its own."""
        until((self.repository / name / "1" / mark).exists, f"{mark} in {name}")

    def unload(self, name: str) -> Answer:
        """DELETE /models/{name}."""
        return self.sagemaker("DELETE", f"/models/{quote(name, safe='')}")

    def invoke(self, name: str, value: float = 3.0) -> Answer:
        """A V2 request to `affine`."""
        return self.sagemaker("POST", f"/models/{quote(name, safe='')}/invoke", infer_body(value), {"Content-Type": "application/json"})

    def listed(self) -> list[str]:
        """Names of the models that serve, of all pages."""
        names, token = [], ""
        while True:
            answer = self.sagemaker("GET", "/models" + (f"?next_page_token={token}" if token else "")).json
            names += [model["modelName"] for model in answer["models"]]
            token = answer.get("nextPageToken", "")
            if not token:
                return names

    def clear(self) -> None:
        """Unload everything."""
        for name in self.listed():
            self.unload(name)
        shutil.rmtree(self.models)
        self.models.mkdir()


def infer_body(value: float) -> dict[str, Any]:
    """Of `affine`, which takes any number of FP32."""
    return {"inputs": [{"name": "X", "shape": [1], "datatype": "FP32", "data": [value]}]}
