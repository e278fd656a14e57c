"""A TLS handshake, without a network."""

from __future__ import annotations

import socket
import ssl
import threading

from hdpmf.common.net.certificates import Certificates


def shake_hands(made: Certificates, name: str, authority: bytes | None = None) -> None:
    """A TLS handshake with the server of these certificates, which the client reaches under
    ``name``.
    """
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(made.server, made.key)
    client = ssl.create_default_context(cadata=(authority or made.authority.read_bytes()).decode())
    ours, theirs = socket.socketpair()

    def serve() -> None:
        try:
            server.wrap_socket(ours, server_side=True).close()
        except (ssl.SSLError, OSError):
            ours.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        client.wrap_socket(theirs, server_hostname=name).close()
    finally:
        theirs.close()
        thread.join(10)
