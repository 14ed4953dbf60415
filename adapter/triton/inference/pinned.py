"""TLS with a neighbour in the pod that has the same certificate as we have: it alone is trusted, whatever name it is for."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

from adapter.errors import StartError
from adapter.triton.inference.channels import Tls

_STEPS = 10


def pinned(certificate: Path, key: Path) -> Tls:
    """
    Trust the certificate, and show it.

    Raises:
        StartError: the files cannot be read, do not belong together, or the certificate is for no name or out of its time.
    """
    try:
        chain, own_key = certificate.read_bytes(), key.read_bytes()
        names = _names(certificate, key)
    except (OSError, ssl.SSLError) as error:
        reason = getattr(error, "verify_message", None) or getattr(error, "reason", None) or error.strerror or str(error)
        raise StartError(f"MM_TLS_KEY_CERT_PATH and MM_TLS_PRIVATE_KEY_PATH cannot be used: {str(reason).lower()}") from error
    if not names:
        raise StartError("MM_TLS_KEY_CERT_PATH has a certificate that is for no name, so TLS cannot check it")
    return Tls(ca=chain, certificate=chain, key=own_key, server_name=names[0].replace("*", "modelmesh", 1))


def _names(certificate: Path, key: Path) -> list[str]:
    """What the certificate is for, as a client sees it: a handshake in memory, so the library reads it."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, key, password=_no_password)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    client.load_verify_locations(certificate)
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = client.wrap_bio(back, there), server.wrap_bio(there, back, server_side=True)
    for _ in range(_STEPS):
        done = [_is_done(end) for end in ends]
        if all(done):
            break
    found: Any = ends[0].getpeercert() or {}
    names = [name for kind, name in found.get("subjectAltName", ()) if kind in ("DNS", "IP Address")]
    return names or [value for parts in found.get("subject", ()) for name, value in parts if name == "commonName"]


def _is_done(end: ssl.SSLObject) -> bool:
    try:
        end.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True


def _no_password() -> str:
    raise ssl.SSLError("the private key is encrypted")
