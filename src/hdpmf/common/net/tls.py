"""TLS contexts, for every client and every server of this project."""

from __future__ import annotations

import ssl

from hdpmf.errors import ConfigError


def client_context(authority: str | bytes = "") -> ssl.SSLContext:
    """Return a context that trusts one authority and no other.

    Args:
        authority: Certificates (PEM); the public authorities if empty.

    Raises:
        ConfigError: It is not a certificate.
    """
    text = authority if isinstance(authority, str) else authority.decode("ascii", "replace")
    try:
        return ssl.create_default_context(cadata=text or None)  # TLS 1.2 or newer, with host names
    except (ssl.SSLError, ValueError):
        raise ConfigError(
            "the authority that certificates must come from is no certificate (PEM)"
        ) from None


def server_context(certificate: str, key: str) -> ssl.SSLContext:
    """Return a context without session tickets: nothing to resume, and nothing to recognise callers
    by.

    Args:
        certificate: File.
        key: File.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.num_tickets = 0
    context.load_cert_chain(certificate, key)
    return context
