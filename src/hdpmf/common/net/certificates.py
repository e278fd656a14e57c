"""Certificates for trials: an authority that signs one certificate and is never used again.

``authority.pem`` is public: participants of the trial trust it. Its secret key is not kept. A
service for others has a public certificate, at the proxy in front of it.
"""

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hdpmf.common.base.files import atomic_write, storage_errors
from hdpmf.errors import ConfigError, needs

with needs("cryptography"):
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric.ec import (
        SECP256R1,
        EllipticCurvePrivateKey,
        generate_private_key,
    )
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
    )
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAYS = 3650
_HOUR = datetime.timedelta(hours=1)


@dataclass(frozen=True)
class Certificates:
    """Paths of certificates, and of the secret key."""

    authority: Path
    server: Path
    key: Path


def ensure_certificates(folder: Path, hosts: Sequence[str]) -> Certificates:
    """Return the certificates in ``folder``; they are made, for these hosts, if there are none.

    Raises:
        ConfigError: Invalid host names.
    """
    paths = Certificates(*(folder / name for name in ("authority.pem", "server.pem", "server.key")))
    names = _alternative_names(hosts)
    if paths.authority.exists():
        return paths
    with storage_errors(f"could not make {folder}"):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    issuer, key = generate_private_key(SECP256R1()), generate_private_key(SECP256R1())
    subject = _name("hdpmf trial authority")
    usage = x509.KeyUsage(
        key_cert_sign=True,
        crl_sign=True,
        digital_signature=False,
        content_commitment=False,
        key_agreement=False,
        key_encipherment=False,
        data_encipherment=False,
        encipher_only=False,
        decipher_only=False,
    )
    authority = (
        _builder(subject, subject, issuer)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
    )
    certificate = (
        _builder(_name("hdpmf trial"), subject, key)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.public_key()), critical=False
        )
    )
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    atomic_write(paths.key, secret, mode=0o600)
    atomic_write(paths.server, _signed(certificate, issuer), mode=0o644)
    atomic_write(paths.authority, _signed(authority, issuer), mode=0o644)
    return paths


def _alternative_names(hosts: Sequence[str]) -> list[x509.GeneralName]:
    if not hosts:
        raise ConfigError(
            "a server certificate needs at least one host name or address that devices use"
        )
    names: list[x509.GeneralName] = []
    for host in hosts:
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host)))
            continue
        except ValueError:
            pass
        labels = host.split(".")
        if len(host) > 253 or not all(
            0 < len(label) <= 63 and _is_label(label) for label in labels
        ):
            raise ConfigError(
                f"{host!r} is neither a host name nor an address; give it without https:// and port"
            )
        names.append(x509.DNSName(host))
    return names


def _is_label(label: str) -> bool:
    return label.isascii() and label.replace("-", "a").isalnum() and not label.startswith("-")


def _builder(
    subject: x509.Name, issuer: x509.Name, key: EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_now() - _HOUR)  # a device's clock may be a little behind
        .not_valid_after(_now() + datetime.timedelta(days=DAYS))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _signed(builder: x509.CertificateBuilder, key: EllipticCurvePrivateKey) -> bytes:
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
