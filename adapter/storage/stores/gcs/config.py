"""
How Google Cloud Storage is reached: the fields of a storage config, checked, with secrets wrapped.

Two equal connections may share one client. Knows nothing of Google's libraries.

Source of the key names: the Go adapter's `pullman/storageproviders/gcs/provider.go`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from adapter.storage.secret.endpoints import is_same_endpoint, plain_http_refusal, tokens_may_go
from adapter.storage.secret.fields import Secret, check_all_or_none
from adapter.storage.secret.merging import Binding, StorageConfig
from adapter.storage.secret.trust import trusted_pem

KEY = ("client_email", "private_key")
BINDING = Binding(
    places={"endpoint_url": is_same_endpoint, "token_uri": is_same_endpoint}, credentials=KEY, whole=(KEY,), beside=("token_uri",)
)


@dataclass(frozen=True, kw_only=True)
class GcsConnection:
    """Everything that a client is made from."""

    endpoint_url: str | None = None
    """None: Google's own."""
    client_email: Secret | None = None
    private_key: Secret | None = None
    token_uri: str | None = None
    is_anonymous: bool = False
    verify_tls: bool = True
    ca_pem: str | None = field(default=None, repr=False)
    is_requested: bool = False
    """Only the request names the place, so addresses are checked before they are dialled (`Means.guard`)."""
    is_token_uri_requested: bool = False
    """Likewise of `token_uri`."""
    may_carry_tokens: bool = True
    """Whether a bearer token of the default credentials may go there; see `secret/endpoints.py`."""

    @property
    def host(self) -> str:
        """For people."""
        return urlsplit(self.endpoint_url).netloc if self.endpoint_url else "storage.googleapis.com"


def connection_of(config: StorageConfig) -> GcsConnection:
    """The connection fields of a storage config. Blocks: a CA bundle may be a file. Raises InvalidRequest, with the field's name."""
    fields = config.fields
    is_anonymous = fields.flag("anonymous", default=False)
    email, key = fields.secret("client_email"), fields.secret("private_key")
    check_all_or_none(config.label, {"client_email": email, "private_key": key})
    connection = GcsConnection(
        endpoint_url=fields.endpoint("endpoint_url"),
        client_email=None if is_anonymous else email,
        private_key=None if is_anonymous else key,
        token_uri=fields.endpoint("token_uri"),
        is_anonymous=is_anonymous,
        verify_tls=fields.flag("verify_ssl", default=True),
        ca_pem=trusted_pem(fields),
        is_requested="endpoint_url" in config.requested,
        is_token_uri_requested="token_uri" in config.requested,
        may_carry_tokens=tokens_may_go(fields.endpoint("endpoint_url"), is_requested="endpoint_url" in config.requested),
    )
    if connection.private_key is not None:
        if not connection.may_carry_tokens:
            raise plain_http_refusal("the bearer token of the private_key", f"{config.label}: endpoint_url")
        if not tokens_may_go(connection.token_uri, is_requested=connection.is_token_uri_requested):
            raise plain_http_refusal("the bearer token of the private_key", f"{config.label}: token_uri")
    return connection
