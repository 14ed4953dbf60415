"""
Signatures of requests without a body: AWS Signature Version 4, as botocore makes them, at a fifth of the cost.

botocore's was a third of what the adapter itself spends on a small file. What is signed, and how, is compared with botocore's by a
test over odd keys. Requests that are signed in any other way are botocore's.

Source: Amazon S3 API Reference, Authenticating Requests: Using the Authorization Header (AWS Signature Version 4).
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import time
from collections.abc import Mapping
from urllib.parse import SplitResult, urlsplit

from botocore.credentials import ReadOnlyCredentials

_ALGORITHM = "AWS4-HMAC-SHA256"
_EMPTY = hashlib.sha256(b"").hexdigest()
_UNSIGNED = ("accept-encoding", "user-agent")
"""Proxies change them."""
_PORTS = {"http": 80, "https": 443}


def signed(
    method: str, url: str, headers: Mapping[str, str], keys: ReadOnlyCredentials, region: str, *, now: float | None = None
) -> dict[str, str]:
    """
    The headers with those of the signature, `Host` among them.

    Args:
        method: `GET`, `HEAD`.
        url: quoted, the fields of its query in the order of their names.
        headers: of the request.
        keys: to sign with.
        region: of the bucket.
        now: seconds since 1970; None: by the clock.
    """
    moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    parts = urlsplit(url)
    given = {**headers, "Host": host_of(parts), "X-Amz-Date": moment, "X-Amz-Content-SHA256": _EMPTY}
    if keys.token:
        given["X-Amz-Security-Token"] = keys.token
    lines = sorted((name.lower(), " ".join(value.split())) for name, value in given.items() if name.lower() not in _UNSIGNED)
    names = ";".join(name for name, _ in lines)
    canonical = "\n".join((method, parts.path, parts.query, *(f"{name}:{value}" for name, value in lines), "", names, _EMPTY))
    scope = (moment[:8], region, "s3", "aws4_request")
    text = "\n".join((_ALGORITHM, moment, "/".join(scope), hashlib.sha256(canonical.encode()).hexdigest()))
    signature = hmac.digest(_key(keys.secret_key or "", *scope), text.encode(), "sha256").hex()
    credential = "/".join((keys.access_key or "", *scope))
    given["Authorization"] = f"{_ALGORITHM} Credential={credential}, SignedHeaders={names}, Signature={signature}"
    return given


@functools.lru_cache(16)
def _key(secret: str, *scope: str) -> bytes:
    """Of a day and a region; deriving one takes four times as long as a signature."""
    key = f"AWS4{secret}".encode()
    for part in scope:
        key = hmac.digest(key, part.encode(), "sha256")
    return key


def host_of(url: SplitResult) -> str:
    """As the `Host` header has it: with the port where that is not the usual one."""
    host = url.hostname or ""
    host = f"[{host}]" if ":" in host else host
    return host if url.port in (None, _PORTS.get(url.scheme)) else f"{host}:{url.port}"
