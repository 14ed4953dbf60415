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


def _endpoint_parts(text: str) -> tuple[str, str | None, int | None, str, str | None]:
    parts = _split(text)
    return parts.scheme, parts.hostname, parts.port or _DEFAULT_PORTS.get(parts.scheme), parts.path.rstrip("/"), parts.username


def _split(url: object) -> SplitResult:
    return urlsplit(_with_scheme(str(url).strip()))


def _with_scheme(text: str) -> str:
    return text if "://" in text else f"https://{text}"
