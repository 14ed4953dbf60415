"""
What an S3 failure means, and its words.

Pure tables over status, error code and the exception chain; knows nothing of boto3. Host, bucket and
S3's short error code are named; the server's message never is, because it can echo the key id.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from adapter.errors import AdapterError, InvalidRequest, SourceChanged, SourceDenied, SourceNotFound, SourceUnavailable
from adapter.storage.network import CUT, network_words

_DENIED = frozenset({
    "AccessDenied", "AccountProblem", "AllAccessDisabled", "ExpiredToken", "InvalidAccessKeyId", "InvalidSecurity", "InvalidToken",
    "MissingSecurityHeader", "NotSignedUp", "RequestExpired", "RequestTimeTooSkewed", "SignatureDoesNotMatch", "TokenRefreshRequired",
    "UnauthorizedAccess", "UnsupportedAlgorithm",
})  # fmt: skip
_AWAY = frozenset({
    "BandwidthLimitExceeded", "InternalError", "OperationAborted", "RequestLimitExceeded", "RequestThrottled", "RequestTimeout",
    "ServiceUnavailable", "SlowDown", "Throttling", "ThrottlingException", "TooManyRequests",
})  # fmt: skip
_ELSEWHERE = frozenset({"AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "PermanentRedirect", "TemporaryRedirect"})
_REDIRECTS = (301, 302, 307, 308)
_HTTPS_HINT = "; is the endpoint https?"
_CODE = re.compile(r"[A-Za-z][A-Za-z0-9.]{0,63}")
_REGION = re.compile(r"[a-z0-9-]{2,32}")


@dataclass(frozen=True, kw_only=True)
class Where:
    """The bucket that was asked, as error texts name it."""

    host: str
    bucket: str
    region: str
    label: str
    """The storage config that led here."""
    is_plain_http: bool
    is_unsigned: bool

    @property
    def words(self) -> str:
        """`bucket 'b' at host:port`."""
        return f"bucket {self.bucket!r} at {self.host}"


def refused(where: Where, *, status: int, code: str, actual_region: str | None, key: str | None) -> AdapterError:
    """
    The meaning of an error answer.

    Args:
        where: the bucket.
        status: HTTP status.
        code: S3's error code, or the status again where the body had none.
        actual_region: `x-amz-bucket-region` of the answer.
        key: the listed object that was read; None for a listing.
    """
    named = f"{code}, HTTP {status}" if _CODE.fullmatch(code) else f"HTTP {status}"
    if code == "NoSuchBucket":
        return SourceNotFound(f"there is no {where.words}")
    if status in _REDIRECTS or code in _ELSEWHERE:
        return InvalidRequest(_elsewhere(where, named, actual_region))
    if status in (401, 403) or code in _DENIED:
        return SourceDenied(_denied(where, named))
    if key is not None and status in (404, 412, 416):
        what = "is gone" if status == 404 else "was replaced"
        return SourceChanged(f"{key!r} {what} since it was listed ({where.words}, {named})")
    return _failed(where, status, code, named)


def _failed(where: Where, status: int, code: str, named: str) -> AdapterError:
    if status == 404:
        return SourceNotFound(f"nothing is at {where.words} ({named})")
    if status >= 500 or status in (408, 429) or code in _AWAY:
        return SourceUnavailable(f"{where.words} cannot be read now ({named})")
    is_silent = where.is_plain_http and not _CODE.fullmatch(code)
    return InvalidRequest(f"{where.words} refused the request ({named}){_HTTPS_HINT if is_silent else ''}")


def unreachable(where: Where, error: BaseException) -> SourceUnavailable:
    """The meaning of a request that got no whole answer."""
    words = network_words(error)
    hint = _HTTPS_HINT if where.is_plain_http and words == CUT else ""
    return SourceUnavailable(f"{where.words} cannot be reached: {words}{hint}")


def not_s3(where: Where) -> SourceUnavailable:
    """An answer in another language."""
    return SourceUnavailable(f"{where.words} gave an answer that is not S3's: is something else there?")


def no_credentials(where: Where, reason: str) -> SourceDenied:
    """The default chain was asked and gave nothing."""
    return SourceDenied(
        f"no credentials for {where.words}: {where.label} has no access_key_id and secret_access_key, and {reason}; "
        'give both, or anonymous "true" for a public bucket'
    )


def _denied(where: Where, named: str) -> str:
    if where.is_unsigned:
        return (
            f"{where.words} denied access ({named}); the request was not signed, because storage_params names an endpoint_url "
            f"that the credentials of {where.label} do not belong to, and brings none of its own"
        )
    return f"{where.words} denied access with the credentials of {where.label} ({named})"


def _elsewhere(where: Where, named: str, actual_region: str | None) -> str:
    found = f"it is in {actual_region!r}" if actual_region and _REGION.fullmatch(actual_region) else "it is in another region"
    return f"{where.words} is not in region {where.region!r}, {found} ({named}); set `region` (and endpoint_url) of {where.label}"
