"""What TLS trusts and shows: contexts of one storage alone, made from texts. Nothing is written to a disk."""

from __future__ import annotations

import os
import ssl

from urllib3.util.ssl_ import create_urllib3_context

from adapter.errors import InvalidRequest


def context_of(*, ca_pem: str | None, verify: bool, client_pem: str | None, label: str) -> ssl.SSLContext:
    """
    A context that trusts what is given instead of the usual authorities, and shows a client certificate.

    Without `verify` any certificate will do; `client_pem` is certificate and key together.

    Raises:
        InvalidRequest: the client's certificate or key cannot be used, or they do not belong together.
    """
    context = create_urllib3_context()
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif ca_pem:
        context.load_verify_locations(cadata=ca_pem)
    else:
        context.load_default_certs()
    if client_pem:
        file = memory_file(client_pem)
        try:
            context.load_cert_chain(f"/proc/self/fd/{file}", password=_no_password)
        except (ssl.SSLError, OSError, ValueError) as error:
            raise InvalidRequest(
                f"{label}: client_certificate and client_key are not a PEM certificate and its PEM key without a password"
            ) from error
        finally:
            os.close(file)
    return context


def memory_file(pem: str) -> int:
    """A file that needs no disk: the pod's root is read-only. The caller closes it."""
    file = os.memfd_create("pem", os.MFD_CLOEXEC)
    os.write(file, pem.encode())
    return file


def _no_password() -> str:
    raise ValueError("a key with a password")
