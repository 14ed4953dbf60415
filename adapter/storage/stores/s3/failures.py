"""
What is odd about S3's failures: codes that say more than the status, regions, and botocore's exceptions.

Host, bucket, region and S3's short error code are named; the server's message never is, because it
can echo the key id, and botocore's own words never are, because they may quote any parameter.
"""

from __future__ import annotations

import re

from botocore import exceptions as boto
from botocore.parsers import ResponseParserError
from urllib3.exceptions import HTTPError

from adapter.errors import AdapterError, InvalidRequest, SourceDenied, SourceNotFound, SourceUnavailable
from adapter.storage.stores.answers import Where

_DENIED = (
    "AccessDenied", "AccountProblem", "AllAccessDisabled", "ExpiredToken", "InvalidAccessKeyId", "InvalidSecurity", "InvalidToken",
    "MissingSecurityHeader", "NotSignedUp", "RequestExpired", "RequestTimeTooSkewed", "SignatureDoesNotMatch", "TokenRefreshRequired",
    "UnauthorizedAccess", "UnsupportedAlgorithm",
)  # fmt: skip
_AWAY = (
    "BandwidthLimitExceeded", "InternalError", "OperationAborted", "RequestLimitExceeded", "RequestThrottled", "RequestTimeout",
    "ServiceUnavailable", "SlowDown", "Throttling", "ThrottlingException", "TooManyRequests",
)  # fmt: skip
MEANINGS: dict[str, type[AdapterError]] = {
    **dict.fromkeys(_DENIED, SourceDenied),
    **dict.fromkeys(_AWAY, SourceUnavailable),
    "NoSuchBucket": SourceNotFound,
}
"""Of the codes that say more than the status."""
_ELSEWHERE = frozenset({"AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "PermanentRedirect", "TemporaryRedirect"})
_REDIRECTS = (301, 302, 307, 308)
_REGION = re.compile(r"[a-z0-9-]{2,32}")
NETWORK_ERRORS = (boto.HTTPClientError, boto.ConnectionError, boto.IncompleteReadError, HTTPError, OSError)
CREDENTIAL_ERRORS = (
    boto.NoCredentialsError, boto.NoAuthTokenError, boto.CredentialRetrievalError, boto.PartialCredentialsError,
    boto.MetadataRetrievalError, boto.TokenRetrievalError, boto.SSOError, boto.ProfileNotFound,
)  # fmt: skip
FOREIGN = (boto.ClientError, boto.BotoCoreError, ResponseParserError, HTTPError, OSError, ValueError)
"""All that botocore may raise."""


def meaning_of(error: Exception, where: Where, region: str, key: str | None) -> AdapterError:
    """The meaning of one of `FOREIGN`, with the listed object that was read, if any."""
    if isinstance(error, boto.ClientError):
        return _refusal(error, where, region, key)
    if isinstance(error, CREDENTIAL_ERRORS):
        return no_credentials(error, where.words, where.label)
    if isinstance(error, ResponseParserError):
        return not_s3(where)
    if isinstance(error, NETWORK_ERRORS):
        return where.unreachable(error)
    return InvalidRequest(f"{where.words} cannot be asked: {config_words(error, region)}")


def no_credentials(error: Exception, place: str, label: str) -> SourceDenied:
    """The default chain was asked and gave nothing for this place, to which the storage config with this label leads."""
    if isinstance(error, boto.NoCredentialsError):
        chain = "the default credential chain (environment, web identity, instance role) has no credentials"
    else:
        chain = f"the default credential chain failed ({type(error).__name__})"
    return SourceDenied(
        f"no credentials for {place}: {label} has no access_key_id and secret_access_key, and {chain}; "
        'give both, or anonymous "true" for a public bucket'
    )


def not_s3(where: Where) -> SourceUnavailable:
    """An answer in another language."""
    return SourceUnavailable(f"{where.words} gave an answer that is not S3's: is something else there?")


def config_words(error: Exception, region: str) -> str:
    """Why botocore refused to build a client or a request."""
    if isinstance(error, boto.InvalidRegionError):
        return f"{region!r} is not a region"
    if isinstance(error, boto.ParamValidationError):
        return "not a valid bucket name or key"
    return f"the endpoint, region or bucket name is not valid ({type(error).__name__})"


def _refusal(error: boto.ClientError, where: Where, region: str, key: str | None) -> AdapterError:
    meta = error.response.get("ResponseMetadata", {})
    status, code = meta.get("HTTPStatusCode", 0), str(error.response.get("Error", {}).get("Code", ""))
    if status in _REDIRECTS or code in _ELSEWHERE:
        actual = meta.get("HTTPHeaders", {}).get("x-amz-bucket-region")
        found = f"the bucket is in {actual!r}" if actual and _REGION.fullmatch(actual) else "the bucket is in another region"
        named = f"{code}, HTTP {status}" if code in _ELSEWHERE else f"HTTP {status}"
        return InvalidRequest(
            f"{where.words} is not in region {region!r}, {found} ({named}); set `region` (and endpoint_url) of {where.label}"
        )
    return where.refused(status, code, key=key, kind=MEANINGS.get(code))
