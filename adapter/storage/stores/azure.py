"""
Azure Blob Storage (`type: azure`): the fields of a storage config, who we are to an account, and the language of its containers.

Source of the key names: the Go adapter's `pullman/storageproviders/azure/provider.go`; of the requests for tokens: Microsoft identity
platform, client credentials flow (with a secret, and with a federated credential), and azure-identity's environment variables.
"""

from __future__ import annotations

import base64
import hmac
import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from email.utils import formatdate
from functools import partial
from pathlib import Path
from typing import Annotated
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit
from xml.etree.ElementTree import Element

import msgspec

from adapter.errors import AdapterError, InvalidRequest, SourceDenied, SourceNotFound
from adapter.storage.bucket import PAGE_OBJECTS, Page, Read, StoredObject
from adapter.storage.checksums import Checksum, readable
from adapter.storage.secret.fields import Secret, checked_bucket, checked_endpoint, is_same_endpoint
from adapter.storage.secret.merging import Binding, StorageConfig, is_same_name
from adapter.storage.stores.answers import OK, parsed
from adapter.storage.stores.clients import Client, Connection, Means, fields_of
from adapter.storage.stores.cloud import CloudBucket, NoCredentialsError, Token, Tokens, TokensAwayError

PRINCIPAL = ("tenant_id", "client_id", "client_secret")
CREDENTIALS = ("connection_string", "account_key", "sas_token", *PRINCIPAL)
BINDING = Binding(
    places={"endpoint_url": is_same_endpoint, "account_name": is_same_name, "connection_string": is_same_name},
    credentials=CREDENTIALS,
    whole=(("connection_string",), ("account_key",), ("sas_token",), PRINCIPAL),
)
_KINDS = {"account_key": "the account key", "sas_token": "the SAS token", "client_secret": "the service principal"}
"""Field → what it is, for people. The first counts."""
_TOKENS = {"sas_token": "the sas_token", "client_secret": "the bearer token of the client_secret"}
"""Field → what would be readable over plain http."""
_POD = ("AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_FEDERATED_TOKEN_FILE")
"""Of the environment: the pod's workload identity."""
_OR_ELSE = 'give the storage config an account_key, or "anonymous": "true" for a public container'
_ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_VERSION = "2021-12-02"
"""`x-ms-version`: the first one that tells names in another encoding where XML cannot hold them."""
_MEANINGS: dict[str, type[AdapterError]] = {"ContainerNotFound": SourceNotFound, "PublicAccessNotPermitted": SourceDenied}
_MOST_TAGS = 120 * PAGE_OBJECTS + 1000
"""A blob has up to 40 properties; the rest is for metadata. Four times as many in a page of `AzureBucket.most_rows`."""
_SIGNED = ("content-encoding", "content-language", "content-length", "content-md5", "content-type", "date", "if-modified-since",
           "if-match", "if-none-match", "if-unmodified-since", "range")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class AzureConnection(Connection):
    """Everything that a client is made from, with one kind of credentials at most. `url` is the account's, without a slash at its end."""

    account: str = ""
    """Whose key it is; empty: nothing tells it."""
    credentials: str = ""
    """For people: `the account key`; empty: the config has none."""


def connection(config: StorageConfig) -> AzureConnection:
    """
    The connection fields of a storage config. Blocks: a CA bundle may be a file.

    The first that is there counts: connection_string, account_key, sas_token, client_id with its secret and tenant_id.
    Without any: workload identity where the pod has one, else anonymous.

    Raises:
        InvalidRequest: a field has a wrong type or value, no account, or a part of a credential is missing.
    """
    account, url = config.text("account_name"), config.endpoint("endpoint_url")
    place = "endpoint_url" if url else "account_name"
    reached = fields_of(config, BINDING, place)
    given = dict(reached["keys"])
    if account and not (account.isascii() and account.replace("-", "").isalnum()):
        raise InvalidRequest(f"{config.label}: account_name is not the name of a storage account")
    if text := given.get("connection_string"):
        return _of_string(text.reveal(), config)
    if url is None and not account:
        raise InvalidRequest(f"no account: neither {config.label} nor storage_params has an account_name")
    url = (url or f"https://{account}.blob.core.windows.net").rstrip("/")
    first = next((name for name in _KINDS if name in given), "")
    kept = PRINCIPAL if first == "client_secret" else (first,)
    reached["keys"] = tuple(key for key in given.items() if key[0] in kept)
    made = AzureConnection(url=url, account=_account_in(url) or account or "", credentials=_KINDS.get(first, ""), **reached)
    if first in _TOKENS:
        made.check_token(_TOKENS[first], f"{config.label}: {place}")
    return made


def container_of(config: StorageConfig) -> str:
    """Azure's word for a bucket. Raises InvalidRequest: the config names no container, or one that cannot be."""
    name = config.text("container") or config.bucket
    if not name:
        raise InvalidRequest(f"no container: neither {config.label} nor storage_params names one")
    return checked_bucket(name, config.label)


def _of_string(text: str, config: StorageConfig) -> AzureConnection:
    """
    What a connection string says. The secrets inside of it are secrets of their own: a library may quote one alone.

    Source: `parse_connection_str` of azure-storage-blob.
    """
    parts = {name.upper(): value for name, _, value in (part.partition("=") for part in text.split(";"))}
    name, key, signature = (parts.get(each, "") for each in ("ACCOUNTNAME", "ACCOUNTKEY", "SHAREDACCESSSIGNATURE"))
    if parts.get("USEDEVELOPMENTSTORAGE") == "true":
        url = "http://127.0.0.1:10000/devstoreaccount1"
    elif not (url := parts.get("BLOBENDPOINT", "")):
        if not name:
            raise InvalidRequest("connection_string, account_key or sas_token is not what Azure gives out as such")
        url = f"{parts.get('DEFAULTENDPOINTSPROTOCOL', 'https')}://{name}.blob.{parts.get('ENDPOINTSUFFIX', 'core.windows.net')}"
    bare, _, query = url.partition("?")
    bare = checked_endpoint(bare, config.label, "connection_string").rstrip("/")
    given = {"account_key": key} if name and key else {"sas_token": signature.lstrip("?") or query}
    reached = fields_of(config, place="connection_string")
    reached["keys"] = tuple((field, Secret(text)) for field, text in given.items() if text)
    made = AzureConnection(url=bare, account=name or _account_in(bare), credentials="the connection string", **reached)
    if made.key("sas_token") or query:
        made.check_token("the shared access signature in it", f"{config.label}: connection_string")
    return made


def _account_in(url: str) -> str:
    """The account's name, as Azure's own host names have it, and loopback's paths."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if ".blob." in host:
        return host.partition(".")[0]
    if host in ("127.0.0.1", "localhost", "::1"):
        return parts.path.strip("/").partition("/")[0]
    return ""


class _Answer(msgspec.Struct):
    access_token: Annotated[str, msgspec.Meta(pattern="^[ -~]*$")]
    expires_in: int | str


def client(connection: AzureConnection, means: Means) -> Client:
    """As `BucketStore.client`. Tokens must not go over plain http."""
    if not re.fullmatch(r"[A-Za-z0-9.-]*", connection.key("tenant_id")):
        raise InvalidRequest("tenant_id is not the id or domain of a tenant")
    is_chained = not (connection.credentials or connection.is_anonymous)
    tokens: Token | Tokens
    if connection.key("client_secret") or (is_chained and all(map(os.environ.get, _POD))):  # noqa: TID251 - names are Azure's
        connection.check_token("the bearer token of the pod's workload identity", "endpoint_url", or_else=_OR_ELSE)
        words = connection.credentials or "the pod's workload identity, because the config has no credentials,"
        tokens = Tokens(partial(_asked, connection, words), means, connection.trust)
    else:
        words = "no credentials (the pod has no workload identity)" if is_chained else "no credentials"
        tokens = Token("", connection.credentials or words)
    return partial(AzureBucket, connection, means, tokens)


def _asked(connection: AzureConnection, words: str, asking: Tokens) -> Token:
    """The next token, of the service principal, or else of the workload identity. Blocks. Raises NoCredentialsError, TokensAwayError."""
    environ, failed = os.environ, f"{words} of {{label}} did not work"  # noqa: TID251 - names are Azure's
    if secret := connection.key("client_secret"):
        tenant, client, proof = connection.key("tenant_id"), connection.key("client_id"), {"client_secret": secret}
    else:
        tenant, client, file = (environ[name] for name in _POD)
        try:
            proof = {"client_assertion_type": _ASSERTION, "client_assertion": Path(file).read_text(encoding="utf-8")}
        except (OSError, ValueError) as error:
            raise NoCredentialsError(f"{failed} ({type(error).__name__})") from error
    authority = environ.get("AZURE_AUTHORITY_HOST", "https://login.microsoftonline.com").rstrip("/")
    authority = authority if "://" in authority else f"https://{authority}"
    url = f"{authority}/{quote(tenant, safe='')}/oauth2/v2.0/token"
    fields = {"client_id": client, "scope": "https://storage.azure.com/.default", "grant_type": "client_credentials", **proof}
    began, headers = time.time(), {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
    head = asking.send("POST", url, headers, urlencode(fields))
    if head.status != OK:
        raise NoCredentialsError(f"{failed} (HTTP {head.status})")
    try:
        answer = msgspec.json.decode(head.body, type=_Answer)
        return Token(answer.access_token, words, began + min(int(answer.expires_in), 10**9))
    except ValueError as error:
        raise TokensAwayError from error


def _decoded(connection: AzureConnection) -> bytes:
    """The account's key; empty: there is none."""
    key = connection.key("account_key")
    if key and not connection.account:
        raise InvalidRequest("account_key needs account_name, which endpoint_url does not tell")
    try:
        return base64.b64decode(key, validate=True)
    except ValueError:
        raise InvalidRequest("account_key is not what Azure gives out as such") from None


class AzureBucket(CloudBucket):
    """One container. Source: Azure Storage REST API, List Blobs, Get Blob, Status and error codes."""

    kind = "azure"
    owner = "Azure's"
    query = (("restype", "container"), ("comp", "list"), ("include", "metadata"))
    limit = "maxresults"
    most_rows = 250  # 4 MiB are enough for 16 KiB of each. Metadata, which must be asked for, is up to 8 KiB
    continuation = "marker"
    meanings = _MEANINGS

    def __init__(self, connection: AzureConnection, means: Means, tokens: Token | Tokens, config: StorageConfig) -> None:
        name, host = container_of(config), connection.host
        place, words = f"azure://{host}/{name}", f"container {name!r} at {host}"
        super().__init__(connection, means, tokens, config, place=place, base=f"{connection.url}/{name}", words=words)
        self._account, self._key = connection.account, _decoded(connection)
        self._signature = connection.key("sas_token").lstrip("?")

    def sign(self, proof: str, method: str, url: str, headers: Mapping[str, str]) -> tuple[str, Mapping[str, str]]:
        """As `CloudBucket`. `proof`: a bearer token; empty: the config may have something else."""
        given = {"x-ms-version": _VERSION, "x-ms-date": formatdate(usegmt=True), **headers}
        if proof:
            given["Authorization"] = f"Bearer {proof}"
        elif self._key:
            given["Authorization"] = authorization(method, url, given, self._account, self._key)
        elif self._signature:
            url += f"{'&' if '?' in url else '?'}{self._signature}"
        return url, given

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
