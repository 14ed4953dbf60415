"""
Google Cloud Storage (`type: gcs`): the fields of a storage config, and the language of its buckets. Imports no library of Google's.

Source of the key names: the Go adapter's `pullman/storageproviders/gcs/provider.go`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from urllib.parse import quote, urlencode

import msgspec

from adapter.errors import InvalidRequest
from adapter.storage.bucket import Page, Read, StoredObject
from adapter.storage.checksums import Checksum, readable
from adapter.storage.net.messages import Head
from adapter.storage.secret.fields import is_same_endpoint
from adapter.storage.secret.merging import Binding, StorageConfig
from adapter.storage.stores.clients import Client, Connection, Means, fields_of
from adapter.storage.stores.cloud import CloudBucket, Token, Tokens

KEY = ("client_email", "private_key")
BINDING = Binding(
    places={"endpoint_url": is_same_endpoint, "token_uri": is_same_endpoint}, credentials=KEY, whole=(KEY,), beside=("token_uri",)
)


@dataclass(frozen=True, kw_only=True)
class GcsConnection(Connection):
    """Everything that a client is made from."""

    usual = "storage.googleapis.com"
    giver: Connection
    """Whom `token_uri` names: it gives out tokens for the key."""


def connection(config: StorageConfig) -> GcsConnection:
    """The connection fields of a storage config. Blocks: a CA bundle may be a file. Raises InvalidRequest, with the field's name."""
    reached = fields_of(config, BINDING)
    giver = Connection(url=config.endpoint("token_uri"), is_requested="token_uri" in config.requested)
    made = GcsConnection(url=config.endpoint("endpoint_url"), giver=giver, **reached)
    if made.keys:
        made.check_token("the bearer token of the private_key", f"{config.label}: endpoint_url")
        giver.check_token("the bearer token of the private_key", f"{config.label}: token_uri")
    return made


def client(connection: GcsConnection, means: Means) -> Client:
    """As `BucketStore.client`."""
    try:
        from adapter.storage.stores.gcs.identity import Identity  # noqa: PLC0415 - google-auth takes 0.1 s to import
    except ImportError as error:
        raise InvalidRequest("storage type 'gcs' needs pip install modelmesh-triton-adapter[gcs]") from error
    if connection.is_anonymous:
        return partial(GcsBucket, connection, means, Token("", "no credentials"))
    guard = means.guard_of(connection.giver)
    return partial(GcsBucket, connection, means, Tokens(Identity(connection).asked, means, connection.trust, guard))


class _Row(msgspec.Struct):
    name: str
    generation: int | str
    """Google writes numbers of 64 bits as texts."""
    size: int | str = 0


class _Answer(msgspec.Struct):
    items: list[_Row] | None = None
    prefixes: list[str] | None = None
    nextPageToken: str | None = None  # noqa: N815 - Google's name


class GcsBucket(CloudBucket):
    """
    One bucket. Of an object, the generation is the version.

    Source: Cloud Storage JSON API, Objects: list and get; XML API, HTTP headers.
    """

    kind = "gcs"
    owner = "Google's"
    query = (("projection", "noAcl"), ("prettyPrint", "false"), ("fields", "items(name,size,generation),prefixes,nextPageToken"))
    limit = "maxResults"
    continuation = "pageToken"
    version = "x-goog-generation"
    version_name = "generation"

    def __init__(self, connection: GcsConnection, means: Means, tokens: Token | Tokens, config: StorageConfig) -> None:
        name = config.required_bucket()
        base, words = (connection.url or f"https://{connection.usual}").rstrip("/"), f"bucket {name!r} at {connection.host}"
        super().__init__(connection, means, tokens, config, place=f"gs://{name}", base=base, words=words)
        self.listing = f"/storage/v1/b/{quote(name, safe='~')}/o"

    def sign(self, proof: str, method: str, url: str, headers: Mapping[str, str]) -> tuple[str, Mapping[str, str]]:
        """As `CloudBucket`. `proof`: a bearer token; empty: none."""
        return url, {**headers, "Authorization": f"Bearer {proof}"} if proof else headers

    @staticmethod
    def page_of(content: bytes) -> Page:
        """As `CloudBucket`."""
        answer = msgspec.json.decode(content, type=_Answer)
        objects = tuple(StoredObject(row.name, int(row.size), str(int(row.generation))) for row in answer.items or ())
        return Page(objects=objects, folders=tuple(sorted(answer.prefixes or ())), next_token=answer.nextPageToken or None)

    def object(self, read: Read) -> tuple[str, Mapping[str, str]]:
        """As `CloudBucket`. An object that was stored packed is wanted as it was stored."""
        query = urlencode({"alt": "media", "generation": read.wanted.etag})
        target = f"/download{self.listing}/{quote(read.wanted.key, safe='~')}?{query}"
        return target, {"Range": read.range, "Accept-Encoding": "gzip"}

    @staticmethod
    def checksums(headers: Mapping[str, str]) -> Sequence[Checksum]:
        """As `CloudBucket`. `x-goog-hash` is of the whole object as it is stored; composed objects have a CRC32C alone."""
        pairs = (each.strip().partition("=") for each in headers.get("x-goog-hash", "").split(","))
        return readable((name, text) for name, _, text in pairs)

    def _check(self, head: Head, read: Read) -> None:
        super()._check(head, read)
        encoding = head.headers.get("content-encoding", "")
        if encoding not in ("", head.headers.get("x-goog-stored-content-encoding", encoding)):  # it was unpacked on the way
            raise self._where.other_range(read.wanted.key)
