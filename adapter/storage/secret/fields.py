"""
How single fields of a storage config are read, what wraps a secret, and how small files are read that a config names, or is.

Endpoints are checked here, and compared so that a doubt is a no; so are certificates, which come from the config, from a file, or from
the bundle that KServe mounts.

An empty string is an absent field. A value never reaches an error text; names of fields do. Nothing but regular files is
opened, and a bounded part is read: a path may lead to a device that has no end, or to one that does something when it is opened.
"""

from __future__ import annotations

import json
import os
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from adapter.errors import InvalidRequest
from adapter.telemetry.redaction import remember
from adapter.units import parse_bool
from adapter.volume.trees import opened, read_whole

_BUCKET = re.compile(r"\$?[A-Za-z0-9._-]{1,255}|arn:[A-Za-z0-9:/._-]+")
"""Azure has `$root` and `$web`, Amazon has ARNs."""
_HOST = re.compile(r"[A-Za-z0-9._:-]+")
"""A host name, or an address (IPv6 without its brackets)."""
_ODD = re.compile(r"[\x00-\x1f\x7f\\]")
"""Characters that libraries read differently: one takes for a part of the host what another one drops."""
_DEFAULT_PORTS = {"http": 80, "https": 443}
MOUNTED_CA_BUNDLE = Path("/etc/ssl/custom-certs/cabundle.crt")
"""Where KServe mounts the bundle of `cabundle_configmap`. Source: kserve `constants.py`."""
CERTIFICATE = "certificate"
_PEM = re.compile(r"-----BEGIN (?:TRUSTED |X509 )?CERTIFICATE-----[^-]+-----END (?:TRUSTED |X509 )?CERTIFICATE-----")
"""One certificate. Its text has no hyphen, so that no bundle takes more than one look at each byte."""

MAX_BYTES = 1024 * 1024
"""Of one file. A secret or config map of Kubernetes is no larger. Source: kubernetes `MaxSecretSize`."""


@dataclass(frozen=True, slots=True, repr=False)
class Secret:
    """A text that never shows itself, and that no log or error text of a library shows either: it is remembered for redaction."""

    _value: str

    def __post_init__(self) -> None:
        """Remember it."""
        remember(self._value)

    def reveal(self) -> str:
        """The text, for the library that needs it."""
        return self._value


def text_of(value: object) -> str | None:
    """A value of a config as a text; None when it is absent, empty, or an object or array."""
    if isinstance(value, int | float):
        return json.dumps(value)
    return (value.strip() or None) if isinstance(value, str) else None


@dataclass(frozen=True)
class Fields:
    """Reads single fields of a config, whose values should be strings."""

    values: Mapping[str, object] = field(repr=False)
    label: str
    """For people: which config it is."""

    def text(self, name: str) -> str | None:
        """A text, or None when it is absent or empty. Raises InvalidRequest when it is not a text."""
        value = self.values.get(name)
        if isinstance(value, dict | list):
            kind = "object" if isinstance(value, dict) else "array"
            raise InvalidRequest(f"{self.label}: {name} is a JSON {kind}, expected a string")
        return text_of(value)

    def secret(self, name: str) -> Secret | None:
        """A text that never shows itself."""
        value = self.text(name)
        return None if value is None else Secret(value)

    def endpoint(self, name: str) -> str | None:
        """A URL without path or query, as `checked_endpoint`."""
        value = self.text(name)
        return None if value is None else checked_endpoint(value, self.label, name)

    def flag(self, name: str, *, default: bool) -> bool:
        """A boolean, written as any setting's."""
        value = self.text(name)
        try:
            return default if value is None else parse_bool(value)
        except ValueError as error:
            raise InvalidRequest(f'{self.label}: {name} is not a boolean; expected "true" or "false"') from error


def checked_bucket(name: str, label: str) -> str:
    """
    The name of a bucket or container; some libraries put it into a path as it is, where `..` or a `?` would lead elsewhere.

    Raises:
        InvalidRequest: no store has buckets of such names.
    """
    if name in (".", "..") or not _BUCKET.fullmatch(name):
        expected = "expected letters, digits, dots, hyphens and underscores"
        raise InvalidRequest(f"{label}, or storage_params, names a bucket by what is not a valid bucket name; {expected}")
    return name


def read_small(path: Path) -> bytes:
    """
    The content of a small regular file; links are followed, since Kubernetes mounts links. Blocks.

    Raises:
        OSError: also when it is larger than `MAX_BYTES`.
    """
    return read_whole(opened(path), MAX_BYTES)


def checked_endpoint(text: str, label: str, name: str = "endpoint_url", *, query: bool = False) -> str:
    """
    The endpoint as a URL; https when no scheme is given, as the Go adapter's SDK did.

    Raises:
        InvalidRequest: not an http(s) URL. The text is not quoted: it may hold a password.
    """
    url = _with_scheme(text)
    try:
        parts = urlsplit(url)
        has_server = _HOST.fullmatch(parts.hostname or "") is not None and parts.netloc.isascii() and parts.port != 0
    except ValueError:
        has_server = False
    if not has_server or parts.scheme not in _DEFAULT_PORTS or _ODD.search(url):
        raise InvalidRequest(f"{label}: {name} is not a URL; expected http://host:port or https://host")
    if parts.username is not None or parts.password is not None:
        raise InvalidRequest(f"{label}: {name} holds a user name or password; credentials go into keys of their own")
    if parts.fragment or (parts.query and not query):
        raise InvalidRequest(f"{label}: {name} has a query or a fragment; expected http://host:port or https://host")
    return url


def origin(url: SplitResult) -> str:
    """Scheme and server of a URL."""
    return f"{url.scheme}://{url.netloc}"


def is_same_endpoint(one: object, other: object, end: int | None = None) -> bool:
    """
    Whether both name one server in one way, so that credentials of one may go to the other.

    `end`: of the parts that are compared; the path is the last one.
    """
    if not one or not other:
        return not one and not other
    try:
        return _parts(one)[:end] == _parts(other)[:end]
    except ValueError:
        return False


is_same_origin = partial(is_same_endpoint, end=-1)
"""Whether scheme, host and port are the same: paths and queries of one web server are the request's to choose."""


def _parts(text: object) -> tuple[object, ...]:
    url = urlsplit(_with_scheme(str(text).strip()))
    return url.scheme, url.hostname, url.port or _DEFAULT_PORTS.get(url.scheme), url.username, url.path.rstrip("/")


def _with_scheme(text: str) -> str:
    return text if "://" in text else f"https://{text}"


def trusted_pem(fields: Fields) -> str | None:
    """Certificates that are trusted instead of the usual ones, as PEM text; None: the usual ones. Blocks. Raises InvalidRequest."""
    label = fields.label
    if certificate := fields.text(CERTIFICATE):
        return _checked_pem(certificate, f"{label}: certificate")
    if bundle := fields.text("ca_bundle"):
        return _checked_pem(bundle if "-----BEGIN" in bundle else Path(bundle), f"{label}: ca_bundle")
    if name := fields.text("cabundle_configmap"):
        what = f"{label}: cabundle_configmap is {name!r}, so its bundle must be mounted at {MOUNTED_CA_BUNDLE} in the adapter's container"
        return _checked_pem(MOUNTED_CA_BUNDLE, what)
    return None


def _checked_pem(bundle: str | Path, what: str) -> str:
    """The certificates alone, of a text or a file: OpenSSL refuses bundles whose comments are not ASCII."""
    try:
        text = bundle if isinstance(bundle, str) else read_small(bundle).decode(errors="replace")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a path"
        raise InvalidRequest(f"{what}: the file cannot be read ({reason})") from error
    if len(text) > MAX_BYTES:
        raise InvalidRequest(f"{what}: more than {MAX_BYTES} characters")
    pem = "\n".join(_PEM.findall(text))
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=pem)
    except (ssl.SSLError, ValueError) as error:
        raise InvalidRequest(f"{what}: no valid PEM certificate; expected the text of one or more certificates") from error
    return pem + "\n"


def check_client_pem(pem: str, label: str) -> None:
    """Raise InvalidRequest: not a certificate with its key. Blocks."""
    expected = "a PEM certificate and its PEM key without a password"
    try:
        with os.fdopen(os.memfd_create("pem", os.MFD_CLOEXEC), "wb", buffering=0) as file:
            file.write(pem.encode())
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(f"/proc/self/fd/{file.fileno()}", password="")
    except (ssl.SSLError, OSError, ValueError) as error:
        raise InvalidRequest(f"{label}: client_certificate and client_key are not {expected}") from error
