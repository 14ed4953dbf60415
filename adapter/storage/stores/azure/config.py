"""
How Azure Blob Storage is reached: the fields of a storage config, checked, with secrets wrapped.

Two equal connections may share one client. Knows nothing of Azure's libraries.

Source of the key names: the Go adapter's `pullman/storageproviders/azure/provider.go`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from adapter.errors import InvalidRequest
from adapter.storage.secret.binding import Binding, is_same_name
from adapter.storage.secret.endpoints import is_same_endpoint
from adapter.storage.secret.fields import Secret, check_all_or_none
from adapter.storage.secret.merging import StorageConfig
from adapter.storage.secret.trust import trusted_pem

PRINCIPAL = ("tenant_id", "client_id", "client_secret")
CREDENTIALS = ("connection_string", "account_key", "sas_token", *PRINCIPAL)
BINDING = Binding(CREDENTIALS, {"endpoint_url": is_same_endpoint, "account_name": is_same_name, "tenant_id": is_same_name})
_SECRET_PARTS = ("AccountKey", "SharedAccessSignature")
"""Of a connection string."""


@dataclass(frozen=True, kw_only=True)
class AzureConnection:
    """Everything that a client is made from."""

    account_url: str | None = None
    """None: the connection string has it."""
    connection_string: Secret | None = None
    account_key: Secret | None = None
    sas_token: Secret | None = None
    tenant_id: Secret | None = None
    client_id: Secret | None = None
    client_secret: Secret | None = None
    is_anonymous: bool = False
    verify_tls: bool = True
    ca_pem: str | None = field(default=None, repr=False)


def connection_of(config: StorageConfig) -> AzureConnection:
    """
    Read the connection fields of a storage config. Blocks: a CA bundle may be a file.

    The first that is there counts: connection_string, account_key, sas_token, client_id with its
    secret and tenant_id. Without any: workload identity where the pod has one, else anonymous.

    Raises:
        InvalidRequest: a field has a wrong type or value, no account, or a part of a credential is missing.
    """
    fields = config.fields
    is_anonymous = fields.flag("anonymous", default=False)
    given = {name: None if is_anonymous else fields.secret(name) for name in CREDENTIALS}
    check_all_or_none(config.label, {name: given[name] for name in PRINCIPAL})
    _remember_parts(given["connection_string"])
    account, url = fields.text("account_name"), fields.endpoint("endpoint_url")
    if account and not account.replace("-", "").isalnum():
        raise InvalidRequest(f"{config.label}: account_name is not the name of a storage account")
    if url is None and account:
        url = f"https://{account}.blob.core.windows.net"
    if url is None and given["connection_string"] is None:
        raise InvalidRequest(f"no account: neither {config.label} nor storage_params has an account_name")
    return AzureConnection(
        account_url=url,
        is_anonymous=is_anonymous,
        verify_tls=fields.flag("verify_ssl", default=True),
        ca_pem=trusted_pem(fields),
        **given,
    )


def container_of(config: StorageConfig) -> str:
    """Azure's word for a bucket. Raises InvalidRequest: the config names no container."""
    name = config.fields.text("container") or config.bucket
    if not name:
        raise InvalidRequest(f"no container: neither {config.label} nor storage_params names one")
    return name


def _remember_parts(connection_string: Secret | None) -> None:
    """The secrets inside of it are secrets of their own: a library may quote one alone."""
    for part in connection_string.reveal().split(";") if connection_string else ():
        name, _, value = part.partition("=")
        if name.strip() in _SECRET_PARTS:
            Secret(value)
