"""
What the storage configs of all types have in common: how a field is read, secrets, endpoints, trust.

An empty string is an absent field. A value never reaches an error text; names of fields do.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from adapter.errors import InvalidRequest
from adapter.units import parse_bool

MOUNTED_CA_BUNDLE = Path("/etc/ssl/custom-certs/cabundle.crt")
"""Where KServe mounts the bundle of `cabundle_configmap`. Source: kserve `constants.py`."""
_CERTIFICATE = re.compile(r"-----BEGIN (?:TRUSTED |X509 )?CERTIFICATE-----.+?-----END (?:TRUSTED |X509 )?CERTIFICATE-----", re.DOTALL)
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


def checked_endpoint(text: str, label: str, name: str = "endpoint_url", *, query: bool = False) -> str:
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
        raise InvalidRequest(f"{label}: {name} is not a URL; expected http://host:port or https://host")
    if parts.username is not None or parts.password is not None:
        raise InvalidRequest(f"{label}: {name} holds a user name or password; credentials go into keys of their own")
    if parts.fragment or (parts.query and not query):
        raise InvalidRequest(f"{label}: {name} has a query or a fragment; expected http://host:port or https://host")
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


class Fields:
    """Reads single fields of a config, whose values should be strings."""

    def __init__(self, config: Mapping[str, object], label: str) -> None:
        self._config = config
        self._label = label

    def text(self, name: str) -> str | None:
        """A text, or None when it is absent or empty."""
        value = self._config.get(name)
        if isinstance(value, bool):
            value = str(value).lower()
        elif isinstance(value, int | float):
            value = str(value)
        if value is not None and not isinstance(value, str):
            raise InvalidRequest(f"{self._label}: {name} is a JSON {_json_type(value)}, expected a string")
        return (value or "").strip() or None

    def secret(self, name: str) -> Secret | None:
        """A text that never shows itself."""
        value = self.text(name)
        return None if value is None else Secret(value)

    def flag(self, name: str, *, default: bool) -> bool:
        """A boolean, written as any setting's."""
        value = self.text(name)
        if value is None:
            return default
        try:
            return parse_bool(value)
        except ValueError as error:
            raise InvalidRequest(f'{self._label}: {name} is not a boolean; expected "true" or "false"') from error


def _json_type(value: object) -> str:
    return "object" if isinstance(value, dict) else "array"


def trusted_pem(reader: Fields, label: str, mounted_bundle: Path = MOUNTED_CA_BUNDLE) -> str | None:
    """
    The certificates that are trusted instead of the usual ones, as PEM text; None: the usual ones. Blocks.

    Raises:
        InvalidRequest: not PEM, or a file that cannot be read.
    """
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
