"""
How an S3 store is reached: the fields of a storage config, checked, with secrets wrapped.

Two equal connections may share one client, so everything that makes a client differ is in here and
nothing else (no bucket, no name of the config). Knows nothing of boto3.

Source of the key names: ModelMesh storage secrets (`pullman/storageproviders/s3/provider.go`) and
KServe's (`kserve_storage.py`). An empty string is an absent key.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from adapter.errors import InvalidRequest
from adapter.units import parse_bool

CREDENTIAL_KEYS = ("access_key_id", "secret_access_key", "session_token")
MOUNTED_CA_BUNDLE = Path("/etc/ssl/custom-certs/cabundle.crt")
"""Where KServe mounts the bundle of `cabundle_configmap`. Source: kserve `constants.py`."""
_CERTIFICATE = re.compile(r"-----BEGIN (?:TRUSTED |X509 )?CERTIFICATE-----.+?-----END (?:TRUSTED |X509 )?CERTIFICATE-----", re.DOTALL)
_STYLES = ("path", "virtual", "auto")
_HOST = re.compile(r"[A-Za-z0-9._:-]+")
"""A host name, or an address (IPv6 without its brackets)."""
_DEFAULT_PORTS = {"http": 80, "https": 443}


class Secret:
    """A text that never shows itself."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The text, for the library that needs it."""
        return self._value

    def __repr__(self) -> str:
        return "<secret>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._value == other._value

    def __hash__(self) -> int:
        return hash(self._value)


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

    @property
    def host(self) -> str:
        """For people: the endpoint's host and port."""
        return urlsplit(self.endpoint_url).netloc if self.endpoint_url else "Amazon S3"


def connection_of(config: Mapping[str, object], label: str, mounted_bundle: Path = MOUNTED_CA_BUNDLE) -> S3Connection:
    """
    Read the connection fields of a storage config. Blocks: a CA bundle may be a file.

    Args:
        config: the merged storage config.
        label: what to call it in an error.
        mounted_bundle: where the bundle of `cabundle_configmap` is expected.

    Raises:
        InvalidRequest: a field has a wrong type or value, or one of the two keys is missing.
    """
    reader = _Fields(config, label)
    endpoint = reader.text("endpoint_url")
    if endpoint is not None:
        endpoint = checked_endpoint(endpoint, label)
    style = (reader.text("addressing_style") or ("path" if endpoint else "auto")).lower()
    if style not in _STYLES:
        raise InvalidRequest(f"{label}: addressing_style is {style!r}, expected path, virtual or auto")
    keys = {name: reader.secret(name) for name in CREDENTIAL_KEYS}
    is_anonymous = reader.flag("anonymous", default=False)
    if not is_anonymous:
        _check_pair(keys, label)
    return S3Connection(
        endpoint_url=endpoint,
        region=reader.text("region"),
        is_anonymous=is_anonymous,
        verify_tls=reader.flag("verify_ssl", default=True),
        ca_pem=_trusted(reader, label, mounted_bundle),
        addressing_style=style,
        **({} if is_anonymous else keys),
    )


def checked_endpoint(text: str, label: str) -> str:
    """
    The endpoint as a URL; https when no scheme is given, as the Go adapter's SDK did.

    Raises:
        InvalidRequest: not an http(s) URL. The text is not quoted: it may hold a password.
    """
    url = text if "://" in text else f"https://{text}"
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in _DEFAULT_PORTS and _HOST.fullmatch(parts.hostname or "") is not None and parts.port != 0
    except ValueError:
        is_good = False
    if not is_good:
        raise InvalidRequest(f"{label}: endpoint_url is not a URL; expected http://host:port or https://host")
    if parts.username is not None or parts.password is not None:
        raise InvalidRequest(f"{label}: endpoint_url holds a user name or password; put keys into access_key_id and secret_access_key")
    if parts.query or parts.fragment:
        raise InvalidRequest(f"{label}: endpoint_url has a query or a fragment; expected http://host:port or https://host")
    return url


def is_same_endpoint(one: object, other: object) -> bool:
    """Whether both name one server in one way, so that credentials of one may go to the other."""
    if not one or not other:
        return not one and not other
    try:
        return _endpoint_parts(str(one)) == _endpoint_parts(str(other))
    except ValueError:
        return False


def _endpoint_parts(text: str) -> tuple[str, str | None, int | None, str, str | None]:
    parts = urlsplit(text.strip() if "://" in text else f"https://{text.strip()}")
    return parts.scheme, parts.hostname, parts.port or _DEFAULT_PORTS.get(parts.scheme), parts.path.rstrip("/"), parts.username


class _Fields:
    """Reads single fields of a config, whose values should be strings."""

    def __init__(self, config: Mapping[str, object], label: str) -> None:
        self._config = config
        self._label = label

    def text(self, name: str) -> str | None:
        value = self._config.get(name)
        if isinstance(value, bool):
            value = str(value).lower()
        elif isinstance(value, int | float):
            value = str(value)
        if value is not None and not isinstance(value, str):
            raise InvalidRequest(f"{self._label}: {name} is a JSON {_json_type(value)}, expected a string")
        return (value or "").strip() or None

    def secret(self, name: str) -> Secret | None:
        value = self.text(name)
        return None if value is None else Secret(value)

    def flag(self, name: str, *, default: bool) -> bool:
        value = self.text(name)
        if value is None:
            return default
        try:
            return parse_bool(value)
        except ValueError as error:
            raise InvalidRequest(f'{self._label}: {name} is not a boolean; expected "true" or "false"') from error


def _json_type(value: object) -> str:
    return "object" if isinstance(value, dict) else "array"


def _check_pair(keys: Mapping[str, Secret | None], label: str) -> None:
    given = [name for name in CREDENTIAL_KEYS if keys[name] is not None]
    missing = [name for name in CREDENTIAL_KEYS[:2] if keys[name] is None]
    if given and missing:
        raise InvalidRequest(
            f"{label} has {' and '.join(given)} but no {' and no '.join(missing)}; "
            "give both keys, or none to use the default credential chain"
        )


def _trusted(reader: _Fields, label: str, mounted_bundle: Path) -> str | None:
    if certificate := reader.text("certificate"):
        return _checked_pem(certificate, f"{label}: certificate")
    if bundle := reader.text("ca_bundle"):
        if "-----BEGIN" in bundle:
            return _checked_pem(bundle, f"{label}: ca_bundle")
        return _checked_pem(_read_bundle(Path(bundle), f"{label}: ca_bundle"), f"{label}: ca_bundle")
    if name := reader.text("cabundle_configmap"):
        what = f"{label}: cabundle_configmap is {name!r}, so its bundle must be mounted at {mounted_bundle} in the adapter's container"
        return _checked_pem(_read_bundle(mounted_bundle, what), what)
    return None


def _read_bundle(path: Path, what: str) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a path"
        raise InvalidRequest(f"{what}: the file cannot be read ({reason})") from error


def _checked_pem(text: str, what: str) -> str:
    """The certificates alone: OpenSSL refuses bundles whose comments are not ASCII."""
    pem = "\n".join(_CERTIFICATE.findall(text))
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=pem)
    except (ssl.SSLError, ValueError) as error:
        raise InvalidRequest(f"{what}: no valid PEM certificate; expected the text of one or more certificates") from error
    return pem + "\n"
