"""
Endpoints as storage configs name them: checked, compared so that a doubt is a no, and whether bearer tokens may go there. Pure.

A bearer token never goes over plain http, except to a loopback address that the stored config names. It is its own proof:
each reader on the wire could use it. Keys that sign (SigV4, Azure's Shared Key) never travel, so plain http is the
operator's to choose for them. What a config says is checked where the config is read. What a credential chain finds is
known to the client alone, which asks the field `may_carry_tokens` of its connection:

- gcs: the chain gave credentials (not anonymous ones), and the field is false: `raise plain_http_refusal(…)`;
- azure: the pod has a workload identity, and the field is false: likewise;
- s3: a request is about to leave with the header `X-Amz-Security-Token`, the connection has no `session_token` of its
  own, and the field is false: likewise. A chain may begin to give tokens at any refresh, so each request is looked at.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit

from adapter.errors import InvalidRequest

_HOST = re.compile(r"[A-Za-z0-9._:-]+")
"""A host name, or an address (IPv6 without its brackets)."""
_ODD = re.compile(r"[\x00-\x1f\x7f\\]")
"""Characters that libraries read differently: one takes for a part of the host what another one drops."""
_BLOB_ENDPOINT = re.compile(r"(?i)(?:^|;)BlobEndpoint=([^;?]+)")
_ACCOUNT = re.compile(r"(?i)(?:^|;)AccountName=([^;]+)")
_NAME = re.compile(r"[A-Za-z0-9-]{1,64}")
"""Of an account or region."""
_DEFAULT_PORTS = {"http": 80, "https": 443}


def checked_endpoint(text: str, label: str, name: str = "endpoint_url", *, query: bool = False) -> str:
    """
    The endpoint as a URL; https when no scheme is given, as the Go adapter's SDK did.

    Raises:
        InvalidRequest: not an http(s) URL. The text is not quoted: it may hold a password.
    """
    url = _with_scheme(text)
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in _DEFAULT_PORTS and parts.netloc.isascii() and not _ODD.search(url)
        is_good = is_good and _HOST.fullmatch(parts.hostname or "") is not None and parts.port != 0
    except ValueError:
        is_good = False
    if not is_good:
        raise InvalidRequest(f"{label}: {name} is not a URL; expected http://host:port or https://host")
    if parts.username is not None or parts.password is not None:
        raise InvalidRequest(f"{label}: {name} holds a user name or password; credentials go into keys of their own")
    if parts.fragment or (parts.query and not query):
        raise InvalidRequest(f"{label}: {name} has a query or a fragment; expected http://host:port or https://host")
    return url


def is_same_endpoint(one: object, other: object) -> bool:
    """Whether both name one server in one way, so that credentials of one may go to the other."""
    if not one or not other:
        return not one and not other
    try:
        return _endpoint_parts(str(one)) == _endpoint_parts(str(other))
    except ValueError:
        return False


def is_same_origin(wanted: object, stored: object) -> bool:
    """Whether scheme, host and port are the same: paths and queries of one web server are the request's to choose."""
    try:
        return bool(wanted and stored) and is_same_endpoint(origin(_split(wanted)), origin(_split(stored)))
    except ValueError:
        return False


def origin(url: SplitResult) -> str:
    """Scheme and server of a URL."""
    return f"{url.scheme}://{url.netloc}"


def endpoint_of(kind: str, values: Mapping[str, object]) -> str:
    """
    Whom requests with this config go to, for people: host and port, an account, a region, or the type of store alone.

    What has one endpoint has one text, as far as that can be known before a client is made. Holds no credentials.
    """
    connection_string = str(values.get("connection_string") or "") if kind == "azure" else ""
    named = _BLOB_ENDPOINT.search(connection_string)
    for text in (named[1] if named else None, values.get("url" if kind == "http" else "endpoint_url")):
        if isinstance(text, str) and (host := _host_of(text)):
            return host
    account = _ACCOUNT.search(connection_string)
    for name in (account[1] if account else None, values.get("account_name"), values.get("region")):
        if isinstance(name, str) and _NAME.fullmatch(name):
            return f"{kind} ({name})"
    return kind


def tokens_may_go(url: str | None, *, is_requested: bool) -> bool:
    """Whether a token may be sent to this place, a checked URL; None is the vendor's own place."""
    parts = urlsplit(url or "https://")
    return parts.scheme == "https" or (not is_requested and _is_loopback(parts.hostname or ""))


def plain_http_refusal(token: str, place: str, *, or_else: str = "") -> InvalidRequest:
    """
    The words for a token that stays here.

    Args:
        token: what would go: `the session token of the default credential chain`.
        place: whereto.
        or_else: what works without a token.
    """
    return InvalidRequest(
        f"{place} is plain http, and {token} would be readable on the way; "
        f"use https{f', or {or_else}' if or_else else ''} (plain http is for a loopback address that the storage config names)"
    )


def _host_of(text: str) -> str | None:
    try:
        parts = _split(text)
        host, port = parts.hostname, parts.port or _DEFAULT_PORTS.get(parts.scheme)
    except ValueError:
        return None
    return f"{host}:{port}" if host and _HOST.fullmatch(host) else None


def _endpoint_parts(text: str) -> tuple[str, str | None, int | None, str, str | None]:
    parts = _split(text)
    return parts.scheme, parts.hostname, parts.port or _DEFAULT_PORTS.get(parts.scheme), parts.path.rstrip("/"), parts.username


def _split(url: object) -> SplitResult:
    return urlsplit(_with_scheme(str(url).strip()))


def _with_scheme(text: str) -> str:
    return text if "://" in text else f"https://{text}"


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
