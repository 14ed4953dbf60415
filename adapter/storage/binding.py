"""
Which stored credentials belong to which place: a request that leads elsewhere does not take them along.

One row per type of store: the fields that are credentials, and the fields that say where requests
go. `credential_endpoints` of the *stored* config names further places that may see them (`*`: any).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from adapter.storage.fields import is_same_endpoint

ALSO_FOR = "credential_endpoints"
Same = Callable[[object, object], bool]
"""Whether the requested place is the stored one."""


@dataclass(frozen=True)
class Binding:
    """What is bound to what."""

    credentials: tuple[str, ...]
    places: Mapping[str, Same]

    def leads_elsewhere(self, stored: Mapping[str, object], params: Mapping[str, str]) -> bool:
        """Whether the parameters send requests where the stored credentials do not belong."""
        also = str(stored.get(ALSO_FOR) or "").replace(",", " ").split()
        for name, is_same in self.places.items():
            wanted = params.get(name)
            if wanted is None or is_same(wanted, stored.get(name)):
                continue
            if "*" not in also and not any(is_same(wanted, place) for place in also):
                return True
        return False


def _is_same_origin(wanted: object, stored: object) -> bool:
    """Scheme, host and port: paths and queries of one web server are the request's to choose."""
    return is_same_endpoint(_origin(wanted), _origin(stored)) if wanted and stored else False


def _origin(url: object) -> str:
    try:
        parts = urlsplit(str(url).strip() if "://" in str(url) else f"https://{str(url).strip()}")
    except ValueError:
        return ""
    return f"{parts.scheme}://{parts.netloc}"


def _is_same_name(wanted: object, stored: object) -> bool:
    """A stored config without such a name leaves it to the request."""
    return not stored or wanted == stored


BINDINGS: Mapping[str, Binding] = {
    "s3": Binding(("access_key_id", "secret_access_key", "session_token"), {"endpoint_url": is_same_endpoint}),
    "http": Binding(("headers", "client_certificate", "client_key"), {"url": _is_same_origin}),
    "gcs": Binding(("private_key", "client_email"), {"endpoint_url": is_same_endpoint, "token_uri": is_same_endpoint}),
    "azure": Binding(
        ("connection_string", "account_key", "sas_token", "client_id", "client_secret", "tenant_id"),
        {"endpoint_url": is_same_endpoint, "account_name": _is_same_name, "tenant_id": _is_same_name},
    ),
}
NOTHING = Binding((), {})
ALL_CREDENTIALS = frozenset(name for binding in BINDINGS.values() for name in binding.credentials)
