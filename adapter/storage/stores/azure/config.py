"""
How Azure Blob Storage is reached: the fields of a storage config, checked, with secrets wrapped.

Two equal connections may share one client. Knows nothing of Azure's libraries.

Source of the key names: the Go adapter's `pullman/storageproviders/azure/provider.go`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from adapter.errors import InvalidRequest
from adapter.storage.secret.endpoints import is_same_endpoint, plain_http_refusal, tokens_may_go
from adapter.storage.secret.fields import Secret, check_all_or_none, checked_bucket
from adapter.storage.secret.merging import Binding, StorageConfig, is_same_name, is_same_text
from adapter.storage.secret.trust import trusted_pem

PRINCIPAL = ("tenant_id", "client_id", "client_secret")
CREDENTIALS = ("connection_string", "account_key", "sas_token", *PRINCIPAL)
BINDING = Binding(
    places={"endpoint_url": is_same_endpoint, "account_name": is_same_name, "connection_string": is_same_text},
    credentials=CREDENTIALS,
    whole=(("connection_string",), ("account_key",), ("sas_token",), PRINCIPAL),
)
_SECRET_PARTS = ("ACCOUNTKEY", "SHAREDACCESSSIGNATURE")
_ENDPOINT_PARTS = ("BLOBENDPOINT", "BLOBSECONDARYENDPOINT")
"""Of a connection string, in upper case."""


@dataclass(frozen=True, kw_only=True)
class AzureConnection:
    """Everything that a client is made from."""

    account_url: str | None = None
    """None: the connection string has it."""
    account_name: str | None = None
    """Whose key it is, where the URL does not tell it."""
    connection_string: Secret | None = None
    account_key: Secret | None = None
    sas_token: Secret | None = None
    tenant_id: Secret | None = None
    client_id: Secret | None = None
    client_secret: Secret | None = None
    is_anonymous: bool = False
    verify_tls: bool = True
    ca_pem: str | None = field(default=None, repr=False)
    is_requested: bool = False
    """Only the request names the place, so addresses are checked before they are dialled (`Means.guard`)."""
    may_carry_tokens: bool = True
    """Whether a bearer token of the pod's workload identity may go there; see `secret/endpoints.py`."""


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
    parts = parts_of(given["connection_string"])
    account, url = fields.text("account_name"), fields.endpoint("endpoint_url")
    if account and not (account.isascii() and account.replace("-", "").isalnum()):
        raise InvalidRequest(f"{config.label}: account_name is not the name of a storage account")
    if url is None and account:
        url = f"https://{account}.blob.core.windows.net"
    if url is None and given["connection_string"] is None:
        raise InvalidRequest(f"no account: neither {config.label} nor storage_params has an account_name")
    place = "connection_string" if parts else "endpoint_url" if fields.text("endpoint_url") else "account_name"
    is_requested = place in config.requested
    connection = AzureConnection(
        account_url=url,
        account_name=account,
        is_anonymous=is_anonymous,
        verify_tls=fields.flag("verify_ssl", default=True),
        ca_pem=trusted_pem(fields),
        is_requested=is_requested,
        may_carry_tokens=all(tokens_may_go(each, is_requested=is_requested) for each in (_urls_of(parts) if parts else [url])),
        **given,
    )
    if (token := _token_of(connection, parts)) and not connection.may_carry_tokens:
        raise plain_http_refusal(token, f"{config.label}: {place}")
    return connection


def container_of(config: StorageConfig) -> str:
    """Azure's word for a bucket. Raises InvalidRequest: the config names no container, or one that cannot be."""
    name = config.fields.text("container") or config.bucket
    if not name:
        raise InvalidRequest(f"no container: neither {config.label} nor storage_params names one")
    return checked_bucket(name, config.label)


def parts_of(connection_string: Secret | None) -> dict[str, str]:
    """
    What a connection string says, by upper-case name, as the library reads it.

    The secrets inside of it are secrets of their own: a library may quote one alone.
    """
    pairs = [part.partition("=") for part in connection_string.reveal().split(";")] if connection_string else []
    parts = {name.upper(): value for name, _, value in pairs}
    for name in _SECRET_PARTS:
        Secret(parts.get(name, ""))
    return parts


def _urls_of(parts: Mapping[str, str]) -> list[str]:
    """
    Where a connection string leads: its blob endpoints, or Azure's own by the protocol that it names.

    Source: `parse_connection_str` of azure-storage-blob.
    """
    if parts.get("USEDEVELOPMENTSTORAGE") == "true":
        return ["http://127.0.0.1:10000"]
    named = [url if "://" in url else f"https://{url}" for name in _ENDPOINT_PARTS if (url := parts.get(name))]
    return named or [f"{parts.get('DEFAULTENDPOINTSPROTOCOL', 'https')}://{parts.get('ENDPOINTSUFFIX', 'core.windows.net')}"]


def _token_of(connection: AzureConnection, parts: Mapping[str, str]) -> str | None:
    """What of the config is a token: each reader could use it. A key of an account signs, and never travels."""
    if parts:
        is_signed = {"ACCOUNTNAME", "ACCOUNTKEY"} <= set(parts)
        has_token = "SHAREDACCESSSIGNATURE" in parts and not is_signed
        return "the shared access signature in it" if has_token or any("?" in url for url in _urls_of(parts)) else None
    if connection.account_key is not None:
        return None
    if connection.sas_token is not None:
        return "the sas_token"
    return "the bearer token of the client_secret" if connection.client_secret is not None else None
