"""
GETs of S3 without botocore's machinery, which costs five times as much as the request: signed and sent by us.

Where a bucket is, and for which region its requests are signed, is taken from a listing that was answered: addressing
styles, access points and redirects are botocore's to know. Requests that are signed in another way than by SigV4 for
`s3`, and all that goes through a proxy, stay with botocore.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import SplitResult, quote, urlsplit

from botocore.credentials import ReadOnlyCredentials
from botocore.exceptions import ClientError
from botocore.parsers import ResponseParserError
from urllib3 import HTTPConnectionPool

from adapter.storage.stores.answers import code_in
from adapter.storage.stores.s3.pages import check_document
from adapter.storage.stores.s3.signing import Signer
from adapter.storage.wire.gets import Get, Server, read_whole

if TYPE_CHECKING:
    from botocore.awsrequest import AWSPreparedRequest

_SCOPE = re.compile(r"AWS4-HMAC-SHA256 Credential=[^,]*/([A-Za-z0-9-]+)/s3/aws4_request,")
"""With the region of a signature. Source: Amazon S3 API Reference, Authenticating Requests (AWS Signature Version 4)."""
_SAFE = "/~"
"""As botocore quotes keys."""
_FIRST_REFUSAL = 300
_PORTS = {"http": 80, "https": 443}


class Direct:
    """One bucket, at the place where it was listed."""

    def __init__(self, base: str, agent: str, region: str | None, keys: Callable[[], ReadOnlyCredentials], server: Server) -> None:
        """
        Args:
            base: URL that a quoted key is put behind.
            agent: `User-Agent`; it is not signed.
            region: for which is signed; None: nothing is signed.
            keys: of now; blocks while credentials are renewed.
            server: who is asked.
        """
        self._own = {"User-Agent": agent, "Accept-Encoding": "identity"}
        parts = urlsplit(base)
        self._base = parts.path
        self._signer = Signer(name_of(parts), region) if region is not None else None
        self._keys = keys
        self._server = server

    def get(self, key: str, headers: Mapping[str, str]) -> Get:
        """An answer with the object. Raises ClientError for any other, as botocore; what `keys` raises; `failures.NETWORK_ERRORS`."""
        answer = self._answer("GET", key, headers)
        if answer.status < _FIRST_REFUSAL:
            return answer
        with answer as body:
            told: Any = {"HTTPStatusCode": answer.status, "HTTPHeaders": answer.headers}
            raise ClientError({"Error": {"Code": _code(read_whole(body))}, "ResponseMetadata": told}, "GetObject")

    def head(self, key: str, headers: Mapping[str, str]) -> tuple[int, Mapping[str, str]]:
        """Status and headers of any answer about the object. Raises what `keys` raises; `failures.NETWORK_ERRORS`."""
        answer = self._answer("HEAD", key, headers)
        with answer:
            return answer.status, answer.headers

    def _answer(self, method: str, key: str, headers: Mapping[str, str]) -> Get:
        target = self._base + quote(key, safe=_SAFE)
        if self._signer is not None:
            headers = self._signer.signed(method, target, headers, self._keys())
        return self._server.get(target, {**headers, **self._own}, method=method)


def direct_from(
    listing: AWSPreparedRequest, keys: Callable[[], ReadOnlyCredentials], pool_to: Callable[[str], HTTPConnectionPool | None]
) -> Direct | None:
    """Where the answer to a listing came from; None: requests there are botocore's to make."""
    signed, agent = (_text(listing.headers.get(name)) for name in ("Authorization", "User-Agent"))
    scope = _SCOPE.match(signed)
    if signed and scope is None:
        return None
    base = listing.url.partition("?")[0].rstrip("/") + "/"
    if pool_to(base) is None:
        return None
    return Direct(base, agent, scope[1] if scope else None, keys, Server(lambda: cast("HTTPConnectionPool", pool_to(base))))


def name_of(place: SplitResult) -> str:
    """As `Host` has it, and as botocore signs it."""
    host = place.hostname or ""
    host = f"[{host}]" if ":" in host else host
    return host if place.port in (None, _PORTS.get(place.scheme)) else f"{host}:{place.port}"


def _text(header: str | bytes | None) -> str:
    return header.decode() if isinstance(header, bytes) else header or ""


def _code(document: bytes) -> str:
    """Of an error; empty where the status has to say enough."""
    try:
        check_document(document)
    except ResponseParserError:
        return ""
    return code_in(document) or ""
