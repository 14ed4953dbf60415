"""A private authority, a server's certificate on loopback, and a client's."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


@dataclass(frozen=True)
class Certificates:
    """PEM texts."""

    ca_pem: str
    client_certificate: str
    client_key: str


def make_certificates(folder: Path) -> Certificates:
    """The server's lie in the folder as `server.pem` and `server.key`, the authority's as `ca.pem`."""
    authority_key, authority = _certificate("private authority of the tests")
    key, certificate = _certificate("localhost", (authority_key, authority))
    client_key, client = _certificate("client", (authority_key, authority))
    ca_pem = _pem(authority)
    (folder / "server.key").write_text(_key_pem(key))
    (folder / "server.pem").write_text(_pem(certificate))
    (folder / "ca.pem").write_text(ca_pem)
    return Certificates(ca_pem, _pem(client), _key_pem(client_key))


def server_tls(folder: Path) -> tuple[ssl.SSLContext, Certificates]:
    """A server's side of TLS on loopback, and who vouches for it."""
    certificates = make_certificates(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem", folder / "server.key")
    return context, certificates


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return key.private_bytes(encoding, form, serialization.NoEncryption()).decode()


Signer = tuple[ec.EllipticCurvePrivateKey, x509.Certificate]


def _certificate(name: str, issuer: Signer | None = None) -> Signer:
    """A key and its certificate: an authority's, or a server's on loopback when there is an issuer."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    signing_key, issuer_name = (issuer[0], issuer[1].subject) if issuer else (key, subject)
    now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
    builder = x509.CertificateBuilder(issuer_name, subject, key.public_key(), x509.random_serial_number(), now - day, now + 30 * day)
    usage = dict.fromkeys(
        ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "encipher_only", "decipher_only"), False
    )
    ca = issuer is None
    extensions: list[tuple[x509.ExtensionType, bool]] = [
        (x509.BasicConstraints(ca=ca, path_length=None), True),
        (x509.KeyUsage(digital_signature=not ca, key_cert_sign=ca, crl_sign=ca, **usage), True),
        (x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False),
        (x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key()), False),
    ]
    if not ca:
        addresses = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        extensions += [
            (x509.SubjectAlternativeName(addresses), False),
            (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), False),
        ]
    for extension, is_critical in extensions:
        builder = builder.add_extension(extension, critical=is_critical)
    return key, builder.sign(signing_key, hashes.SHA256())
