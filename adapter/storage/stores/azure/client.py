"""Clients and containers of Azure Blob Storage, over the vendor's `azure-storage-blob` and `azure-identity`."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import requests
from azure.core.exceptions import AzureError, HttpResponseError
from azure.storage.blob import BlobServiceClient, ContainerClient
from urllib3.exceptions import HTTPError

from adapter.errors import AdapterError, InvalidRequest, SourceDenied, SourceNotFound
from adapter.storage.bucket import PAGE_OBJECTS, Page, Sink, StoredObject
from adapter.storage.checksums import Checksum, readable
from adapter.storage.secret.merging import StorageConfig
from adapter.storage.secret.tokens import plain_http_refusal
from adapter.storage.stores.answers import Where
from adapter.storage.stores.azure.blobs import Blobs, code_of
from adapter.storage.stores.azure.config import AzureConnection, container_of
from adapter.storage.stores.azure.credentials import NoTokenError, Tokens, credential_of
from adapter.storage.stores.azure.pages import PAGE_BLOBS, check_xml, page_of
from adapter.storage.stores.azure.transport import OPTIONS, StorageTransport, root_cause
from adapter.storage.stores.body import check_told, copy_body, told_by
from adapter.storage.stores.clients import Means
from adapter.storage.stores.tokens import TokensAwayError, not_of, tokens_away
from adapter.storage.wire.cutting import PAGE_BYTES, cuttable, most_of
from adapter.storage.wire.dialling import FREE
from adapter.storage.wire.gets import Answer, Body
from adapter.storage.wire.nonsense import NONSENSE, is_nonsense
from adapter.storage.wire.sessions import prepared
from adapter.workers import Stop

_MEANINGS: dict[str, type[AdapterError]] = {"ContainerNotFound": SourceNotFound, "PublicAccessNotPermitted": SourceDenied}
"""Of the codes that say more than the status."""
_TROUBLES = (AzureError, NoTokenError, TokensAwayError, requests.RequestException, HTTPError, OSError, *NONSENSE)
_OURS = "Azure's"
_MD5, _BLOB_TYPE = "x-ms-blob-content-md5", "x-ms-blob-type"
"""Source: Azure Storage, Get Blob; `Content-MD5` is of the range there, if anything."""
_OR_ELSE = 'give the storage config an account_key, or "anonymous": "true" for a public container'


class AzureClient:
    """A connection that is ready to be used, by any number of threads and for any container."""

    def __init__(self, connection: AzureConnection, means: Means, stop: Stop) -> None:
        """Asks nobody. Raises InvalidRequest: no client can be made of this, or tokens would go over plain http."""
        trust: dict[str, Any] = {
            "ca_pem": connection.ca_pem,
            "verify": connection.verify_tls,
            "max_connections": means.max_connections,
        }
        self._session = prepared(requests.Session(), guard=means.guard if connection.is_requested else FREE, **trust)
        self._tokens = prepared(requests.Session(), guard=FREE, **trust)
        credential, self._credentials = credential_of(connection, self._tokens)
        self._identity = credential if isinstance(credential, Tokens) else None
        if self._identity is not None and not connection.may_carry_tokens:
            raise plain_http_refusal("the bearer token of the pod's workload identity", "endpoint_url", or_else=_OR_ELSE)
        options: dict[str, Any] = {"transport": StorageTransport(self._session), **OPTIONS}
        try:
            if connection.connection_string is not None:
                self.sdk = BlobServiceClient.from_connection_string(connection.connection_string.reveal(), **options)
            else:
                self.sdk = BlobServiceClient(connection.account_url or "", _named(credential, connection), **options)
            base64.b64decode(getattr(self.sdk.credential, "account_key", ""))  # as the library will, in each call
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
        sdk = self.sdk.get_container_client(name)
        return AzureBucket(sdk, Blobs(sdk, self._session), self._identity, where, host)

    def close(self) -> None:
        """As `Client`."""
        self._session.close()
        self._tokens.close()


class AzureBucket:
    """One container. See `Bucket` for the contract."""

    kind = "azure"

    def __init__(self, sdk: ContainerClient, blobs: Blobs, identity: Tokens | None, where: Where, endpoint: str) -> None:
        self._sdk = sdk
        self._blobs = blobs
        self._identity = identity
        self._where = where
        self.place = f"azure://{endpoint}/{sdk.container_name}"
        self.words = where.words
        self.endpoint = endpoint
        self.is_encrypted = not where.is_plain_http

    def list_page(self, prefix: str, stop: Stop, *, token: str | None = None, limit: int = PAGE_OBJECTS, by_folder: bool = False) -> Page:
        """As the Protocol says."""
        options: dict[str, Any] = {
            "name_starts_with": prefix,
            "results_per_page": min(limit, PAGE_BLOBS),
            "include": ["metadata"],
            "raw_response_hook": _check_page,
        }
        self._renew(stop)
        with cuttable(stop, most_bytes=PAGE_BYTES), self._translated(stop):
            rows = self._sdk.walk_blobs(delimiter="/", **options) if by_folder else self._sdk.list_blobs(**options)
            return page_of(rows.by_page(continuation_token=token), limit)

    def read(self, wanted: StoredObject, start: int, length: int, sink: Sink, stop: Stop) -> None:
        """As the Protocol says."""
        stop.check()
        if not length:
            return
        self._renew(stop)
        with cuttable(stop, most_bytes=most_of(length)):
            with self._translated(stop, wanted.key):
                answer = self._blobs.get(wanted.key, start, length, wanted.etag)
            with answer as body:
                with self._translated(stop, wanted.key):
                    self._check(answer, body, wanted, start, length)
                translated = partial(self._translated, stop, wanted.key)
                told = _checksums_of(answer.headers)
                copy_body(body, length, sink, stop, key=wanted.key, where=self._where, translated=translated, checksums=told)

    def _check(self, answer: Answer, body: Body, wanted: StoredObject, start: int, length: int) -> None:
        """The body is the range of the listed version, as it is stored."""
        if answer.status >= 300:
            raise self._refused(answer.status, code_of(answer, body), wanted.key, answer.headers.get("Retry-After"))
        etag = answer.headers.get("ETag", "").strip('"')
        if etag and etag != wanted.etag:
            raise self._where.other_version(wanted.key, "ETag")
        if answer.status != requests.codes.partial:
            raise self._where.other_range(wanted.key)
        check_told(told_by(answer.headers), wanted, start, length, self._where, is_part=True)

    def _refused(self, status: int, code: str, key: str | None, retry_after: str | None) -> AdapterError:
        return self._where.refused(status, code, key=key, kind=_MEANINGS.get(code), retry_after=retry_after)

    def _renew(self, stop: Stop) -> None:
        if self._identity is not None:
            with self._translated(stop):
                self._identity.renew(stop)

    @contextmanager
    def _translated(self, stop: Stop, key: str | None = None) -> Iterator[None]:
        try:
            yield
        except _TROUBLES as error:
            stop.check()  # we cut the socket ourselves
            raise self._meaning(error, key) from error

    def _meaning(self, error: Exception, key: str | None) -> AdapterError:
        if isinstance(error, TokensAwayError):
            return tokens_away(self._where, error, _OURS)
        if isinstance(error, NoTokenError):
            return self._where.no_credentials(f"{self._where.credentials} of {self._where.label} did not work ({error})")
        if isinstance(error, HttpResponseError) and error.status_code and error.status_code >= 300:
            code = str(getattr(error, "error_code", None) or "").rpartition(".")[2]
            retry_after = getattr(error.response, "headers", {}).get("Retry-After")
            return self._refused(error.status_code, code, key, retry_after)
        cause = root_cause(error)
        if is_nonsense(cause) or isinstance(cause, AzureError):
            return not_of(_OURS, self._where)
        return self._where.unreachable(cause)


def _checksums_of(headers: Mapping[str, str]) -> tuple[Checksum, ...]:
    """Of the whole blob, from the answer to a range. Of page and append blobs it is as old as the property, which writes do not renew."""
    return readable([("md5", headers.get(_MD5))]) if headers.get(_BLOB_TYPE) == "BlockBlob" else ()


def _named(credential: Any, connection: AzureConnection) -> Any:
    """
    A key with the name of its account. The library reads the name from Azure's own host names and from loopback's paths alone.

    Raises:
        InvalidRequest: nothing tells the name.
    """
    if connection.account_key is None or BlobServiceClient(connection.account_url or "").account_name:
        return credential
    if not connection.account_name:
        raise InvalidRequest("account_key needs account_name, which endpoint_url does not tell")
    return {"account_name": connection.account_name, "account_key": credential}


def _check_page(response: Any) -> None:
    """The library's `raw_response_hook`, before it parses the page."""
    answer = response.http_response
    if answer.status_code < 300:
        check_xml(answer.read(), PAGE_OBJECTS)
