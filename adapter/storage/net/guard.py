"""
Which addresses a request may lead to. Pure.

Where only a request names an endpoint, the endpoint may not be an address of the pod itself or of its machine's
metadata service, under whatever name or notation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

Network = IPv4Network | IPv6Network
_ANY: dict[IPv4Address | IPv6Address, IPv4Address | IPv6Address] = {
    IPv4Address(0): IPv4Address("127.0.0.1"),
    IPv6Address(0): IPv6Address("::1"),
}
"""Linux connects to itself for `0.0.0.0` and `::`."""
_HOLDING_IPV4 = (
    (IPv6Network("::/96"), 0, 0),  # IPv4-compatible
    (IPv6Network("::ffff:0:0/96"), 0, 0),  # IPv4-mapped
    (IPv6Network("64:ff9b::/96"), 0, 0),  # NAT64, RFC 6052
    (IPv6Network("64:ff9b:1::/48"), 0, 0),  # NAT64, RFC 8215
    (IPv6Network("2002::/16"), 80, 0),  # 6to4, RFC 3056
    (IPv6Network("2001::/32"), 64, 0),  # Teredo's server, RFC 4380
    (IPv6Network("2001::/32"), 0, 0xFFFFFFFF),  # Teredo's client
)
"""Networks whose addresses lead to an IPv4 address: by how many bits that is shifted, and which of its bits are inverted."""
_ISATAP = (0x00005EFE, 0x02005EFE)
"""Source: RFC 5214; bits 64 to 96 of an address that ends in an IPv4 address."""


@dataclass(frozen=True)
class Guard:
    """Networks that are denied."""

    denied: tuple[Network, ...] = ()

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
    if address in _ANY:
        yield _ANY[address]
    if isinstance(address, IPv4Address):
        return
    number = int(address)
    inner = [number >> shift ^ inverted for network, shift, inverted in _HOLDING_IPV4 if address in network]
    if number >> 32 & 0xFFFFFFFF in _ISATAP:
        inner.append(number)
    for each in inner:
        yield from _reached(IPv4Address(each & 0xFFFFFFFF))
