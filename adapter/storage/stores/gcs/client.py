"""Clients and buckets of Google Cloud Storage, over the vendor's `google-cloud-storage` and `google-auth`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any
from urllib.parse import quote, urlencode

import requests
from google.api_core.exceptions import GoogleAPICallError
from google.auth.credentials import AnonymousCredentials
from google.auth.exceptions import GoogleAuthError
from google.cloud import storage
from urllib3.exceptions import HTTPError

from adapter.errors import AdapterError
from adapter.storage.bucket import PAGE_OBJECTS, Page, Sink, StoredObject
from adapter.storage.checksums import Checksum, readable
from adapter.storage.secret.merging import StorageConfig
from adapter.storage.secret.tokens import plain_http_refusal
from adapter.storage.stores.answers import Where
from adapter.storage.stores.body import check_told, copy_body, hear_out, told_by
from adapter.storage.stores.clients import Means
from adapter.storage.stores.gcs.config import GcsConnection
from adapter.storage.stores.gcs.credentials import Asking, Bearer, credentials_of
from adapter.storage.stores.gcs.pages import FIELDS, check_json, page_of
from adapter.storage.stores.tokens import TOKEN_BYTES, TokensAwayError, not_of, tokens_away
from adapter.storage.wire.cutting import PAGE_BYTES, cuttable, most_of
from adapter.storage.wire.dialling import FREE
from adapter.storage.wire.gets import Answer, Body
from adapter.storage.wire.nonsense import NONSENSE, is_nonsense
from adapter.storage.wire.sessions import TIMEOUT_SECONDS, Below, prepared
from adapter.workers import Stop

_TROUBLES = (GoogleAPICallError, GoogleAuthError, TokensAwayError, requests.RequestException, HTTPError, OSError, *NONSENSE)
_OURS = "Google's"
_GENERATION = "x-goog-generation"
_HASHES = "x-goog-hash"
"""Source: Cloud Storage, XML API, HTTP headers; `crc32c=…,md5=…`, in one header or two."""
_STORED_ENCODING = "x-goog-stored-content-encoding"


class GcsClient:
    """A connection that is ready to be used, by any number of threads and for any bucket."""

    def __init__(self, connection: GcsConnection, means: Means, stop: Stop) -> None:
        """
        Blocks, until the stop: without a key the default credentials are asked for, and they may ask the network.

        Raises:
            InvalidRequest: the key is none, or tokens would go over plain http.
            SourceDenied: the pod's own credentials cannot be used.
            SourceUnavailable: whoever gives out the pod's own credentials is away.
        """
        self.connection = connection
        trust: dict[str, Any] = {
            "ca_pem": connection.ca_pem,
            "verify": connection.verify_tls,
            "max_connections": means.max_connections,
        }
        self._tokens = prepared(requests.Session(), guard=means.guard if connection.is_token_uri_requested else FREE, **trust)
        self.http = prepared(_Session(), guard=means.guard if connection.is_requested else FREE, **trust)
        ask = Asking(self._tokens)
        try:
            with cuttable(stop, most_bytes=TOKEN_BYTES):
                credentials, self._credentials = credentials_of(connection, ask, stop)
        except TokensAwayError as error:
            stop.check()
            where = Where(words=connection.host, label="", credentials="", is_plain_http=False, is_unsigned=False)
            raise tokens_away(where, error, _OURS) from error
        self.http.auth = self.bearer = Bearer(credentials, ask)
        options = {"api_endpoint": connection.endpoint_url} if connection.endpoint_url else None
        # the library's own credentials are nobody: it would ask for more than tokens, through connections of its own
        self.sdk = storage.Client(project="none", credentials=AnonymousCredentials(), _http=self.http, client_options=options)
        if self.bearer.has_tokens and not connection.may_carry_tokens:
            raise plain_http_refusal("a bearer token of the default credentials", "endpoint_url", or_else='set "anonymous": "true"')

    def bucket(self, config: StorageConfig) -> GcsBucket:
        """As `Client`."""
        name = config.required_bucket()
        where = Where(
            words=f"bucket {name!r} at {self.connection.host}",
            label=config.label,
            credentials=self._credentials,
            is_plain_http=(self.connection.endpoint_url or "").startswith("http:"),
            is_unsigned=config.is_unsigned,
        )
        return GcsBucket(self, name, where)

    def close(self) -> None:
        """As `Client`."""
        self.http.close()
        self._tokens.close()


class GcsBucket:
    """One bucket. See `Bucket` for the contract. Of an object, the generation is the version."""

    kind = "gcs"

    def __init__(self, client: GcsClient, name: str, where: Where) -> None:
        self._client = client
        self._name = name
        self._where = where
        self._objects = Below(client.http, f"{client.sdk.api_endpoint}/download/storage/v1/b/{quote(name, safe='~')}/o/")
        self.place = f"gs://{name}"
        self.words = where.words
        self.endpoint = client.connection.host
        self.is_encrypted = not where.is_plain_http

    def list_page(self, prefix: str, stop: Stop, *, token: str | None = None, limit: int = PAGE_OBJECTS, by_folder: bool = False) -> Page:
        """As the Protocol says."""
        with self._translated(stop):
            self._client.bearer.renew(stop)
        with cuttable(stop, most_bytes=PAGE_BYTES), self._translated(stop):
            rows = self._client.sdk.list_blobs(
                self._name,
                prefix=prefix,
                delimiter="/" if by_folder else None,
                page_token=token,
                page_size=limit,
                fields=FIELDS,
                retry=None,
                timeout=TIMEOUT_SECONDS,
            )
            return page_of(rows, limit)

    def read(self, wanted: StoredObject, start: int, length: int, sink: Sink, stop: Stop) -> None:
        """As the Protocol says. Not by the library, which takes answers for the range that are another one, and reads 8 KiB at a time."""
        stop.check()
        if not length:
            return
        query = urlencode({"alt": "media", "generation": wanted.etag})
        # an object that was stored packed is wanted as it was stored
        headers = {"Range": f"bytes={start}-{start + length - 1}", "Accept-Encoding": "gzip"}
        with self._translated(stop):
            self._client.bearer.renew(stop)
        with cuttable(stop, most_bytes=most_of(length)):
            with self._translated(stop, wanted.key):
                self._client.bearer.put_on(headers)
                answer = self._objects.get(f"{quote(wanted.key, safe='~')}?{query}", headers)
            with answer as body:
                self._check(answer, body, wanted, start, length)
                translated = partial(self._translated, stop, wanted.key)
                told = _checksums_of(answer.headers)
                copy_body(body, length, sink, stop, key=wanted.key, where=self._where, translated=translated, checksums=told)

    def _check(self, answer: Answer, body: Body, wanted: StoredObject, start: int, length: int) -> None:
        """The body is the range of the listed version."""
        headers = answer.headers
        if answer.status >= 300:
            hear_out(body)
            raise self._where.refused(answer.status, key=wanted.key, retry_after=headers.get("Retry-After"))
        if headers.get(_GENERATION, wanted.etag) != wanted.etag:
            raise self._where.other_version(wanted.key, "generation")
        is_repacked = headers.get("Content-Encoding", "") not in ("", headers.get(_STORED_ENCODING, headers.get("Content-Encoding", "")))
        if answer.status != requests.codes.partial or is_repacked:
            raise self._where.other_range(wanted.key)
        check_told(told_by(headers), wanted, start, length, self._where, is_part=True)

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
        if isinstance(error, GoogleAPICallError):
            retry_after = error.response.headers.get("Retry-After") if error.response is not None else None
            return self._where.refused(int(error.code or 0), key=key, retry_after=retry_after)
        if isinstance(error, GoogleAuthError):
            reason = f"{self._where.credentials} of {self._where.label} did not work ({type(error).__name__})"
            return self._where.no_credentials(reason)
        if is_nonsense(error):
            return not_of(_OURS, self._where)
        return self._where.unreachable(error)


def _checksums_of(headers: Mapping[str, str]) -> tuple[Checksum, ...]:
    """Of the whole object as it is stored, whichever range was asked for. Composed objects have a CRC32C alone."""
    pairs = (each.strip().partition("=") for each in headers.get(_HASHES, "").split(","))
    return readable((name, text) for name, _, text in pairs)


class _Session(requests.Session):
    """What the library talks through."""

    is_mtls = False  # the library asks

    def __init__(self) -> None:
        super().__init__()
        self.hooks["response"].append(_check_page)


def _check_page(answer: requests.Response, *_: object, **options: Any) -> None:
    """Before the library parses it."""
    if not options.get("stream") and answer.ok:
        check_json(answer.content, PAGE_OBJECTS)
