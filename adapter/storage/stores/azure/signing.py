"""
Azure's Shared Key: the signature of a request without a body. Pure.

Source: Azure Storage, Authorize with Shared Key. Compared with the vendor's library by a test over odd names.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Mapping
from urllib.parse import parse_qsl, urlsplit

_SIGNED = ("content-encoding", "content-language", "content-length", "content-md5", "content-type", "date", "if-modified-since",
           "if-match", "if-none-match", "if-unmodified-since", "range")  # fmt: skip


def authorization(method: str, url: str, headers: Mapping[str, str], account: str, key: bytes) -> str:
    """
    The value of `Authorization`.

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
