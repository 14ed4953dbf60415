"""
S3 and what speaks its language (`type: s3`): the fields of a storage config, checked, with secrets wrapped. Does not import botocore.

Source of the key names: ModelMesh storage secrets (`pullman/storageproviders/s3/provider.go`) and
KServe's (`kserve_storage.py`). An empty string is an absent key.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from adapter.errors import InvalidRequest
from adapter.storage.secret.fields import Secret, is_same_endpoint
from adapter.storage.secret.merging import Binding, StorageConfig
from adapter.storage.stores.clients import Client, Connection, Means, fields_of

KEYS = ("access_key_id", "secret_access_key", "session_token")
BINDING = Binding(
    places={"endpoint_url": is_same_endpoint},
    credentials=KEYS,
    whole=(("access_key_id", "secret_access_key"),),
    fixed=("addressing_style",),
)
_AMAZONS_BUCKET = re.compile(r"arn:.*|.*--[a-z]+-s3", re.DOTALL)
"""
Buckets that botocore reaches at a host of their own, whatever the endpoint and the addressing style: ARNs,
directory buckets, aliases on Outposts. Source: botocore's `data/s3/2006-03-01/endpoint-rule-set-1.json`.
"""


@dataclass(frozen=True, kw_only=True)
class S3Connection(Connection):
    """Everything that a client is made from. Without `url`: Amazon's own endpoints."""

    region: str | None = None
    """None: what the process environment says, else us-east-1."""
    access_key_id: Secret | None = None
    secret_access_key: Secret | None = None
    session_token: Secret | None = None
    addressing_style: str = "auto"

    def client(self, means: Means) -> Client:
        """As `Connection`."""
        from adapter.storage.stores.s3.client import S3Client  # noqa: PLC0415 - botocore takes 0.1 s to import

        return S3Client(self, means)


def connection_of(config: StorageConfig) -> S3Connection:
    """The connection fields of a storage config. Blocks: a CA bundle may be a file. Raises InvalidRequest, with the field's name."""
    fields = config.fields
    endpoint = fields.endpoint("endpoint_url")
    is_amazon = not endpoint or (urlsplit(endpoint).hostname or "").endswith((".amazonaws.com", ".amazonaws.com.cn"))
    if not is_amazon and _AMAZONS_BUCKET.fullmatch(config.bucket or ""):
        raise InvalidRequest(f"{config.label}: the bucket's name is of a form that Amazon alone has, and would lead away from endpoint_url")
    style = (fields.text("addressing_style") or ("path" if endpoint else "auto")).lower()
    if style not in ("path", "virtual", "auto"):
        raise InvalidRequest(f"{config.label}: addressing_style is unknown; expected path, virtual or auto")
    reached = fields_of(config, secrets=KEYS)
    given = {name: reached[name] for name in KEYS}
    missing = [name for name in KEYS[:2] if not given[name]]
    if missing and any(given.values()):
        has = " and ".join(name for name in KEYS if given[name])
        needs = "give both keys, or none to use the default credential chain"
        raise InvalidRequest(f"{config.label} has {has} but no {' and no '.join(missing)}; {needs}")
    return S3Connection(url=endpoint, region=fields.text("region"), addressing_style=style, **reached)
