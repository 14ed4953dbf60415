"""
Azure Blob Storage (`type: azure`): the fields of a storage config, checked, with secrets wrapped.

Source of the key names: the Go adapter's `pullman/storageproviders/azure/provider.go`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from adapter.errors import InvalidRequest
from adapter.storage.secret.fields import Secret, check_all_or_none, checked_bucket, is_same_endpoint
from adapter.storage.secret.merging import Binding, StorageConfig, is_same_name
from adapter.storage.stores.clients import Client, Connection, Means, fields_of

PRINCIPAL = ("tenant_id", "client_id", "client_secret")
CREDENTIALS = ("connection_string", "account_key", "sas_token", *PRINCIPAL)
BINDING = Binding(
    places={"endpoint_url": is_same_endpoint, "account_name": is_same_name, "connection_string": is_same_name},
    credentials=CREDENTIALS,
    whole=(("connection_string",), ("account_key",), ("sas_token",), PRINCIPAL),
)
_KINDS = {"account_key": "the account key", "sas_token": "the SAS token", "client_secret": "the service principal"}
"""Field → what it is, for people. The first counts."""


@dataclass(frozen=True, kw_only=True)
class AzureConnection(Connection):
    """Everything that a client is made from, with one kind of credentials at most. `url` is the account's, without a slash at its end."""

    account: str = ""
    """Whose key it is; empty: nothing tells it."""
    credentials: str = ""
    """For people: `the account key`; empty: the config has none."""
    account_key: Secret | None = None
    sas_token: Secret | None = None
    tenant_id: Secret | None = None
    client_id: Secret | None = None
    client_secret: Secret | None = None

    def client(self, means: Means) -> Client:
        """As `Connection`."""
        from adapter.storage.stores.azure.client import AzureClient  # noqa: PLC0415 - it imports this module

        return AzureClient(self, means)


def connection_of(config: StorageConfig) -> AzureConnection:
    """
    The connection fields of a storage config. Blocks: a CA bundle may be a file.

    The first that is there counts: connection_string, account_key, sas_token, client_id with its secret and tenant_id.
    Without any: workload identity where the pod has one, else anonymous.

    Raises:
        InvalidRequest: a field has a wrong type or value, no account, or a part of a credential is missing.
    """
    fields = config.fields
    keys = {name: fields.secret(name) for name in CREDENTIALS}
    account, url = fields.text("account_name"), fields.endpoint("endpoint_url")
    if fields.flag("anonymous", default=False):
        keys = dict.fromkeys(CREDENTIALS)
    check_all_or_none(config.label, {name: keys[name] for name in PRINCIPAL})
    if account and not (account.isascii() and account.replace("-", "").isalnum()):
        raise InvalidRequest(f"{config.label}: account_name is not the name of a storage account")
    if text := keys.pop("connection_string"):
        return _of_string(text.reveal(), config)
    place = "endpoint_url" if url else "account_name"
    if url is None and not account:
        raise InvalidRequest(f"no account: neither {config.label} nor storage_params has an account_name")
    url = (url or f"https://{account}.blob.core.windows.net").rstrip("/")
    first = next((name for name in _KINDS if keys[name]), "")
    kept = PRINCIPAL if first == "client_secret" else (first,)
    given: dict[str, Any] = {name: key for name, key in keys.items() if name in kept}
    named = _account_in(url) or account or ""
    made = AzureConnection(url=url, account=named, credentials=_KINDS.get(first, ""), **given, **fields_of(config, place))
    if made.sas_token or made.client_secret:
        token = "the sas_token" if made.sas_token else "the bearer token of the client_secret"
        made.check_token(token, f"{config.label}: {place}")
    return made


def container_of(config: StorageConfig) -> str:
    """Azure's word for a bucket. Raises InvalidRequest: the config names no container, or one that cannot be."""
    name = config.fields.text("container") or config.bucket
    if not name:
        raise InvalidRequest(f"no container: neither {config.label} nor storage_params names one")
    return checked_bucket(name, config.label)


def _of_string(text: str, config: StorageConfig) -> AzureConnection:
    """
    What a connection string says. The secrets inside of it are secrets of their own: a library may quote one alone.

    Source: `parse_connection_str` of azure-storage-blob.
    """
    parts = {name.upper(): value for name, _, value in (part.partition("=") for part in text.split(";"))}
    name, key, signature = (parts.get(each, "") for each in ("ACCOUNTNAME", "ACCOUNTKEY", "SHAREDACCESSSIGNATURE"))
    for secret in (key, signature):
        Secret(secret)
    is_keyed = bool(name and key)
    if parts.get("USEDEVELOPMENTSTORAGE") == "true":
        url = "http://127.0.0.1:10000/devstoreaccount1"
    elif not (url := parts.get("BLOBENDPOINT", "")):
        if not name:
            raise InvalidRequest("connection_string, account_key or sas_token is not what Azure gives out as such")
        url = f"{parts.get('DEFAULTENDPOINTSPROTOCOL', 'https')}://{name}.blob.{parts.get('ENDPOINTSUFFIX', 'core.windows.net')}"
    urls = [each if "://" in each else f"https://{each}" for each in (url, parts.get("BLOBSECONDARYENDPOINT") or url)]
    bare, _, query = urls[0].partition("?")
    signature = "" if is_keyed else signature.lstrip("?") or query
    made = AzureConnection(
        url=bare.rstrip("/"),
        account=name or _account_in(bare),
        credentials="the connection string",
        account_key=Secret(key) if is_keyed else None,
        sas_token=Secret(signature) if signature else None,
        **fields_of(config, "connection_string"),
    )
    if signature or any("?" in each for each in urls):
        made.check_token("the shared access signature in it", f"{config.label}: connection_string", urls=urls)
    return made


def _account_in(url: str) -> str:
    """The account's name, as Azure's own host names have it, and loopback's paths."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if ".blob." in host:
        return host.partition(".")[0]
    if host in ("127.0.0.1", "localhost", "::1"):
        return parts.path.strip("/").partition("/")[0]
    return ""
