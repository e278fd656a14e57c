"""Certificates of our own: good for TLS, renewed in time, refused in clear words, keys for their
owner alone.
"""

from __future__ import annotations

import datetime
import ssl
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from hdpmf.common.net.certificates import (
    ensure_certificates,
)
from hdpmf.errors import ConfigError, StorageError
from tests.unit.net.handshake import shake_hands


def _ends(path: Path) -> datetime.datetime:
    return x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc


def test_clients_that_trust_the_authority_accept_the_server_under_its_names_only(tmp_path: Path):
    made = ensure_certificates(tmp_path, ["films.example.org", "localhost", "192.0.2.7", "::1"])
    for name in ("films.example.org", "localhost", "192.0.2.7", "::1"):
        shake_hands(made, name)
    for name in ("evil.example.org", "192.0.2.8"):
        with pytest.raises(ssl.SSLCertVerificationError):
            shake_hands(made, name)


def test_another_authority_is_not_trusted(tmp_path: Path):
    ours, others = (ensure_certificates(tmp_path / name, ["localhost"]) for name in ("a", "b"))
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(ours, "localhost", others.authority.read_bytes())


def test_keys_are_for_their_owner_alone(tmp_path: Path):
    made = ensure_certificates(tmp_path / "tls", ["localhost"])
    assert stat.S_IMODE(made.key.stat().st_mode) == 0o600
    assert b"PRIVATE" in made.key.read_bytes()
    assert len(list((tmp_path / "tls").iterdir())) == 3  # the authority's key is not kept
    assert stat.S_IMODE((tmp_path / "tls").stat().st_mode) == 0o700


def test_asked_again_nothing_changes(tmp_path: Path):
    made = ensure_certificates(tmp_path, ["localhost", "192.0.2.7"])
    before = [path.read_bytes() for path in (made.authority, made.server, made.key)]
    again = ensure_certificates(tmp_path, ["192.0.2.7", "localhost"])
    assert [path.read_bytes() for path in (again.authority, again.server, again.key)] == before


@pytest.mark.parametrize(
    "host", ["", "https://films", "films:443", "a b", "-x.org", "x..org", "x" * 64, "é.org"]
)
def test_what_is_no_host_name_is_refused(tmp_path: Path, host: str):
    with pytest.raises(ConfigError, match="neither a host name nor an address"):
        ensure_certificates(tmp_path, [host])


def test_no_host_name_is_refused(tmp_path: Path):
    with pytest.raises(ConfigError, match="at least one"):
        ensure_certificates(tmp_path, [])


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError):
        ensure_certificates(tmp_path / "file" / "tls", ["localhost"])


def test_an_authority_signs_certificates_and_a_server_signs_none(tmp_path: Path):
    """Whoever checks certificates must understand these limits or refuse: they are critical."""
    made = ensure_certificates(tmp_path, ["localhost"])
    found = {}
    for role, path in (("authority", made.authority), ("server", made.server)):
        extensions = x509.load_pem_x509_certificate(path.read_bytes()).extensions
        found[role] = extensions
        limits = extensions.get_extension_for_class(x509.BasicConstraints)
        assert limits.critical
        assert limits.value == x509.BasicConstraints(
            ca=role == "authority", path_length=0 if role == "authority" else None
        )
    usage = found["authority"].get_extension_for_class(x509.KeyUsage)
    assert usage.critical
    assert usage.value.key_cert_sign
    assert usage.value.crl_sign
    assert not any(
        getattr(usage.value, name)
        for name in (
            "digital_signature", "content_commitment", "key_agreement", "key_encipherment",
            "data_encipherment",
        )
    )  # fmt: skip
    purposes = found["server"].get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(purposes) == [ExtendedKeyUsageOID.SERVER_AUTH]


def test_certificates_can_be_read_by_everybody(tmp_path: Path):
    made = ensure_certificates(tmp_path, ["localhost"])
    for path in (made.authority, made.server):
        assert stat.S_IMODE(path.stat().st_mode) == 0o644
