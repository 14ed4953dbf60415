"""
A connection to Google Cloud Storage: a key, the pod's own identity, or anonymous.

google-auth knows the kinds of credentials; it blocks, so its calls run in threads of ours, and its requests go over the
engine. It repeats by itself and sleeps in between, so what can pass is raised as nothing that it repeats.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import google.auth
import msgspec
from google.auth import compute_engine
from google.auth.credentials import AnonymousCredentials
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError
from google.auth.transport import Request
from google.oauth2 import service_account

from adapter.errors import InvalidRequest, SourceDenied
from adapter.storage.bucket import PAGE_OBJECTS, Page, Read, StoredObject
from adapter.storage.checksums import Checksum, readable
from adapter.storage.net.engine import Bridge
from adapter.storage.net.failures import Unanswered
from adapter.storage.net.messages import Head
from adapter.storage.secret.merging import StorageConfig
from adapter.storage.stores.answers import is_passing
from adapter.storage.stores.clients import Means
from adapter.storage.stores.cloud import NO_ANSWER, CloudBucket, CloudClient, NoCredentialsError, Sign, Token, Tokens, TokensAwayError
from adapter.storage.stores.gcs import GcsConnection
from adapter.workers import Stop

_GOOGLES = "storage.googleapis.com"
TOKEN_URI = "https://oauth2.googleapis.com/token"  # noqa: S105 - an address
NO_DEFAULT = "no credentials (there are no default ones)"
_SCOPES = ("https://www.googleapis.com/auth/devstorage.read_only",)
_SEARCH_PAUSES_SECONDS = (0.0, 1.0, 2.0)
"""Before each look for a metadata server: a new pod's may need seconds to come up."""
_FIELDS = "items(name,size,generation),prefixes,nextPageToken"
_MOST_QUOTES_OF_A_ROW = 160
"""Whole objects, which servers in Google's place send whatever was asked for, have up to 40 names and 40 values."""


class _Row(msgspec.Struct):
    name: str
    generation: int | str
    """Google writes numbers of 64 bits as texts."""
    size: int | str = 0


class _Answer(msgspec.Struct):
    items: list[_Row] | None = None
    prefixes: list[str] | None = None
    nextPageToken: str | None = None  # noqa: N815 - Google's name


class _Asking(Request):
    """google-auth's transport, for one call in a thread."""

    def __init__(self, bridge: Bridge, stop: Stop) -> None:
        self._bridge = bridge
        self._stop = stop
        self.last_place = urlsplit(TOKEN_URI).netloc
        """What was asked last."""
        self.searches = False
        """That was whether there is a metadata server."""

    def __call__(
        self, url: str, method: str = "GET", body: Any = None, headers: Mapping[str, str] | None = None, timeout: Any = None, **_: Any
    ) -> Any:
        """As google-auth's. Raises TokensAwayError."""
        self.last_place, self.searches = urlsplit(url).netloc, urlsplit(url).path in ("", "/")
        content = body.encode() if isinstance(body, str) else body
        try:
            head, data = self._bridge.send(method, url, headers or {}, content, self._stop)
        except Unanswered as failure:
            raise TokensAwayError(self.last_place, failure) from failure
        if is_passing(head.status) and not self.searches:
            raise TokensAwayError(self.last_place, head=head)
        return SimpleNamespace(status=head.status, headers=head.headers, data=data)


class GcsClient(CloudClient):
    """As `Client`."""

    kind, giver = "gcs", "Google's"

    def __init__(self, connection: GcsConnection, means: Means) -> None:
        """Raises InvalidRequest: the key is none."""
        super().__init__(connection, means)
        self.host = self.endpoint = self.host or _GOOGLES
        self.credentials = "no credentials"
        self._connection = connection
        self._tokens = Tokens(self._ask)
        self._found: Any = None
        """google-auth's credentials; of the pod, once they have been looked for."""
        if connection.is_anonymous:
            self._found = AnonymousCredentials()
        elif connection.private_key is not None and connection.client_email is not None:
            self._found = _of_key(connection.client_email.reveal(), connection.private_key.reveal(), connection.giver.url)
            self.credentials = "the service account key"

    def bucket(self, config: StorageConfig) -> CloudBucket:
        """As `Client`."""
        return _GcsBucket(self, config, (self._connection.url or f"https://{_GOOGLES}").rstrip("/"))

    async def sign(self) -> Sign:
        """As `CloudClient`."""
        token = await self._tokens.get()
        if token:
            words = "a bearer token of the default credentials"
            self._connection.check_token(words, "endpoint_url", or_else='set "anonymous": "true"')

        def signed(_: str, url: str, headers: Mapping[str, str]) -> tuple[str, Mapping[str, str]]:
            return url, {**headers, "Authorization": f"Bearer {token}"} if token else headers

        return signed

    async def _ask(self, asks: Callable[[str], None]) -> Token:
        guard = self.means.guard_of(self._connection.giver)
        bridge = Bridge(self.means.engine, self._connection.trust, guard, asks=asks)
        return await self.means.asking.run(lambda stop: self._asked(_Asking(bridge, stop), stop))

    def _asked(self, asking: _Asking, stop: Stop) -> Token:
        """
        A new one, asked for over the bridge; an empty one: requests are anonymous. Blocks.

        Raises:
            SourceDenied: the pod has default credentials that cannot be used.
            NoCredentialsError: this identity gets none.
            TokensAwayError: this can pass.
        """
        if self._found is None:
            found = _default(asking, stop)
            self.credentials = "the default credentials, because there is no private_key in the config" if found else NO_DEFAULT
            self._found = found or AnonymousCredentials()
        if isinstance(self._found, AnonymousCredentials):
            return Token("")
        try:
            self._found.refresh(asking)
        except NO_ANSWER as error:
            raise TokensAwayError(asking.last_place) from error
        except GoogleAuthError as error:
            raise NoCredentialsError(f"{self.credentials} of {{label}} did not work ({type(error).__name__})") from error
        expiry = self._found.expiry
        return Token(str(self._found.token), expiry.timestamp() if expiry is not None else 0.0)


def _of_key(email: str, key: str, token_uri: str | None) -> Any:
    pem = key.replace("\\n", "\n")
    account = {"type": "service_account", "client_email": email, "private_key": pem, "token_uri": token_uri or TOKEN_URI}
    try:
        return service_account.Credentials.from_service_account_info(account, scopes=_SCOPES)
    except (GoogleAuthError, ValueError, TypeError):
        # the library's own words and its exception may quote the key
        raise InvalidRequest("private_key is not a PEM private key; expected the text from the service account's JSON file") from None


def _default(asking: _Asking, stop: Stop) -> Any:
    """
    The pod's own credentials; None when it has none.

    Outside of Google's machines the connection to the metadata server is refused, or nothing answers.
    """
    for pause in _SEARCH_PAUSES_SECONDS:
        stop.pause(pause)
        try:
            return google.auth.default(scopes=_SCOPES, request=asking)[0]
        except DefaultCredentialsError:
            return None
        except TokensAwayError as error:
            if not asking.searches:
                raise
            if error.failure is not None and "within" in str(error.failure):
                break
        except (GoogleAuthError, OSError, ValueError, LookupError) as error:
            stop.check()
            raise SourceDenied(f"the default credentials of the pod cannot be used ({type(error).__name__})") from None
    return compute_engine.Credentials(scopes=_SCOPES) if _is_google_machine() else None


def _is_google_machine() -> bool:
    with suppress(OSError, ValueError):
        return Path("/sys/class/dmi/id/product_name").read_text().startswith("Google")
    return False


class _GcsBucket(CloudBucket):
    """
    One bucket. Of an object, the generation is the version.

    Source: Cloud Storage JSON API, Objects: list and get; XML API, HTTP headers.
    """

    owner = "Google's"
    continuation = "pageToken"
    version = "x-goog-generation"
    version_name = "generation"

    def __init__(self, client: CloudClient, config: StorageConfig, base: str) -> None:
        name = config.required_bucket()
        super().__init__(client, config, place=f"gs://{name}", base=base, words=f"bucket {name!r} at {client.host}")
        self._name = quote(name, safe="~")

    def listing(self, prefix: str, token: str | None, limit: int, *, by_folder: bool) -> str:
        """As `CloudBucket`."""
        query = {"projection": "noAcl", "fields": _FIELDS, "maxResults": str(limit), "prettyPrint": "false", "prefix": prefix}
        return f"/storage/v1/b/{self._name}/o?{urlencode(self.query(query, token, by_folder=by_folder))}"

    @staticmethod
    def page_of(content: bytes) -> Page:
        """As `CloudBucket`."""
        if content.count(b'"') > _MOST_QUOTES_OF_A_ROW * PAGE_OBJECTS:  # before a parser makes many times as much of them
            raise ValueError("more than a page")
        answer = msgspec.json.decode(content, type=_Answer)
        objects = tuple(StoredObject(row.name, int(row.size), str(int(row.generation))) for row in answer.items or ())
        return Page(objects=objects, folders=tuple(sorted(answer.prefixes or ())), next_token=answer.nextPageToken or None)

    def object(self, read: Read) -> tuple[str, Mapping[str, str]]:
        """As `CloudBucket`. An object that was stored packed is wanted as it was stored."""
        query = urlencode({"alt": "media", "generation": read.wanted.etag})
        target = f"/download/storage/v1/b/{self._name}/o/{quote(read.wanted.key, safe='~')}?{query}"
        return target, {"Range": read.range, "Accept-Encoding": "gzip"}

    @staticmethod
    def checksums(headers: Mapping[str, str]) -> Sequence[Checksum]:
        """As `CloudBucket`. `x-goog-hash` is of the whole object as it is stored; composed objects have a CRC32C alone."""
        pairs = (each.strip().partition("=") for each in headers.get("x-goog-hash", "").split(","))
        return readable((name, text) for name, _, text in pairs)

    def is_answer(self, head: Head) -> bool:
        """As `CloudBucket`. Nothing is unpacked on the way."""
        encoding = head.headers.get("content-encoding", "")
        return super().is_answer(head) and encoding in ("", head.headers.get("x-goog-stored-content-encoding", encoding))
