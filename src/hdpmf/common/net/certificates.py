"""TLS with an authority of the recommender's own, the only one that devices trust.

``authority.pem`` is public and goes to every device when it joins. ``server.pem`` is issued by it
for the host names that devices use, and renewed when it nears its end (`ServerTls`). Keys are
readable by their owner alone.

Another authority takes its owner's word on every device (``hdpmf device join --new-authority``).
"""

from __future__ import annotations

import datetime
import ipaddress
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hdpmf.common.base.files import atomic_write, folder_lock, read_file, storage_errors
from hdpmf.common.base.logs import event
from hdpmf.common.net.https import server_context
from hdpmf.common.protocol.servers import check_authority
from hdpmf.errors import ConfigError, HdpmfError, needs

with needs("cryptography"):
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature
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
        load_pem_private_key,
    )
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_DAYS = 3650
SERVER_DAYS = 397
RENEW_DAYS = 30
_HOUR = datetime.timedelta(hours=1)


@dataclass(frozen=True)
class Certificates:
    """Paths of a recommender's certificates and secret keys."""

    authority: Path
    server: Path
    key: Path
    authority_key: Path


def ensure_certificates(folder: Path, hosts: Sequence[str]) -> Certificates:
    """Return the certificates in ``folder``, made or renewed where needed.

    The authority is made once. The server's certificate is issued again when it is absent, ends
    within ``RENEW_DAYS`` days, is for other host names or from another authority.

    Raises:
        ConfigError: Invalid host names, or an authority that has ended or cannot be read.
    """
    names = _alternative_names(hosts)
    paths = Certificates(
        *(folder / name for name in ("authority.pem", "server.pem", "server.key", "authority.key"))
    )
    with storage_errors(f"could not make {folder}"):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not paths.authority.exists():
        _make_authority(paths)
    authority = check_authority(read_file(paths.authority), str(paths.authority))
    if not _still_good(paths, authority, names):
        with folder_lock(folder):  # of several workers one renews it
            if not _still_good(paths, authority, names):
                _make_server(paths, authority, names)
    return paths


def certificate_end(path: Path) -> float | None:
    """Return the end of the certificate in a file (Unix time), or None if unreadable."""
    try:
        return x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc.timestamp()
    except (OSError, ValueError):
        return None


def _make_authority(paths: Certificates) -> None:
    """Write a new authority."""
    key = generate_private_key(SECP256R1())
    name = _name("hdpmf recommender authority")
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
    made = _signed(
        _builder(name, name, key, AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True),
        key,
    )
    # The key first: without it a certificate that is there already could never issue anything.
    atomic_write(paths.authority_key, _secret_pem(key), mode=0o600)
    atomic_write(paths.authority, made, mode=0o644)


def _issuer_key(paths: Certificates, authority: x509.Certificate) -> EllipticCurvePrivateKey:
    """The authority's secret key; ConfigError if it is not that of its certificate."""
    try:
        issuer = load_pem_private_key(read_file(paths.authority_key), password=None)
    except ValueError:
        raise ConfigError(
            f"{paths.authority_key} is not a secret key (PEM, without a passphrase)"
        ) from None
    if (
        not isinstance(issuer, EllipticCurvePrivateKey)
        or issuer.public_key() != authority.public_key()
    ):
        raise ConfigError(f"{paths.authority_key} does not belong to {paths.authority}")
    return issuer


def _make_server(
    paths: Certificates, authority: x509.Certificate, names: list[x509.GeneralName]
) -> None:
    issuer = _issuer_key(paths, authority)
    key = generate_private_key(SECP256R1())
    certificate = (
        _builder(_name("hdpmf recommender"), authority.subject, key, SERVER_DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.public_key()), critical=False
        )
    )
    atomic_write(paths.key, _secret_pem(key), mode=0o600)
    atomic_write(paths.server, _signed(certificate, issuer), mode=0o644)


def _still_good(
    paths: Certificates, authority: x509.Certificate, names: list[x509.GeneralName]
) -> bool:
    if not (paths.server.exists() and paths.key.exists()):
        return False
    try:
        certificate = x509.load_pem_x509_certificate(read_file(paths.server))
        key = load_pem_private_key(read_file(paths.key), password=None)
        held = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        return False
    ends = certificate.not_valid_after_utc - datetime.timedelta(days=RENEW_DAYS)
    return (
        ends > _now() and set(held) == set(names) and key.public_key() == certificate.public_key()
    )


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
    subject: x509.Name, issuer: x509.Name, key: EllipticCurvePrivateKey, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_now() - _HOUR)  # a device's clock may be a little behind
        .not_valid_after(_now() + datetime.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _secret_pem(key: EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _signed(builder: x509.CertificateBuilder, key: EllipticCurvePrivateKey) -> bytes:
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


CHECK_SECONDS = 3600.0
"""Between looks at the certificate."""


class ServerTls:
    """The TLS context of a server.

    Args:
        ensure: Renews the certificate if it nears its end, and returns where it is.

    Attributes:
        context: New connections get the certificate that was loaded last; others go on with theirs.
    """

    def __init__(self, ensure: Callable[[], Certificates]) -> None:
        self._ensure = ensure
        paths = ensure()
        self._loaded = read_file(paths.server)
        self.context = server_context(str(paths.server), str(paths.key))

    def refresh(self) -> None:
        """Renew the certificate if it is time, and load it if it is another one.

        Call it on the thread that makes connections. What goes wrong is logged, and the certificate
        from before stays.
        """
        try:
            paths = self._ensure()
            found = read_file(paths.server)
            if found == self._loaded:
                return
            # A key that does not fit is noticed here: it would leave the context without one.
            server_context(str(paths.server), str(paths.key))
            self.context.load_cert_chain(str(paths.server), str(paths.key))
        except (HdpmfError, OSError) as error:  # ssl.SSLError is one
            event("certificate-stays", logging.WARNING, error)
            return
        self._loaded = found
        event("certificate-renewed")
