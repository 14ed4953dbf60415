"""Endpoints as storage configs name them: checked, and compared so that a doubt is a no. Pure."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, urlsplit

from adapter.errors import InvalidRequest

_HOST = re.compile(r"[A-Za-z0-9._:-]+")
"""A host name, or an address (IPv6 without its brackets)."""
_ODD = re.compile(r"[\x00-\x1f\x7f\\]")
"""Characters that libraries read differently: one takes for a part of the host what another one drops."""
_DEFAULT_PORTS = {"http": 80, "https": 443}
_PARTS = 5
"""Of an endpoint; the last one is the path."""


def checked_endpoint(text: str, label: str, name: str = "endpoint_url", *, query: bool = False) -> str:
    """
    The endpoint as a URL; https when no scheme is given, as the Go adapter's SDK did.

    Raises:
        InvalidRequest: not an http(s) URL. The text is not quoted: it may hold a password.
    """
    url = _with_scheme(text)
    try:
        parts = urlsplit(url)
        has_server = _HOST.fullmatch(parts.hostname or "") is not None and parts.netloc.isascii() and parts.port != 0
        is_good = has_server and parts.scheme in _DEFAULT_PORTS and not _ODD.search(url)
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
    return _are_same(one, other, _PARTS)


def is_same_origin(one: object, other: object) -> bool:
    """Whether scheme, host and port are the same: paths and queries of one web server are the request's to choose."""
    return _are_same(one, other, _PARTS - 1)


def origin(url: SplitResult) -> str:
    """Scheme and server of a URL."""
    return f"{url.scheme}://{url.netloc}"


def _are_same(one: object, other: object, count: int) -> bool:
    """Whether so many parts are the same."""
    if not one or not other:
        return not one and not other
    try:
        return _parts(one)[:count] == _parts(other)[:count]
    except ValueError:
        return False


def _parts(text: object) -> tuple[object, ...]:
    url = urlsplit(_with_scheme(str(text).strip()))
    return url.scheme, url.hostname, url.port or _DEFAULT_PORTS.get(url.scheme), url.username, url.path.rstrip("/")


def _with_scheme(text: str) -> str:
    return text if "://" in text else f"https://{text}"
