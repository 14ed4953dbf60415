"""
Where bearer tokens may go: never over plain http, except to a loopback address that the stored config names.

A token is its own proof: each reader on the wire could use it. Keys that sign (SigV4, Azure's Shared Key) never
travel, so plain http is the operator's to choose for them. What a config says is checked where the config is read. What
a credential chain finds is known to the client alone, which asks the field `may_carry_tokens` of its connection:

- gcs: the chain gave credentials (not anonymous ones), and the field is false: `raise plain_http_refusal(…)`;
- azure: the pod has a workload identity, and the field is false: likewise;
- s3: a request is about to leave with the header `X-Amz-Security-Token`, the connection has no `session_token` of its
  own, and the field is false: likewise. A chain may begin to give tokens at any refresh, so each request is looked at.
"""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit

from adapter.errors import InvalidRequest


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


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
