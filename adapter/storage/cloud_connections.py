"""
How Google Cloud Storage and Azure are reached: the fields of their storage configs, checked, secrets wrapped.

Two equal connections may share one client. Knows nothing of the vendors' libraries.

Source of the key names: the Go adapter's `pullman/storageproviders/{gcs,azure}/provider.go`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from adapter.errors import InvalidRequest
from adapter.storage.credentials import StorageConfig
from adapter.storage.fields import Fields, Secret, checked_endpoint, trusted_pem


@dataclass(frozen=True, kw_only=True)
class GcsConnection:
    """Everything that a client of Google Cloud Storage is made from."""

    endpoint_url: str | None = None
    """None: Google's own."""
    client_email: Secret | None = None
    private_key: Secret | None = None
    token_uri: str | None = None
    is_anonymous: bool = False
    verify_tls: bool = True
    ca_pem: str | None = field(default=None, repr=False)

    @property
    def host(self) -> str:
        """For people."""
        return urlsplit(self.endpoint_url).netloc if self.endpoint_url else "storage.googleapis.com"


@dataclass(frozen=True, kw_only=True)
class AzureConnection:
    """Everything that a client of Azure Blob Storage is made from."""

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


def gcs_connection_of(config: StorageConfig) -> GcsConnection:
    """
    Read the connection fields of a storage config of type `gcs`. Blocks: a CA bundle may be a file.

    Raises:
        InvalidRequest: a field has a wrong type or value, or one of the two credentials is missing.
    """
    reader = Fields(config.values, config.label)
    endpoint, token_uri = reader.text("endpoint_url"), reader.text("token_uri")
    is_anonymous = reader.flag("anonymous", default=False)
    email, key = reader.secret("client_email"), reader.secret("private_key")
    _check_all_or_none(config.label, {"client_email": email, "private_key": key})
    return GcsConnection(
        endpoint_url=checked_endpoint(endpoint, config.label) if endpoint else None,
        client_email=None if is_anonymous else email,
        private_key=None if is_anonymous else key,
        token_uri=checked_endpoint(token_uri, config.label, "token_uri") if token_uri else None,
        is_anonymous=is_anonymous,
        verify_tls=reader.flag("verify_ssl", default=True),
        ca_pem=trusted_pem(reader, config.label),
    )


def azure_connection_of(config: StorageConfig) -> AzureConnection:
    """
    Read the connection fields of a storage config of type `azure`. Blocks: a CA bundle may be a file.

    The first that is there counts: connection_string, account_key, sas_token, client_id with its
    secret and tenant_id. None: workload identity where the pod has one, else anonymous.

    Raises:
        InvalidRequest: a field has a wrong type or value, no account, or a part of a credential is missing.
    """
    reader = Fields(config.values, config.label)
    is_anonymous = reader.flag("anonymous", default=False)
    names = ("connection_string", "account_key", "sas_token", "tenant_id", "client_id", "client_secret")
    given = {name: None if is_anonymous else reader.secret(name) for name in names}
    _check_all_or_none(config.label, {name: given[name] for name in names[3:]})
    account, endpoint = reader.text("account_name"), reader.text("endpoint_url")
    if account and not account.replace("-", "").isalnum():
        raise InvalidRequest(f"{config.label}: account_name is not the name of a storage account")
    url = checked_endpoint(endpoint, config.label) if endpoint else None
    if url is None and account:
        url = f"https://{account}.blob.core.windows.net"
    if url is None and given["connection_string"] is None:
        raise InvalidRequest(f"no account: neither {config.label} nor storage_params has an account_name")
    return AzureConnection(
        account_url=url,
        is_anonymous=is_anonymous,
        verify_tls=reader.flag("verify_ssl", default=True),
        ca_pem=trusted_pem(reader, config.label),
        **given,
    )


def container_of(config: StorageConfig) -> str:
    """
    Azure's word for a bucket.

    Raises:
        InvalidRequest: there is none.
    """
    name = Fields(config.values, config.label).text("container") or config.bucket
    if not name:
        raise InvalidRequest(f"no container: neither {config.label} nor storage_params names one")
    return name


def _check_all_or_none(label: str, values: dict[str, Secret | None]) -> None:
    missing = [name for name, value in values.items() if value is None]
    if missing and len(missing) < len(values):
        given = [name for name in values if name not in missing]
        raise InvalidRequest(f"{label} has {' and '.join(given)} but no {' and no '.join(missing)}; give all of them, or none")
