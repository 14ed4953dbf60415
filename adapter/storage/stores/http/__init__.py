"""
Web servers (`type: http`): the fields of a storage config, checked, with secrets wrapped.

Source of the key names: the Go adapter's `pullman/storageproviders/http/provider.go`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import SplitResult, parse_qsl, urlsplit

from adapter.errors import InvalidRequest
from adapter.storage.secret.fields import Secret, checked_endpoint, is_same_origin
from adapter.storage.secret.merging import Binding, StorageConfig
from adapter.storage.secret.trust import check_client_pem
from adapter.storage.stores.clients import Client, Connection, Means, fields_of

BINDING = Binding(
    places={"url": is_same_origin},
    credentials=("headers", "client_certificate", "client_key"),
    whole=(("headers",), ("client_certificate", "client_key")),
    collection="headers",
    fixed=("headers.host",),
)
SIGNATURE_CHARACTERS = 12
"""A value of a query that is shorter may be an ordinary word (`format=binary`), which must not vanish from all texts."""
MAX_HEADERS = 100
"""Apache takes as many. Source: its `LimitRequestFields`."""
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_OURS = frozenset({
    "accept-encoding", "connection", "content-length", "if-match", "if-modified-since", "if-none-match", "if-range",
    "if-unmodified-since", "range", "transfer-encoding",
})  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class HttpConnection(Connection):
    """Everything that a client is made from."""

    client_pem: Secret | None = None
    """Certificate and key that are shown to the server."""

    def client(self, means: Means) -> Client:
        """As `Connection`."""
        from adapter.storage.stores.http.client import HttpClient  # noqa: PLC0415 - it imports this module

        return HttpClient(self, means)


def connection_of(config: StorageConfig) -> HttpConnection:
    """
    The connection fields of a storage config; headers and URL go with each request. Blocks: a CA bundle may be a file.

    Raises InvalidRequest, with the field's name.
    """
    fields = config.fields
    certificate, key = fields.text("client_certificate"), fields.secret("client_key")
    if (certificate is None) != (key is None):
        raise InvalidRequest(f"{config.label}: client_certificate and client_key go together, but only one of them is there")
    client_pem = f"{certificate}\n{key.reveal()}\n" if certificate and key else None
    if client_pem is not None:
        check_client_pem(client_pem, config.label)
    return HttpConnection(client_pem=Secret(client_pem) if client_pem else None, **fields_of(config, "url"))


def url_of(config: StorageConfig) -> SplitResult:
    """The URL that model paths are joined to; the query goes with every request, and may be a secret. Raises InvalidRequest."""
    text = config.fields.text("url")
    if text is None:
        raise InvalidRequest(f"no url: neither {config.label} nor storage_params has one, expected for instance url: https://host/models")
    url = urlsplit(checked_endpoint(text, config.label, "url", query=True))
    for value in (url.query, *(value for _, value in parse_qsl(url.query) if len(value) >= SIGNATURE_CHARACTERS)):
        Secret(value)
    return url


def headers_of(config: StorageConfig) -> dict[str, Secret]:
    """
    Headers that go with each request, by lower-case name: an object of strings or lists of strings.

    Raises:
        InvalidRequest: not that, more than `MAX_HEADERS`, or a header that is not the user's to set.
    """
    given = config.values.get("headers") or {}
    if not isinstance(given, Mapping):
        raise InvalidRequest(f'{config.label}: headers is not an object; write "headers.Authorization": "…" for each')
    if len(given) > MAX_HEADERS:
        raise InvalidRequest(f"{config.label}: headers has {len(given)} entries, expected at most {MAX_HEADERS}")
    headers = {}
    for name, value in given.items():
        values = value if isinstance(value, list) else [value]
        if not _TOKEN.fullmatch(name) or name.lower() in _OURS:
            raise InvalidRequest(f"{config.label}: headers has {name[:80]!r}, which is not a header that can be set")
        if not all(isinstance(each, str) and not set(each) & set("\r\n\0") and each.isascii() for each in values):
            raise InvalidRequest(f"{config.label}: headers.{name} is not a text of one line, or a list of them")
        for each in values:
            Secret(each.rpartition(" ")[2])  # the token behind `Bearer` is a secret of its own
        headers[name.lower()] = Secret(", ".join(values))
    return headers
