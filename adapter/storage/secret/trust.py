"""
Which certificates a storage config trusts: from the config, from a file, or from the bundle that KServe mounts.

Whom stored credentials are shown to is the operator's decision, and so are the pod's files: a request
sets none of this, but for the text of a certificate beside its own credentials.
"""

from __future__ import annotations

import os
import re
import ssl
from pathlib import Path

from adapter.errors import InvalidRequest
from adapter.storage.secret.fields import MAX_BYTES, Fields, read_small

MOUNTED_CA_BUNDLE = Path("/etc/ssl/custom-certs/cabundle.crt")
"""Where KServe mounts the bundle of `cabundle_configmap`. Source: kserve `constants.py`."""
ALSO_FOR = "credential_endpoints"
CERTIFICATE = "certificate"
"""Which a request may set beside its own credentials."""
_BUNDLES = ("ca_bundle", "cabundle_configmap")
TRUST = (CERTIFICATE, "verify_ssl", *_BUNDLES)
STORED_ONLY = ("verify_ssl", *_BUNDLES, ALSO_FOR)
"""Which no request may set."""
_PEM = re.compile(r"-----BEGIN (?:TRUSTED |X509 )?CERTIFICATE-----[^-]+-----END (?:TRUSTED |X509 )?CERTIFICATE-----")
"""One certificate. Its text has no hyphen, so that no bundle takes more than one look at each byte."""


def trusted_pem(fields: Fields) -> str | None:
    """Certificates that are trusted instead of the usual ones, as PEM text; None: the usual ones. Blocks. Raises InvalidRequest."""
    label = fields.label
    if certificate := fields.text(CERTIFICATE):
        return _checked_pem(certificate, f"{label}: certificate")
    if bundle := fields.text("ca_bundle"):
        what = f"{label}: ca_bundle"
        return _checked_pem(bundle if "-----BEGIN" in bundle else _read_bundle(Path(bundle), what), what)
    if name := fields.text("cabundle_configmap"):
        what = f"{label}: cabundle_configmap is {name!r}, so its bundle must be mounted at {MOUNTED_CA_BUNDLE} in the adapter's container"
        return _checked_pem(_read_bundle(MOUNTED_CA_BUNDLE, what), what)
    return None


def _read_bundle(path: Path, what: str) -> str:
    try:
        return read_small(path).decode(errors="replace")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a path"
        raise InvalidRequest(f"{what}: the file cannot be read ({reason})") from error


def _checked_pem(text: str, what: str) -> str:
    """The certificates alone: OpenSSL refuses bundles whose comments are not ASCII."""
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
    file = os.memfd_create("pem", os.MFD_CLOEXEC)
    try:
        os.write(file, pem.encode())
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(f"/proc/self/fd/{file}", password=_no_password)
    except (ssl.SSLError, OSError, ValueError) as error:
        raise InvalidRequest(
            f"{label}: client_certificate and client_key are not a PEM certificate and its PEM key without a password"
        ) from error
    finally:
        os.close(file)


def _no_password() -> str:
    raise ValueError("a key with a password")
