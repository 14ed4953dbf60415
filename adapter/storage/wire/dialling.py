"""
How a connection is made: which addresses may be dialled, and dialling the addresses that were checked.

Where only a request names an endpoint, the endpoint may not be an address of the pod itself or of its machine's
metadata service, under whatever name or notation.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

from adapter.storage.wire.calls import Call
from adapter.storage.wire.metering import cut
from adapter.storage.wire.names import Address

Network = IPv4Network | IPv6Network
_ANY: dict[IPv4Address | IPv6Address, IPv4Address | IPv6Address] = {
    IPv4Address(0): IPv4Address("127.0.0.1"),
    IPv6Address(0): IPv6Address("::1"),
}
"""Linux dials itself for `0.0.0.0` and `::`."""
_NAT64 = (IPv6Network("64:ff9b::/96"), IPv6Network("64:ff9b:1::/48"))
"""Source: RFC 6052 and RFC 8215; a gateway sends on to the IPv4 address in the last 32 bits."""
_COMPATIBLE = IPv6Network("::/96")
_ISATAP = (0x00005EFE, 0x02005EFE)
"""Source: RFC 5214; bits 64 to 96 of an address that ends in an IPv4 address."""


class DeniedAddress(OSError):
    """The endpoint is an address that may not be dialled for a request."""

    def __init__(self, address: str) -> None:
        self.address = address
        super().__init__(f"{address} may not be dialled for a request (REQUEST_ENDPOINTS_DENIED)")


@dataclass(frozen=True)
class Guard:
    """Which addresses may not be dialled."""

    denied: tuple[Network, ...] = ()

    def check(self, addresses: Sequence[Address]) -> None:
        """Raise DeniedAddress when one of them is denied: which of them is dialled is the server's choice too."""
        for address in addresses:
            if not self.allows(address.text):
                raise DeniedAddress(address.text)

    def allows(self, address: str) -> bool:
        """Whether neither the address nor an address that it leads to is denied."""
        return not any(
            reached.version == network.version and reached in network
            for reached in _reached(ip_address(address.partition("%")[0]))
            for network in self.denied
        )


FREE = Guard()
"""Everything may be dialled: what the stored config names."""


def dial(
    addresses: Sequence[Address], port: int, *, seconds: float, options: Sequence[tuple[int, int, int]], call: Call | None
) -> socket.socket:
    """
    A connection to the first address that answers.

    Args:
        addresses: tried in this order.
        port: of the server.
        seconds: for all of them together; each gets its share of what is left.
        options: set on the socket before it is connected.
        call: whose stop ends the wait.

    Raises:
        OSError: of the last address.
        Stopped: the call was cut.
    """
    until = time.monotonic() + seconds
    failure: OSError = OSError("the name has no address")
    for tried, address in enumerate(addresses):
        share = (until - time.monotonic()) / (len(addresses) - tried)
        if share <= 0:
            break
        try:
            return _connected(address, port, share, options, call)
        except OSError as error:
            failure = error
            if call is not None:
                call.check()
    raise failure


def _connected(address: Address, port: int, seconds: float, options: Sequence[tuple[int, int, int]], call: Call | None) -> socket.socket:
    line = socket.socket(address.family, socket.SOCK_STREAM)
    try:
        for option in options:
            line.setsockopt(*option)
        line.settimeout(seconds)
        if call is not None:
            call.hold(line, partial(cut, line))  # wakes a connect as well
        line.connect(address.at(port))
    except BaseException:
        _let_go(line, call)  # before its number can be another connection's
        line.close()
        raise
    _let_go(line, call)
    return line


def _let_go(line: socket.socket, call: Call | None) -> None:
    if call is not None:
        call.let_go(line)


def _reached(address: IPv4Address | IPv6Address) -> Iterator[IPv4Address | IPv6Address]:
    """The address, and those that a packet to it may end at."""
    yield address
    if address in _ANY:
        yield _ANY[address]
    if isinstance(address, IPv4Address):
        return
    number = int(address)
    inner: list[int] = []
    if address.ipv4_mapped is not None or address in _COMPATIBLE or any(address in network for network in _NAT64):
        inner.append(number)
    if number >> 32 & 0xFFFFFFFF in _ISATAP:
        inner.append(number)
    if address.sixtofour is not None:
        inner.append(int(address.sixtofour))
    if address.teredo is not None:
        inner += [int(end) for end in address.teredo]
    for each in inner:
        yield from _reached(IPv4Address(each & 0xFFFFFFFF))
