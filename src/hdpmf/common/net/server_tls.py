"""TLS of a server whose certificate is renewed while it runs."""

from __future__ import annotations

import logging
from collections.abc import Callable

from hdpmf.common.base.files import storage_errors
from hdpmf.common.base.logs import event
from hdpmf.common.net.certificates import Certificates
from hdpmf.common.net.https import server_context
from hdpmf.errors import HdpmfError

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
        self._loaded = _content(paths)
        self.context = server_context(str(paths.server), str(paths.key))

    def refresh(self) -> None:
        """Renew the certificate if it is time, and load it if it is another one.

        Call it on the thread that makes connections. What goes wrong is logged, and the certificate
        from before stays.
        """
        try:
            paths = self._ensure()
            found = _content(paths)
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


def _content(paths: Certificates) -> bytes:
    with storage_errors(f"could not read {paths.server}"):
        return paths.server.read_bytes()
