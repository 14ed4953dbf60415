"""
Clients and containers of Azure Blob Storage, over the vendor's `azure-storage-blob` and `azure-identity`.

Blobs are read in chunks that are held in memory, at most one for each thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import requests
from azure.core import MatchConditions
from azure.core.exceptions import AzureError, ClientAuthenticationError, HttpResponseError
from azure.core.pipeline.transport import RequestsTransport
from azure.identity import ClientSecretCredential, WorkloadIdentityCredential
from azure.storage.blob import BlobPrefix, BlobServiceClient, ContainerClient
from urllib3.exceptions import HTTPError

from adapter.errors import AdapterError, InvalidRequest, SourceDenied, SourceNotFound
from adapter.storage.bucket import PAGE_OBJECTS, Page, Sink, StoredObject
from adapter.storage.secret.merging import StorageConfig
from adapter.storage.stores.answers import Where
from adapter.storage.stores.azure.config import AzureConnection, container_of
from adapter.storage.wire.cutting import cuttable
from adapter.storage.wire.network import CONNECT_TIMEOUT_SECONDS, READ_TIMEOUT_SECONDS
from adapter.storage.wire.sessions import prepared
from adapter.workers import Stop

CHUNK_BYTES = 4 * 1024 * 1024
_FOLDER_MARK = "hdi_isfolder"
"""Metadata of the entries that stand for folders in accounts with a hierarchical namespace."""
_MEANINGS: dict[str, type[AdapterError]] = {"ContainerNotFound": SourceNotFound, "PublicAccessNotPermitted": SourceDenied}
"""Of the codes that say more than the status."""


class AzureClient:
    """A connection that is ready to be used, by any number of threads and for any container."""

    def __init__(self, connection: AzureConnection, max_connections: int) -> None:
        """Raises InvalidRequest: no client can be made of this."""
        self._session = session = prepared(
            requests.Session(), ca_pem=connection.ca_pem, verify=connection.verify_tls, max_connections=max_connections
        )
        self._session.hooks["response"].append(_drop_whole_body)
        self._options: dict[str, Any] = {
            "transport": RequestsTransport(session=session, session_owner=False),
            "connection_verify": session.verify,
            "connection_timeout": CONNECT_TIMEOUT_SECONDS,
            "read_timeout": READ_TIMEOUT_SECONDS,
            "retry_total": 0,
        }
        chunks: dict[str, Any] = {"max_single_get_size": CHUNK_BYTES, "max_chunk_get_size": CHUNK_BYTES}
        credential, self._credentials = _credential_of(connection, self._options)
        try:
            if connection.connection_string is not None:
                text = connection.connection_string.reveal()
                self.sdk = BlobServiceClient.from_connection_string(text, **self._options, **chunks)
            else:
                self.sdk = BlobServiceClient(connection.account_url or "", credential, **self._options, **chunks)
        except (ValueError, AzureError):
            # the library's own words may quote the text
            raise InvalidRequest("connection_string, account_key or sas_token is not what Azure gives out as such") from None

    def bucket(self, config: StorageConfig) -> AzureBucket:
        """As `Client`, for a container."""
        name = container_of(config)
        host = urlsplit(self.sdk.url).netloc
        where = Where(
            words=f"container {name!r} at {host}",
            label=config.label,
            credentials=self._credentials,
            is_plain_http=self.sdk.url.startswith("http:"),
            is_unsigned=config.is_unsigned,
        )
        return AzureBucket(self.sdk.get_container_client(name), f"azure://{host}/{name}", where)

    def close(self) -> None:
        """As `Client`."""
        self._session.close()


class AzureBucket:
    """One container. See `Bucket` for the contract."""

    kind = "azure"

    def __init__(self, sdk: ContainerClient, place: str, where: Where) -> None:
        self._sdk = sdk
        self._where = where
        self.place = place
        self.words = where.words

    def list_page(self, prefix: str, stop: Stop, *, token: str | None = None, limit: int = PAGE_OBJECTS, by_folder: bool = False) -> Page:
        """As the Protocol says."""
        options: dict[str, Any] = {"name_starts_with": prefix, "results_per_page": limit, "include": ["metadata"]}
        with cuttable(stop), self._translated(stop):
            rows = self._sdk.walk_blobs(delimiter="/", **options) if by_folder else self._sdk.list_blobs(**options)
            pages = rows.by_page(continuation_token=token)
            found = list(next(pages, ()))
            return Page(
                objects=tuple(_stored(row) for row in found if not isinstance(row, BlobPrefix)),
                folders=tuple(row.name for row in found if isinstance(row, BlobPrefix)),
                next_token=pages.continuation_token or None,  # type: ignore[attr-defined]  # of azure-core's pages
            )

    def read(self, wanted: StoredObject, start: int, length: int, sink: Sink, stop: Stop) -> None:
        """As the Protocol says."""
        stop.check()
        if not length:
            return
        missing = length
        chunks: Iterator[bytes] | None = None
        with cuttable(stop):
            while missing:
                with self._translated(stop, wanted.key):
                    if chunks is None:
                        chunks = self._opened(wanted, start, length)
                    chunk = next(chunks, b"")
                stop.check()
                if not chunk or len(chunk) > missing:
                    raise self._where.ended_early(wanted.key, missing)
                sink(chunk)
                stop.check()  # a chunk is large: it may have been the whole
                missing -= len(chunk)

    def _opened(self, wanted: StoredObject, start: int, length: int) -> Iterator[bytes]:
        return (
            self._sdk.get_blob_client(wanted.key)
            .download_blob(
                offset=start, length=length, etag=f'"{wanted.etag}"', match_condition=MatchConditions.IfNotModified, max_concurrency=1
            )
            .chunks()
        )

    @contextmanager
    def _translated(self, stop: Stop, key: str | None = None) -> Iterator[None]:
        try:
            yield
        except (AzureError, requests.RequestException, HTTPError, OSError, ValueError) as error:
            stop.check()  # we cut the socket ourselves
            raise self._meaning(error, key) from error

    def _meaning(self, error: Exception, key: str | None) -> AdapterError:
        if isinstance(error, HttpResponseError) and error.status_code:
            code = str(getattr(error, "error_code", None) or "").rpartition(".")[2]
            return self._where.refused(error.status_code, code, key=key, kind=_MEANINGS.get(code))
        if isinstance(error, ClientAuthenticationError):
            reason = f"{self._where.credentials} of {self._where.label} did not work ({type(error).__name__})"
            return self._where.no_credentials(reason)
        return self._where.unreachable(getattr(error, "inner_exception", None) or error)


def _drop_whole_body(answer: requests.Response, *_: object, **_options: object) -> None:
    """Where a range was asked for, the library refuses a whole body and leaves its connection to the garbage collector."""
    if "x-ms-range" in answer.request.headers and answer.status_code == requests.codes.ok:
        answer.close()


def _stored(row: Any) -> StoredObject:
    is_folder = (row.metadata or {}).get(_FOLDER_MARK, "").lower() == "true"
    return StoredObject(f"{row.name}/" if is_folder else row.name, int(row.size or 0), (row.etag or "").strip('"'))


def _credential_of(connection: AzureConnection, options: dict[str, Any]) -> tuple[Any, str]:
    """A credential, and what to call it. A pod without any is anonymous, as it was with the Go adapter."""
    if connection.is_anonymous:
        return None, "no credentials"
    texts = {
        "the connection string": connection.connection_string,  # the library takes it apart, nothing goes beside it
        "the account key": connection.account_key,
        "the SAS token": connection.sas_token,
    }
    for what, secret in texts.items():
        if secret is not None:
            return None if secret is connection.connection_string else secret.reveal(), what
    principal = (connection.tenant_id, connection.client_id, connection.client_secret)
    try:
        if all(principal):
            parts = [secret.reveal() for secret in principal if secret]
            return ClientSecretCredential(*parts, **options), "the service principal"
    except ValueError:
        raise InvalidRequest("tenant_id is not the id or domain of a tenant") from None
    try:
        return WorkloadIdentityCredential(**options), "the pod's workload identity, because the config has no credentials,"
    except ValueError:
        return None, "no credentials (the pod has no workload identity)"
