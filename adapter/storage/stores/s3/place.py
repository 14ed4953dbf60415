"""
Where a bucket of S3 is: URL, signing region and addressing, as botocore knows them, without the network.

Addressing styles, access points, dots in names and partitions are botocore's to know: it makes a request, and an event before
it is sent takes the request's URL and its signature's scope.
"""

from __future__ import annotations

import functools
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, cast
from urllib.parse import SplitResult, urlsplit

import botocore.session
from botocore import UNSIGNED
from botocore import exceptions as boto
from botocore.config import Config
from botocore.loaders import Loader

from adapter.errors import InvalidRequest
from adapter.storage.stores.s3.config import S3Connection

DEFAULT_REGION = "us-east-1"
_PORTS = {"http": 80, "https": 443}
_SCOPE = re.compile(r"AWS4-HMAC-SHA256 Credential=[^,]*/([A-Za-z0-9-]+)/s3/aws4_request,")
"""With the region of a signature. Source: Amazon S3 API Reference, Authenticating Requests (AWS Signature Version 4)."""


@dataclass(frozen=True)
class BucketPlace:
    """Where requests for a bucket go."""

    base: str
    """URL of the bucket, without a slash at its end."""
    host: str
    """As `Host` has it."""
    region: str
    """That requests are signed for."""


class _FoundError(Exception):
    """The request that would be sent."""

    def __init__(self, request: Any) -> None:
        super().__init__()
        self.request = request


def region_of(connection: S3Connection) -> str:
    """The config's region, or the environment's."""
    if connection.region:
        return connection.region
    with suppress(boto.ProfileNotFound):
        return cast("str | None", botocore.session.Session().get_config_variable("region")) or DEFAULT_REGION
    return DEFAULT_REGION


def ca_bundle() -> str | None:
    """Which authorities the environment trusts for AWS."""
    with suppress(boto.ProfileNotFound):
        return cast("str | None", botocore.session.Session().get_config_variable("ca_bundle"))
    return None


def place_of(connection: S3Connection, bucket: str, region: str) -> BucketPlace:
    """
    Where this bucket is. Slow (0.1 s).

    Raises:
        InvalidRequest: the endpoint, region or bucket name is none, or the bucket takes another signature than SigV4.
    """
    where = connection.host
    if bucket.endswith("--x-s3"):
        raise _other_signature(where)
    try:
        client = _session().create_client(
            "s3",
            region_name=region,
            endpoint_url=connection.endpoint_url,
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
    except _FoundError as found:
        return _place(found.request, region, where, is_anonymous=connection.is_anonymous)
    except boto.InvalidRegionError as error:
        raise InvalidRequest(f"bucket {bucket!r} at {where} cannot be asked: {region!r} is not a region") from error
    except boto.ProfileNotFound as error:
        raise InvalidRequest(f"bucket {bucket!r} at {where} cannot be asked: AWS_PROFILE names a profile that does not exist") from error
    except boto.ParamValidationError as error:
        raise InvalidRequest(f"bucket {bucket!r} at {where} cannot be asked: not a valid bucket name or key") from error
    except (boto.BotoCoreError, ValueError) as error:
        words = f"the endpoint, region or bucket name is not valid ({type(error).__name__})"
        raise InvalidRequest(f"bucket {bucket!r} at {where} cannot be asked: {words}") from error
    raise AssertionError("the event was not called")


def _take(request: Any, **_: object) -> None:
    raise _FoundError(request)


def _place(request: Any, region: str, where: str, *, is_anonymous: bool) -> BucketPlace:
    base = request.url.partition("?")[0].rstrip("/")
    if not is_anonymous:
        signed = request.headers.get("Authorization") or b""
        scope = _SCOPE.match(signed.decode() if isinstance(signed, bytes) else signed)
        if scope is None:
            raise _other_signature(where)
        region = scope[1]
    return BucketPlace(base, host_of(urlsplit(base)), region)


def _other_signature(where: str) -> InvalidRequest:
    """Directory buckets, whose names end so, and Outposts."""
    return InvalidRequest(f"the bucket at {where} wants another signature than that of S3, which is not supported")


def host_of(url: SplitResult) -> str:
    """As `Host` has it, and as it is signed."""
    host = url.hostname or ""
    host = f"[{host}]" if ":" in host else host
    return host if url.port in (None, _PORTS.get(url.scheme)) else f"{host}:{url.port}"


class _Descriptions(Loader):
    """Of services. botocore looks into each of its 400 folders, twice, to know which services there are: 20 ms."""

    def list_available_services(self, type_name: str) -> list[str]:
        """Names of folders. A request for one that does not describe its service so is told then."""
        folders = filter(os.path.isdir, self.search_paths)
        return sorted({name for folder in folders for name in os.listdir(folder)})  # noqa: PTH208 - plain names


@functools.cache
def _session() -> botocore.session.Session:
    session = botocore.session.Session()
    session.register_component("data_loader", _Descriptions())
    return session
