"""`grpcEndpoint` and `grpcDataEndpoint` as the controller reads them: what is no port is a socket, however it looks."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

PORT = re.compile(r"port:[0-9]+")


class AssemblyError(Exception):
    """The controller cannot make the pod: its reconcile fails for ever."""


@dataclass(frozen=True)
class Endpoint:
    """A port as it was written, or the path of a socket."""

    port: str = ""
    path: str = ""

    @property
    def folder(self) -> str:
        """Of the socket; it is mounted there."""
        return posixpath.dirname(posixpath.normpath(self.path)) or "."


def parsed(text: str) -> Endpoint:
    """Every text becomes something: `8085` is a socket of that name in the current folder, `port:8085x` a port."""
    if text.startswith("port:"):
        return Endpoint(port=text.removeprefix("port:"))
    return Endpoint(path=text.replace("unix://", "", 1).replace("unix:", "", 1))


def management(spec: Mapping[str, Any]) -> str:
    """
    Where the adapter listens.

    Raises:
        AssemblyError: it is missing. The controller ends itself over that.
    """
    if not spec.get("grpcEndpoint"):
        raise AssemblyError("grpcEndpoint is missing, which ends the controller")
    return str(spec["grpcEndpoint"])


def socket_folder(spec: Mapping[str, Any]) -> str | None:
    """
    Where containers of the runtime see the sockets.

    Raises:
        AssemblyError: the two sockets are in two folders.
    """
    texts = [spec[name] for name in ("grpcDataEndpoint", "grpcEndpoint") if spec.get(name)]
    folders = {endpoint.folder for endpoint in map(parsed, texts) if endpoint.path}
    if len(folders) > 1:
        raise AssemblyError(f"grpcEndpoint and grpcDataEndpoint are sockets in two folders: {', '.join(sorted(folders))}")
    return folders.pop() if folders else None


def socket_folder_of_mm(spec: Mapping[str, Any]) -> str | None:
    """Where `mm` sees the sockets: of the data endpoint alone, if there is one. Hence a socket beside a data port is unseen."""
    endpoint = parsed(spec.get("grpcDataEndpoint") or management(spec))
    return endpoint.folder if endpoint.path else None


def problems(spec: Mapping[str, Any]) -> list[str]:
    """What the controller does not refuse, and what can never work."""
    found = []
    for name in ("grpcEndpoint", "grpcDataEndpoint"):
        text = spec.get(name) or ""
        if not PORT.fullmatch(text) and not text.startswith(("unix:/", "unix:///")):
            found.append(f"{name} {text!r} is neither port:N nor unix:/path")
    is_socket = {name: (spec.get(name) or "").startswith("unix:") for name in ("grpcEndpoint", "grpcDataEndpoint")}
    if is_socket["grpcEndpoint"] and not is_socket["grpcDataEndpoint"]:
        found.append("grpcEndpoint is a socket and grpcDataEndpoint a port: mm does not see the socket's folder")
    return found
