"""Clients and buckets of Google Cloud Storage, over the vendor's `google-cloud-storage`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import google.auth
import requests
from google.api_core.exceptions import GoogleAPICallError
from google.auth.credentials import AnonymousCredentials
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError, TransportError
from google.auth.transport.requests import AuthorizedSession, Request
from google.cloud import storage
from google.oauth2 import service_account
from urllib3.exceptions import HTTPError

from adapter.errors import InvalidRequest
from adapter.storage.bucket import PAGE_OBJECTS, Page, Sink, StoredObject
from adapter.storage.secret.merging import StorageConfig
from adapter.storage.stores.answers import Where
from adapter.storage.stores.gcs.config import GcsConnection
from adapter.storage.wire.cutting import cuttable
from adapter.storage.wire.network import READ_TIMEOUT_SECONDS
from adapter.storage.wire.sessions import TIMEOUT_SECONDS, prepared
from adapter.workers import Stop

TOKEN_URI = "https://oauth2.googleapis.com/token"  # noqa: S105 - an address
_SCOPES = ("https://www.googleapis.com/auth/devstorage.read_only",)
_FIELDS = "items(name,size,generation),prefixes,nextPageToken"


class GcsClient:
    """A connection that is ready to be used, by any number of threads and for any bucket."""

    def __init__(self, connection: GcsConnection, max_connections: int) -> None:
        """Blocks: without a key the default credentials are asked for, and they may ask the network. Raises InvalidRequest."""
        self.connection = connection
        trust: dict[str, Any] = {"ca_pem": connection.ca_pem, "verify": connection.verify_tls, "max_connections": max_connections}
        self._tokens = prepared(requests.Session(), **trust)
        ask = Request(self._tokens)
        credentials, self._credentials = _credentials_of(connection, ask)
        session = AuthorizedSession(credentials, refresh_timeout=READ_TIMEOUT_SECONDS, refresh_status_codes=(), auth_request=ask)
        options = {"api_endpoint": connection.endpoint_url} if connection.endpoint_url else None
        self._http = prepared(session, **trust)
        self._http.hooks["response"].append(_check_range)
        self.sdk = storage.Client(project="none", credentials=credentials, _http=self._http, client_options=options)

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
        return GcsBucket(self.sdk, name, where)

    def close(self) -> None:
        """As `Client`."""
        self._http.close()
        self._tokens.close()


class GcsBucket:
    """One bucket. See `Bucket` for the contract. Of an object, the generation is the version."""

    kind = "gcs"

    def __init__(self, sdk: storage.Client, name: str, where: Where) -> None:
        self._sdk = sdk
        self._name = name
        self._where = where
        self.place = f"gs://{name}"
        self.words = where.words

    def list_page(self, prefix: str, stop: Stop, *, token: str | None = None, limit: int = PAGE_OBJECTS, by_folder: bool = False) -> Page:
        """As the Protocol says."""
        with cuttable(stop), self._translated(stop):
            rows = self._sdk.list_blobs(
                self._name,
                prefix=prefix,
                delimiter="/" if by_folder else None,
                page_token=token,
                page_size=limit,
                fields=_FIELDS,
                retry=None,
                timeout=TIMEOUT_SECONDS,
            )
            page = next(rows.pages, ())
            objects = tuple(StoredObject(row.name, int(row.size or 0), str(row.generation)) for row in page)
            return Page(objects=objects, folders=tuple(sorted(rows.prefixes)), next_token=rows.next_page_token)

    def read(self, wanted: StoredObject, start: int, length: int, sink: Sink, stop: Stop) -> None:
        """As the Protocol says."""
        stop.check()
        if not length:
            return
        taker = _Taker(sink, stop)
        with cuttable(stop), self._translated(stop, wanted.key, taker):
            self._sdk.bucket(self._name).blob(wanted.key, generation=int(wanted.etag)).download_to_file(
                taker,
                start=start,
                end=start + length - 1,
                raw_download=True,
                checksum=None,
                retry=None,
                timeout=TIMEOUT_SECONDS,
            )
        if taker.taken < length:
            raise self._where.ended_early(wanted.key, length - taker.taken)

    @contextmanager
    def _translated(self, stop: Stop, key: str | None = None, taker: _Taker | None = None) -> Iterator[None]:
        try:
            yield
        except (GoogleAPICallError, GoogleAuthError, requests.RequestException, HTTPError, OSError, ValueError) as error:
            if taker is not None and error is taker.failure:
                raise
            stop.check()  # we cut the socket ourselves
            if isinstance(error, _OtherRange):
                raise self._where.other_range(key or "") from error
            if isinstance(error, GoogleAPICallError):
                raise self._where.refused(int(error.code or 0), key=key) from error
            if isinstance(error, GoogleAuthError) and not isinstance(error, TransportError):
                reason = f"{self._where.credentials} of {self._where.label} did not work ({type(error).__name__})"
                raise self._where.no_credentials(reason) from error
            raise self._where.unreachable(error) from error


class _OtherRange(OSError):
    """A whole body where a range was asked for."""


def _check_range(answer: requests.Response, *_: object, **_options: object) -> None:
    """The library takes both, and would write the beginning of a whole body to where the range belongs."""
    if "Range" in answer.request.headers and answer.status_code == requests.codes.ok:
        answer.close()
        raise _OtherRange


class _Taker:
    """The sink, as the library wants it. Remembers what the sink itself raised."""

    def __init__(self, sink: Sink, stop: Stop) -> None:
        self._sink = sink
        self._stop = stop
        self.taken = 0
        self.failure: BaseException | None = None

    def write(self, chunk: bytes) -> int:
        self._stop.check()
        try:
            self._sink(chunk)
        except BaseException as error:
            self.failure = error
            raise
        self.taken += len(chunk)
        return len(chunk)


def _credentials_of(connection: GcsConnection, tokens: Request) -> tuple[Any, str]:
    """Credentials, and what to call them. A pod without any is anonymous, as it was with the Go adapter."""
    if connection.is_anonymous:
        return AnonymousCredentials(), "no credentials"
    if connection.private_key is None or connection.client_email is None:
        try:
            found, _ = google.auth.default(scopes=_SCOPES, request=tokens)
        except DefaultCredentialsError:
            return AnonymousCredentials(), "no credentials (there are no default ones)"
        return found, "the default credentials, because there is no private_key in the config"
    account = {
        "type": "service_account",
        "client_email": connection.client_email.reveal(),
        "private_key": connection.private_key.reveal().replace("\\n", "\n"),
        "token_uri": connection.token_uri or TOKEN_URI,
    }
    try:
        made = service_account.Credentials.from_service_account_info(account, scopes=_SCOPES)
    except (GoogleAuthError, ValueError, TypeError):
        # the library's own words and its exception may quote the key
        raise InvalidRequest("private_key is not a PEM private key; expected the text from the service account's JSON file") from None
    return made, "the service account key"
