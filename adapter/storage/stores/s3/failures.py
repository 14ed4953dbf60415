"""
What is odd about S3's failures: codes that say more than the status, regions, and botocore's exceptions.

Host, bucket, region and S3's short error code are named; the server's message never is, because it
can echo the key id, and botocore's own words never are, because they may quote any parameter.
"""

from __future__ import annotations

import re
from dataclasses import replace

from botocore import exceptions as boto
from botocore.parsers import ResponseParserError
from urllib3.exceptions import HTTPError

from adapter.errors import AdapterError, InvalidRequest, SourceDenied, SourceNotFound, SourceUnavailable
from adapter.storage.stores.answers import Where
from adapter.storage.stores.s3.chain import ChainError

_DENIED = (
    "AccessDenied", "AccountProblem", "AllAccessDisabled", "ExpiredToken", "InvalidAccessKeyId", "InvalidSecurity", "InvalidToken",
    "MissingSecurityHeader", "NotSignedUp", "RequestExpired", "RequestTimeTooSkewed", "SignatureDoesNotMatch", "TokenRefreshRequired",
    "UnauthorizedAccess", "UnsupportedAlgorithm",
)  # fmt: skip
_AWAY = (
    "BandwidthLimitExceeded", "IDPCommunicationError", "InternalError", "OperationAborted",
    "RequestLimitExceeded", "RequestThrottled", "RequestTimeout",
    "ServiceUnavailable", "SlowDown", "Throttling", "ThrottlingException", "TooManyRequests",
)  # fmt: skip
MEANINGS: dict[str, type[AdapterError]] = {
    **dict.fromkeys(_DENIED, SourceDenied),
    **dict.fromkeys(_AWAY, SourceUnavailable),
    "NoSuchBucket": SourceNotFound,
}
"""Of the codes that say more than the status."""
_ELSEWHERE = frozenset({"AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "PermanentRedirect", "TemporaryRedirect"})
_REDIRECTS = (301, 302, 303, 307, 308)
_REGION = re.compile(r"[a-z0-9-]{2,32}")
_CODE = re.compile(r"[A-Za-z][A-Za-z0-9.]{0,63}")
NETWORK_ERRORS = (boto.HTTPClientError, boto.ConnectionError, boto.IncompleteReadError, HTTPError, OSError)
CREDENTIAL_ERRORS = (
    boto.NoCredentialsError, boto.NoAuthTokenError, boto.CredentialRetrievalError, boto.PartialCredentialsError,
    boto.MetadataRetrievalError, boto.TokenRetrievalError, boto.SSOError, boto.ProfileNotFound,
)  # fmt: skip
_NOT_S3 = (ResponseParserError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)
"""What botocore does of an answer that has no rows, no sizes, or another form: it takes for granted what it was told."""
FOREIGN = (boto.ClientError, boto.BotoCoreError, HTTPError, OSError, ValueError, ChainError, *_NOT_S3)
"""All that botocore may raise."""


def meaning_of(error: Exception, where: Where, region: str, key: str | None) -> AdapterError:
    """The meaning of one of `FOREIGN`, with the listed object that was read, if any."""
    if isinstance(error, CREDENTIAL_ERRORS):
        error = ChainError(error, None)
    if isinstance(error, ChainError):
        return chain_failure(error, where)
    if isinstance(error, boto.ClientError):
        return _refusal(error, where, region, key)
    if isinstance(error, NETWORK_ERRORS):
        return where.unreachable(error)
    if isinstance(error, boto.InvalidRegionError) and error.kwargs.get("region_name") != region:
        return not_s3(where)  # an answer has named it
    if isinstance(error, boto.BotoCoreError | UnicodeEncodeError):
        return InvalidRequest(f"{where.words} cannot be asked: {config_words(error, region)}")
    return not_s3(where)


def chain_failure(error: ChainError, where: Where) -> AdapterError:
    """The default chain was asked on the way to this place. What can pass is away, everything else a matter of credentials."""
    cause, trouble = error.cause, error.trouble
    if trouble is not None:
        giver = replace(where, words=f"{trouble.host}, which gives out the credentials for {where.words},", is_plain_http=False)
        if trouble.error is not None:
            return giver.unreachable(trouble.error)
        return giver.refused(trouble.status, kind=SourceUnavailable, retry_after=trouble.retry_after)
    if isinstance(cause, boto.ClientError) and MEANINGS.get(_code_of(cause)) is SourceUnavailable:
        giver = replace(where, words=f"AWS, which gives out the credentials for {where.words},")
        return giver.refused(_status_of(cause), _code_of(cause), kind=SourceUnavailable)
    return no_credentials(error, where.words, where.label)


def no_credentials(error: ChainError, place: str, label: str) -> SourceDenied:
    """The default chain gave nothing for this place, to which the storage config with this label leads, and will not later."""
    if isinstance(error.cause, boto.NoCredentialsError):
        chain = "the default credential chain (environment, web identity, instance role) has no credentials"
    else:
        code = _code_of(error.cause) if isinstance(error.cause, boto.ClientError) else ""
        chain = f"the default credential chain failed ({code if _CODE.fullmatch(code) else type(error.cause).__name__})"
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
    status, code, headers = _status_of(error), _code_of(error), error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    if status in _REDIRECTS or code in _ELSEWHERE:
        actual = headers.get("x-amz-bucket-region")
        found = f"the bucket is in {actual!r}" if actual and _REGION.fullmatch(actual) else "the bucket is in another region"
        named = f"{code}, HTTP {status}" if code in _ELSEWHERE else f"HTTP {status}"
        return InvalidRequest(
            f"{where.words} is not in region {region!r}, {found} ({named}); set `region` (and endpoint_url) of {where.label}"
        )
    return where.refused(status, code, key=key, kind=MEANINGS.get(code), retry_after=headers.get("retry-after"))


def _status_of(error: boto.ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _code_of(error: boto.ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))
