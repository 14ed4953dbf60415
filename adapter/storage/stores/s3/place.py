"""
Where a bucket of S3 is: URL, signing region and addressing, as botocore knows them, without the network.

Addressing styles, access points, dots in names and partitions are botocore's to know: it makes a request, and an event before
it is sent takes the request's URL and its signature's scope.
"""

from __future__ import annotations

import functools
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, cast

import botocore.session
from botocore import UNSIGNED
from botocore import exceptions as boto
from botocore.config import Config

from adapter.errors import InvalidRequest
from adapter.storage.stores.s3.config import S3Connection

_SCOPE = re.compile(r"AWS4-HMAC-SHA256 Credential=[^,]*/([A-Za-z0-9-]+)/s3/aws4_request,")
"""With the region of a signature. Source: Amazon S3 API Reference, Authenticating Requests (AWS Signature Version 4)."""


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
