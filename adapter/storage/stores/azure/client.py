"""Clients and containers of Azure Blob Storage, over the vendor's `azure-storage-blob` and `azure-identity`."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import requests
from azure.core import MatchConditions
from azure.core.exceptions import AzureError, HttpResponseError
from azure.storage.blob import BlobServiceClient, ContainerClient
from urllib3.exceptions import HTTPError

from adapter.errors import AdapterError, InvalidRequest, SourceDenied, SourceNotFound
from adapter.storage.bucket import PAGE_OBJECTS, Page, Sink, StoredObject
from adapter.storage.secret.merging import StorageConfig
from adapter.storage.secret.tokens import plain_http_refusal
from adapter.storage.stores.answers import Where
from adapter.storage.stores.azure.config import AzureConnection, container_of
from adapter.storage.stores.azure.credentials import NoTokenError, Tokens, credential_of
from adapter.storage.stores.azure.pages import PAGE_BLOBS, check_xml, page_of
from adapter.storage.stores.azure.transport import OPTIONS, StorageTransport, root_cause
from adapter.storage.stores.body import check_told, copy_body, told_by
from adapter.storage.stores.clients import Means
from adapter.storage.stores.tokens import TokensAwayError, not_of, tokens_away
from adapter.storage.wire.cutting import PAGE_BYTES, cuttable, most_of
from adapter.storage.wire.dialling import FREE
from adapter.storage.wire.nonsense import NONSENSE, is_nonsense
from adapter.storage.wire.sessions import prepared
from adapter.workers import Stop

_MEANINGS: dict[str, type[AdapterError]] = {"ContainerNotFound": SourceNotFound, "PublicAccessNotPermitted": SourceDenied}
"""Of the codes that say more than the status."""
_TROUBLES = (AzureError, NoTokenError, TokensAwayError, requests.RequestException, HTTPError, OSError, *NONSENSE)
_OURS = "Azure's"
_ONE_REQUEST = {"max_single_get_size": 1 << 62}
"""The library would ask for a range in pieces, and hold each in memory."""
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
        options: dict[str, Any] = {"transport": StorageTransport(self._session), **OPTIONS, **_ONE_REQUEST}
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
        return AzureBucket(self.sdk.get_container_client(name), self._identity, f"azure://{host}/{name}", where, host)

    def close(self) -> None:
        """As `Client`."""
        self._session.close()
        self._tokens.close()


class AzureBucket:
    """One container. See `Bucket` for the contract."""

    kind = "azure"

    def __init__(self, sdk: ContainerClient, identity: Tokens | None, place: str, where: Where, endpoint: str) -> None:
        self._sdk = sdk
        self._identity = identity
        self._where = where
        self.place = place
        self.words = where.words
        self.endpoint = endpoint

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
        """
        As the Protocol says. The library is left as soon as it has the answer's headers.

        What it does with a body: reads 4 KiB at a time, holds the whole, asks again three times with sleeps between
        when the body ends early, and asks for more where the blob has pages.
        """
        stop.check()
        if not length:
            return
        reading = _Reading(self._where, wanted, start, length)
        self._renew(stop)
        with cuttable(stop, most_bytes=most_of(length)):
            with self._translated(stop, wanted.key):
                try:
                    self._sdk.get_blob_client(wanted.key).download_blob(
                        offset=start,
                        length=length,
                        etag=f'"{wanted.etag}"',
                        match_condition=MatchConditions.IfNotModified,
                        max_concurrency=1,
                        raw_response_hook=reading.begin,
                    )
                except _BegunError as begun:
                    answer = begun.answer
                else:
                    raise self._where.other_range(wanted.key)
            try:
                copy_body(
                    answer.raw, length, sink, stop, key=wanted.key, where=self._where, translated=lambda: self._translated(stop, wanted.key)
                )
            finally:
                answer.close()

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
            return self._where.refused(error.status_code, code, key=key, kind=_MEANINGS.get(code), retry_after=retry_after)
        cause = root_cause(error)
        if is_nonsense(cause) or isinstance(cause, AzureError):
            return not_of(_OURS, self._where)
        return self._where.unreachable(cause)


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


class _BegunError(Exception):
    """Not a failure: the way out of the library, with an answer whose body is still to come."""

    def __init__(self, answer: requests.Response) -> None:
        super().__init__()
        self.answer = answer


class _Reading:
    """One read, and the check of its answer before the library looks at its body."""

    def __init__(self, where: Where, wanted: StoredObject, start: int, length: int) -> None:
        self._where = where
        self._wanted = wanted
        self._start = start
        self._length = length

    def begin(self, response: Any) -> None:
        """The library's `raw_response_hook`. Raises _BegunError, or what is wrong; a store's errors are the library's to raise."""
        answer: requests.Response = response.http_response.internal_response
        if answer.status_code >= 300:
            return
        try:
            self._check(answer)
        except AdapterError:
            answer.close()
            raise
        raise _BegunError(answer)

    def _check(self, answer: requests.Response) -> None:
        """The body is the range of the listed version, as it is stored."""
        key, headers = self._wanted.key, answer.headers
        etag = headers.get("ETag", "").strip('"')
        if etag and etag != self._wanted.etag:
            raise self._where.other_version(key, "ETag")
        if answer.status_code != requests.codes.partial:
            raise self._where.other_range(key)
        check_told(told_by(headers), self._wanted, self._start, self._length, self._where, is_part=True)


def _check_page(response: Any) -> None:
    """The library's `raw_response_hook`, before it parses the page."""
    answer = response.http_response
    if answer.status_code < 300:
        check_xml(answer.read(), PAGE_OBJECTS)
