"""What the engine is asked, by which way it asks that, and what it answers."""

from __future__ import annotations

import functools
import os
import ssl
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

import certifi
import pycurl

SMALL_BYTES = 256 * 1024
"""Most of a body that is asked for in a row of such ones, over one connection."""
ERROR_BYTES = 64 * 1024
"""Most of an answer that is neither 200 nor 206. The clouds' error documents have less than 8 KiB."""
TOKEN_BYTES = 256 * 1024
"""Most that an answer with a token, or other credentials, may have: honest ones have 2 KiB."""
_ENDING_IN_IPV4 = (IPv6Network("::/96"), IPv6Network("64:ff9b::/96"), IPv6Network("64:ff9b:1::/48"))
"""IPv4-compatible, and NAT64: RFC 6052, RFC 8215."""
_ISATAP = (0x00005EFE, 0x02005EFE)
"""Source: RFC 5214; bits 64 to 96 of an address that ends in an IPv4 address."""


@dataclass(frozen=True)
class Guard:
    """
    Networks that a request may not lead to.

    Where only a request names an endpoint, the endpoint may not be an address of the pod itself or of its machine's
    metadata service, under whatever name or notation.
    """

    denied: tuple[IPv4Network | IPv6Network, ...] = ()

    def allows(self, address: str) -> bool:
        """Whether neither the address nor an address that it leads to is denied."""
        return not any(
            reached.version == network.version and reached in network
            for reached in _reached(ip_address(address.partition("%")[0]))
            for network in self.denied
        )


FREE = Guard()
"""Every address is allowed: the stored config names the endpoint."""


def _reached(address: IPv4Address | IPv6Address) -> Iterator[IPv4Address | IPv6Address]:
    """The address, and those that a packet to it may end at."""
    yield address
    if address.is_unspecified:  # Linux connects to itself
        yield ip_address("127.0.0.1" if address.version == 4 else "::1")
    if isinstance(address, IPv4Address):
        return
    inner = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if any(address in network for network in _ENDING_IN_IPV4) or int(address) >> 32 & 0xFFFFFFFF in _ISATAP:
        inner.append(IPv4Address(int(address) & 0xFFFFFFFF))
    for each in inner:
        if each is not None:
            yield from _reached(each)


@dataclass(frozen=True)
class Trust:
    """Which servers are trusted, and what is shown to them. PEM texts; nothing is written to a disk."""

    verify: bool = True
    ca_pem: str | None = field(default=None, repr=False)
    """Authorities that are trusted instead of the usual ones."""
    ca_file: str | None = None
    """A bundle that the environment names, where there is no `ca_pem`."""
    client_pem: str | None = field(default=None, repr=False)
    """Certificate and key."""


@dataclass(frozen=True)
class Access:
    """How one server is reached. Requests with equal ones share connections."""

    trust: Trust = Trust()
    guard: Guard = FREE
    proxy: str = field(default="", repr=False)
    """URL with credentials; empty: none."""

    def apply(self, curl: Any) -> None:
        """Set trust and proxy on a handle of pycurl. The engine heeds the guard."""
        trust = self.trust
        if not trust.verify:
            curl.setopt(pycurl.SSL_VERIFYPEER, 0)
            curl.setopt(pycurl.SSL_VERIFYHOST, 0)
        elif trust.ca_pem:
            curl.setopt(pycurl.CAINFO_BLOB, trust.ca_pem.encode())
        else:
            curl.setopt(pycurl.CAINFO, trust.ca_file or _default_authorities())
        if trust.client_pem:
            curl.setopt(pycurl.SSLCERT_BLOB, trust.client_pem.encode())
            curl.setopt(pycurl.SSLKEY_BLOB, trust.client_pem.encode())
        curl.setopt(pycurl.NOPROXY, "")  # libcurl reads the environment otherwise
        parts = urlsplit(self.proxy)
        curl.setopt(pycurl.PROXY, parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl())
        if parts.username is not None:
            curl.setopt(pycurl.PROXYUSERNAME, unquote(parts.username).encode())
            curl.setopt(pycurl.PROXYPASSWORD, unquote(parts.password or "").encode())


def proxy_for(url: str) -> str:
    """The proxy that HTTP_PROXY, HTTPS_PROXY and NO_PROXY, in either case, name for a URL; empty: none."""
    parts = urlsplit(url)
    proxy = urllib.request.getproxies().get(parts.scheme, "")
    if not proxy or urllib.request.proxy_bypass(parts.netloc.rpartition("@")[2]):
        return ""
    return proxy if "://" in proxy else f"http://{proxy}"


@functools.cache
def _default_authorities() -> str:
    """The system's bundle, or certifi's: the path in pycurl's wheel exists on some systems only."""
    path = ssl.get_default_verify_paths().cafile
    return path if path is not None and os.access(path, os.R_OK) else certifi.where()


@dataclass(slots=True)
class Head:
    """Status and headers of an answer."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    """By name in lower case; values of equal names are joined by `, `."""
    body: bytes = b""
    """As far as no sink takes it."""


def head_of(lines: Sequence[bytes]) -> Head:
    """Of a status line and headers."""
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, _, value = line.decode("latin-1").partition(":")
        name = name.lower()
        headers[name] = f"{headers[name]}, {value.strip()}" if name in headers else value.strip()
    return Head(int(lines[0].split(b" ", 2)[1]), headers)


class Sink(Protocol):
    """Takes the body of an answer of status 200 or 206. Its methods are called in the engine's thread; what they raise `fetch` raises."""

    def begin(self, head: Head) -> None:
        """The head is whole. Called once, before any bytes."""

    def take(self, chunk: memoryview) -> None:
        """The next bytes, valid during the call."""

    def end(self) -> None:
        """The body has ended as its framing says. Not called after a failure."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request, and those that come after it. Nothing is followed or repeated."""

    url: str
    headers: Mapping[str, str]
    access: Access
    most_bytes: int
    """Of a body of status 200 or 206."""
    sink: Sink | None = None
    """None: the body is kept in memory, as that of any other status."""
    written_bytes: int = 0
    """That the sink writes to a disk."""
    method: str = "GET"
    body: bytes | None = None
    then: Callable[[Head], Request | None] = lambda _: None
    """What is asked next, of the same server, when this has come whole with status 200 or 206. Called in the engine's thread."""
