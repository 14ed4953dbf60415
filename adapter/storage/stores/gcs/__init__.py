"""
Google Cloud Storage (`type: gcs`): the fields of a storage config, checked, with secrets wrapped. Imports no library of Google's.

Source of the key names: the Go adapter's `pullman/storageproviders/gcs/provider.go`.
"""

from __future__ import annotations

from dataclasses import dataclass

from adapter.errors import InvalidRequest
from adapter.storage.secret.fields import Secret, check_all_or_none, is_same_endpoint
from adapter.storage.secret.merging import Binding, StorageConfig
from adapter.storage.stores.clients import Client, Connection, Means, fields_of

KEY = ("client_email", "private_key")
BINDING = Binding(
    places={"endpoint_url": is_same_endpoint, "token_uri": is_same_endpoint}, credentials=KEY, whole=(KEY,), beside=("token_uri",)
)


@dataclass(frozen=True, kw_only=True)
class GcsConnection(Connection):
    """Everything that a client is made from."""

    client_email: Secret | None = None
    private_key: Secret | None = None
    giver: Connection
    """Whom `token_uri` names: it gives out tokens for the key."""

    def client(self, means: Means) -> Client:
        """As `Connection`."""
        try:
            from adapter.storage.stores.gcs.client import GcsClient  # noqa: PLC0415 - google-auth takes 0.1 s to import
        except ImportError as error:
            raise InvalidRequest("storage type 'gcs' needs pip install modelmesh-triton-adapter[gcs]") from error

        return GcsClient(self, means)


def connection_of(config: StorageConfig) -> GcsConnection:
    """The connection fields of a storage config. Blocks: a CA bundle may be a file. Raises InvalidRequest, with the field's name."""
    fields, reached = config.fields, fields_of(config, secrets=KEY)
    check_all_or_none(config.label, {name: reached[name] for name in KEY})
    giver = Connection(url=fields.endpoint("token_uri"), is_requested="token_uri" in config.requested)
    connection = GcsConnection(url=fields.endpoint("endpoint_url"), giver=giver, **reached)
    if connection.private_key is not None:
        connection.check_token("the bearer token of the private_key", f"{config.label}: endpoint_url")
        giver.check_token("the bearer token of the private_key", f"{config.label}: token_uri")
    return connection
