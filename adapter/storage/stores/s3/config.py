"""
How an S3 store is reached: the fields of a storage config, checked, with secrets wrapped.

Two equal connections may share one client, so everything that makes a client differ is in here and
nothing else (no bucket, no name of the config). Knows nothing of botocore.

Source of the key names: ModelMesh storage secrets (`pullman/storageproviders/s3/provider.go`) and
KServe's (`kserve_storage.py`). An empty string is an absent key.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from adapter.errors import InvalidRequest
from adapter.storage.secret.endpoints import is_same_endpoint, tokens_may_go
from adapter.storage.secret.fields import Secret
from adapter.storage.secret.merging import Binding, StorageConfig
from adapter.storage.secret.trust import trusted_pem

KEYS = ("access_key_id", "secret_access_key", "session_token")
BINDING = Binding(
    places={"endpoint_url": is_same_endpoint},
    credentials=KEYS,
    whole=(("access_key_id", "secret_access_key"),),
    fixed=("addressing_style",),
)
_STYLES = ("path", "virtual", "auto")
_AMAZONS_BUCKET = re.compile(r"arn:.*|.*--[a-z]+-s3", re.DOTALL)
"""
Buckets that botocore reaches at a host of their own, whatever the endpoint and the addressing style: ARNs,
directory buckets, aliases on Outposts. Source: botocore's `data/s3/2006-03-01/endpoint-rule-set-1.json`.
"""
_AMAZON = (".amazonaws.com", ".amazonaws.com.cn")


@dataclass(frozen=True, kw_only=True)
class S3Connection:
    """Everything that a client is made from."""

    endpoint_url: str | None = None
    """None: Amazon's own endpoints."""
    region: str | None = None
    """None: what the process environment says, else us-east-1."""
    access_key_id: Secret | None = None
    secret_access_key: Secret | None = None
    session_token: Secret | None = None
    is_anonymous: bool = False
    """Requests are not signed: a public bucket, or an endpoint that must not see any credentials."""
    verify_tls: bool = True
    ca_pem: str | None = field(default=None, repr=False)
    """Certificates that are trusted instead of the usual ones."""
    addressing_style: str = "auto"
    is_requested: bool = False
    """Only the request names the place, so addresses are checked before they are dialled (`Means.guard`)."""
    may_carry_tokens: bool = True
    """Whether a session token of the default chain may go there; see `secret/endpoints.py`."""

    @property
    def host(self) -> str:
        """For people: the endpoint's host and port."""
        return urlsplit(self.endpoint_url).netloc if self.endpoint_url else "Amazon S3"


def connection_of(config: StorageConfig) -> S3Connection:
    """The connection fields of a storage config. Blocks: a CA bundle may be a file. Raises InvalidRequest, with the field's name."""
    fields = config.fields
    endpoint = fields.endpoint("endpoint_url")
    if (
        endpoint
        and config.bucket
        and _AMAZONS_BUCKET.fullmatch(config.bucket)
        and not (urlsplit(endpoint).hostname or "").endswith(_AMAZON)
    ):
        raise InvalidRequest(f"{config.label}: the bucket's name is of a form that Amazon alone has, and would lead away from endpoint_url")
    style = (fields.text("addressing_style") or ("path" if endpoint else "auto")).lower()
    if style not in _STYLES:
        raise InvalidRequest(f"{config.label}: addressing_style is unknown; expected path, virtual or auto")
    keys = {name: fields.secret(name) for name in KEYS}
    is_anonymous = fields.flag("anonymous", default=False)
    if not is_anonymous:
        _check_pair(keys, config.label)
    return S3Connection(
        endpoint_url=endpoint,
        region=fields.text("region"),
        is_anonymous=is_anonymous,
        verify_tls=fields.flag("verify_ssl", default=True),
        ca_pem=trusted_pem(fields),
        addressing_style=style,
        is_requested="endpoint_url" in config.requested,
        may_carry_tokens=tokens_may_go(endpoint, is_requested="endpoint_url" in config.requested),
        **({} if is_anonymous else keys),
    )


def _check_pair(keys: Mapping[str, Secret | None], label: str) -> None:
    given = [name for name in KEYS if keys[name] is not None]
    missing = [name for name in KEYS[:2] if keys[name] is None]
    if given and missing:
        raise InvalidRequest(
            f"{label} has {' and '.join(given)} but no {' and no '.join(missing)}; "
            "give both keys, or none to use the default credential chain"
        )
