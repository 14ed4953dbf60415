"""
Where requests to a bucket of S3 go, and how they are signed. Without the network.

Addressing styles, access points, dots in names and partitions are botocore's to know: it makes a request, and an event before
it is sent takes the request's URL and its signature's scope.

Signatures are of requests without a body: AWS Signature Version 4, as botocore makes them, at a fifth of the cost. botocore's was a
third of what the adapter itself spends on a small file. What is signed, and how, is compared with botocore's by a test over odd keys.

Source: Amazon S3 API Reference, Authenticating Requests: Using the Authorization Header (AWS Signature Version 4).
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, cast
from urllib.parse import SplitResult, urlsplit

import botocore.session
from botocore import UNSIGNED
from botocore import exceptions as boto
from botocore.config import Config
from botocore.credentials import ReadOnlyCredentials

from adapter.errors import InvalidRequest
from adapter.storage.stores.s3 import S3Connection

_SCOPE = re.compile(r"AWS4-HMAC-SHA256 Credential=[^,]*/([A-Za-z0-9-]+)/s3/aws4_request,")
"""With the region of a signature."""
_ALGORITHM = "AWS4-HMAC-SHA256"
_EMPTY = hashlib.sha256(b"").hexdigest()
_UNSIGNED = ("accept-encoding", "user-agent")
"""Proxies change them."""
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class BucketPlace:
    """Where requests for a bucket go."""

    base: str
    """URL of the bucket, without a slash at its end."""
    region: str
    """That requests are signed for."""


class _FoundError(Exception):
    """The request that would be sent."""

    def __init__(self, request: Any) -> None:
        super().__init__()
        self.request = request


def of_environment(name: str) -> str | None:
    """What the environment or the profile says, as botocore reads it: `region`, `ca_bundle`."""
    with suppress(boto.ProfileNotFound):
        return cast("str | None", botocore.session.Session().get_config_variable(name))
    return None


def place_of(connection: S3Connection, bucket: str, region: str) -> BucketPlace:
    """
    Where this bucket is. Slow (0.1 s).

    Raises:
        InvalidRequest: the endpoint, region or bucket name is none, or the bucket takes another signature than SigV4.
    """
    where = connection.host or "Amazon S3"
    other_signature = InvalidRequest(f"the bucket at {where} wants another signature than that of S3, which is not supported")
    if bucket.endswith("--x-s3"):  # a directory bucket
        raise other_signature
    try:
        client = _session().create_client(
            "s3",
            region_name=region,
            endpoint_url=connection.url,
            aws_access_key_id="-",
            aws_secret_access_key="-",  # noqa: S106 - nothing is sent
            config=Config(
                signature_version=UNSIGNED if connection.is_anonymous else "s3v4",
                s3={"addressing_style": cast("Literal['auto', 'path', 'virtual']", connection.addressing_style)},
                retries={"total_max_attempts": 1, "mode": "standard"},
            ),
        )
        client.meta.events.register("before-send.s3", _take)
        cast("Any", client).list_objects_v2(Bucket=bucket)
        raise AssertionError("the event was not called")
    except _FoundError as found:
        base, signed = found.request.url.partition("?")[0].rstrip("/"), found.request.headers.get("Authorization") or b""
    except (boto.BotoCoreError, ValueError) as error:
        why = f"the endpoint, region or bucket name is not valid ({type(error).__name__})"
        if isinstance(error, boto.InvalidRegionError):
            why = f"{region!r} is not a region"
        elif isinstance(error, boto.ProfileNotFound):
            why = "AWS_PROFILE names a profile that does not exist"
        elif isinstance(error, boto.ParamValidationError):
            why = "not a valid bucket name or key"
        raise InvalidRequest(f"bucket {bucket!r} at {where} cannot be asked: {why}") from error
    if connection.is_anonymous:
        return BucketPlace(base, region)
    scope = _SCOPE.match(signed.decode() if isinstance(signed, bytes) else signed)
    if scope is None:  # Outposts
        raise other_signature
    return BucketPlace(base, scope[1])


def _take(request: Any, **_: object) -> None:
    raise _FoundError(request)


@functools.cache
def _session() -> botocore.session.Session:
    return botocore.session.Session()


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
    given = {**headers, "Host": _host_of(parts), "X-Amz-Date": moment, "X-Amz-Content-SHA256": _EMPTY}
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


def _host_of(url: SplitResult) -> str:
    """As the `Host` header has it: with the port where that is not the usual one."""
    host = url.hostname or ""
    host = f"[{host}]" if ":" in host else host
    return host if url.port in (None, _PORTS.get(url.scheme)) else f"{host}:{url.port}"
