"""
A connection to an account of Azure Blob Storage (a key, a signature, or the tokens of an identity), and its containers.

Source: Microsoft identity platform, client credentials flow (with a secret, and with a federated credential); azure-identity's
names of environment variables.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import os
import time
from collections.abc import Callable, Mapping, Sequence
from email.utils import formatdate
from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar, NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit
from xml.etree.ElementTree import Element

import msgspec

from adapter.errors import AdapterError, InvalidRequest, SourceDenied, SourceNotFound
from adapter.storage.bucket import PAGE_OBJECTS, Page, Read, StoredObject
from adapter.storage.checksums import Checksum, readable
from adapter.storage.net.failures import Unanswered
from adapter.storage.net.messages import TOKEN_BYTES, Access, Collected, Head, Request, proxy_for
from adapter.storage.secret.merging import StorageConfig
from adapter.storage.stores.answers import OK, code_in, is_passing, parsed
from adapter.storage.stores.azure import AzureConnection, container_of
from adapter.storage.stores.clients import Means
from adapter.storage.stores.cloud import CloudBucket, CloudClient, NoCredentialsError, Sign, Token, Tokens, TokensAwayError

_OR_ELSE = 'give the storage config an account_key, or "anonymous": "true" for a public container'
_ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_VERSION = "2021-12-02"
"""`x-ms-version`: the first one that tells names in another encoding where XML cannot hold them."""
_PAGE_BLOBS = 250
"""Rows to ask for: 4 MiB are enough for 16 KiB of each. Metadata, which must be asked for, is up to 8 KiB."""
_MOST_TAGS = 120 * PAGE_OBJECTS + 1000
"""A blob has up to 40 properties; the rest is for metadata. Four times as many in a page of `_PAGE_BLOBS`."""
_SIGNED = ("content-encoding", "content-language", "content-length", "content-md5", "content-type", "date", "if-modified-since",
           "if-match", "if-none-match", "if-unmodified-since", "range")  # fmt: skip


class _Answer(msgspec.Struct):
    access_token: Annotated[str, msgspec.Meta(pattern="^[ -~]*$")]
    expires_in: int | str


class _Identity(NamedTuple):
    """Who asks for tokens."""

    url: str
    """Where tokens are given out."""
    client: str
    secret: str
    """Of a service principal. Without one: of a workload identity."""
    token_file: str


def _identity_of(connection: AzureConnection) -> _Identity | None:
    """The config's service principal, or the pod's workload identity; None: there is neither. Raises InvalidRequest: no tenant."""
    environ = os.environ  # noqa: TID251 - names are Azure's
    names = ("AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_FEDERATED_TOKEN_FILE")
    (tenant, client, file), secret = (environ.get(name, "") for name in names), ""
    if connection.client_secret and connection.client_id and connection.tenant_id:
        tenant, client, secret = (each.reveal() for each in (connection.tenant_id, connection.client_id, connection.client_secret))
        if not tenant.isascii() or not all(letter.isalnum() or letter in "-." for letter in tenant):
            raise InvalidRequest("tenant_id is not the id or domain of a tenant")
    elif not (tenant and client and file):
        return None
    authority = environ.get("AZURE_AUTHORITY_HOST", "https://login.microsoftonline.com").rstrip("/")
    authority = authority if "://" in authority else f"https://{authority}"
    return _Identity(f"{authority}/{quote(tenant, safe='')}/oauth2/v2.0/token", client, secret, file)


class AzureClient(CloudClient):
    """As `Client`."""

    kind, giver = "azure", "Azure's"

    def __init__(self, connection: AzureConnection, means: Means) -> None:
        """Raises InvalidRequest: no client can be made of this, or tokens would go over plain http."""
        super().__init__(connection, means)
        self._url, self._account = connection.url, connection.account
        self._key = _decoded(connection)
        self._query = connection.sas_token.reveal().lstrip("?") if connection.sas_token else ""
        is_chained = not (connection.credentials or connection.is_anonymous)
        identity = _identity_of(connection) if is_chained or connection.client_secret else None
        self.credentials = connection.credentials or "no credentials"
        if is_chained:
            of_pod = "the pod's workload identity, because the config has no credentials,"
            self.credentials = of_pod if identity else "no credentials (the pod has no workload identity)"
        self._tokens = Tokens(partial(self._ask, identity)) if identity else None
        if self._tokens:
            connection.check_token("the bearer token of the pod's workload identity", "endpoint_url", or_else=_OR_ELSE)

    def bucket(self, config: StorageConfig) -> CloudBucket:
        """As `Client`, for a container."""
        name = container_of(config)
        words = f"container {name!r} at {self.host}"
        place, base = f"azure://{self.host}/{name}", f"{self._url}/{name}"
        return _AzureBucket(self, config, place=place, base=base, words=words)

    async def sign(self) -> Sign:
        """As `CloudClient`."""
        token = await self._tokens.get() if self._tokens else ""

        def signed(method: str, url: str, headers: Mapping[str, str]) -> tuple[str, Mapping[str, str]]:
            given = {"x-ms-version": _VERSION, "x-ms-date": formatdate(usegmt=True), **headers}
            if token:
                given["Authorization"] = f"Bearer {token}"
            elif self._key:
                given["Authorization"] = authorization(method, url, given, self._account, self._key)
            elif self._query:
                url += f"{'&' if '?' in url else '?'}{self._query}"
            return url, given

        return signed

    async def _ask(self, identity: _Identity, asks: Callable[[str], None]) -> Token:
        """Raises NoCredentialsError; TokensAwayError: this can pass."""
        host = urlsplit(identity.url).netloc
        asks(host)
        fields = {"client_id": identity.client, "scope": "https://storage.azure.com/.default", "grant_type": "client_credentials"}
        failed = f"{self.credentials} of {{label}} did not work"
        if identity.secret:
            fields["client_secret"] = identity.secret
        else:
            try:
                assertion = await self.means.blocking.run(lambda _: Path(identity.token_file).read_text(encoding="utf-8"))
            except (OSError, ValueError) as error:
                raise NoCredentialsError(f"{failed} ({type(error).__name__})") from error
            fields |= {"client_assertion_type": _ASSERTION, "client_assertion": assertion}
        page, access, began = Collected(), Access(self._trust, proxy=proxy_for(identity.url)), time.time()
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json", "Accept-Encoding": "identity"}
        request = Request(identity.url, headers, page, access, TOKEN_BYTES, method="POST", body=urlencode(fields).encode())
        try:
            head = await self.means.engine.fetch(request)
        except Unanswered as failure:
            raise TokensAwayError(host, failure) from failure
        if is_passing(head.status):
            raise TokensAwayError(host, head=head)
        if head.status != OK:
            raise NoCredentialsError(f"{failed} (HTTP {head.status})")
        try:
            answer = msgspec.json.decode(page.content, type=_Answer)
            return Token(answer.access_token, began + min(int(answer.expires_in), 10**9))
        except ValueError as error:
            raise TokensAwayError(host) from error


def _decoded(connection: AzureConnection) -> bytes:
    """The account's key; empty: there is none."""
    if connection.account_key is None:
        return b""
    if not connection.account:
        raise InvalidRequest("account_key needs account_name, which endpoint_url does not tell")
    try:
        return base64.b64decode(connection.account_key.reveal(), validate=True)
    except (binascii.Error, ValueError):
        raise InvalidRequest("account_key is not what Azure gives out as such") from None


class _AzureBucket(CloudBucket):
    """One container. Source: Azure Storage REST API, List Blobs, Get Blob, Status and error codes."""

    owner = "Azure's"
    continuation = "marker"
    meanings: ClassVar[dict[str, type[AdapterError]]] = {"ContainerNotFound": SourceNotFound, "PublicAccessNotPermitted": SourceDenied}

    def listing(self, prefix: str, token: str | None, limit: int, *, by_folder: bool) -> str:
        """As `CloudBucket`."""
        query = {"restype": "container", "comp": "list", "prefix": prefix, "maxresults": str(min(limit, _PAGE_BLOBS))}
        query["include"] = "metadata"
        return f"?{urlencode(self.query(query, token, by_folder=by_folder), quote_via=quote, safe='~')}"

    @staticmethod
    def page_of(content: bytes) -> Page:
        """As `CloudBucket`."""
        root = parsed(content, "EnumerationResults", most_tags=_MOST_TAGS)
        objects = tuple(_stored(row) for row in root.iterfind("Blobs/Blob"))
        folders = tuple(_name(row) for row in root.iterfind("Blobs/BlobPrefix"))
        return Page(objects=objects, folders=folders, next_token=root.findtext("NextMarker") or None)

    def object(self, read: Read) -> tuple[str, Mapping[str, str]]:
        """As `CloudBucket`."""
        return f"/{quote(read.wanted.key, safe='/~')}", {"x-ms-range": read.range, "If-Match": f'"{read.wanted.etag}"'}

    @staticmethod
    def checksums(headers: Mapping[str, str]) -> Sequence[Checksum]:
        """As `CloudBucket`. Of page and append blobs it is as old as the property, which writes do not renew."""
        is_block = headers.get("x-ms-blob-type") == "BlockBlob"
        return readable([("md5", headers.get("x-ms-blob-content-md5"))]) if is_block else ()

    def code(self, head: Head) -> str:
        """As `CloudBucket`."""
        return code_in(head.error) or head.headers.get("x-ms-error-code", "")


def _stored(row: Element) -> StoredObject:
    size, etag = int(row.findtext("Properties/Content-Length") or 0), row.findtext("Properties/Etag", "").strip('"')
    if not etag:
        raise ValueError("no version")
    is_folder = row.findtext("Metadata/hdi_isfolder", "").lower() == "true"  # in accounts with a hierarchical namespace
    return StoredObject(_name(row) + "/" * is_folder, size, etag)


def _name(row: Element) -> str:
    found = row.find("Name")
    if found is None or not found.text:
        raise ValueError("not a name")
    return unquote(found.text) if found.get("Encoded", "").lower() == "true" else found.text


def authorization(method: str, url: str, headers: Mapping[str, str], account: str, key: bytes) -> str:
    """
    The value of `Authorization` for a request without a body. Compared with the vendor's library by a test over odd names.

    Args:
        method: `GET`.
        url: as it is sent.
        headers: all that are sent.
        account: of the key.
        key: decoded.
    """
    lower = {name.lower(): value for name, value in headers.items()}
    parts = urlsplit(url)
    own = "".join(f"{name}:{lower[name]}\n" for name in sorted(lower) if name.startswith("x-ms-"))
    query: dict[str, list[str]] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        query.setdefault(name.lower(), []).append(value)
    resource = f"/{account}{parts.path}" + "".join(f"\n{name}:{','.join(sorted(query[name]))}" for name in sorted(query))
    text = "\n".join((method, *(lower.get(name, "") for name in _SIGNED), own + resource))
    signature = base64.b64encode(hmac.digest(key, text.encode(), "sha256")).decode()
    return f"SharedKey {account}:{signature}"
