"""A device's key for the engine's node authentication. It says who is calling and signs nothing
else.
"""

from __future__ import annotations

from hdpmf.common.net.extras import needs
from hdpmf.errors import ConfigError

with needs("cryptography"):
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

_CURVES = ("secp256r1", "secp384r1", "secp521r1")  # what the engine takes


class NodeKey:
    """An elliptic-curve key pair on P-256, as the engine's authentication wants it.

    P-256 and not the engine's own default of P-384, because every request is signed and P-384 costs
    ten times as much.
    """

    def __init__(self, private: ec.EllipticCurvePrivateKey) -> None:
        self.private = private

    @classmethod
    def generate(cls) -> NodeKey:
        """A new key."""
        return cls(ec.generate_private_key(ec.SECP256R1()))

    @classmethod
    def from_bytes(cls, data: bytes) -> NodeKey:
        """The key that ``to_bytes`` wrote."""
        try:
            private = serialization.load_pem_private_key(data, password=None)
        except (ValueError, TypeError):
            raise ConfigError("this is not a node key (PEM, without a passphrase)") from None
        if not isinstance(private, ec.EllipticCurvePrivateKey):
            raise ConfigError("a node key must be an elliptic-curve key")
        return cls(private)

    def to_bytes(self) -> bytes:
        """The secret key, PEM. Keep it in the device's store."""
        return self.private.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )

    @property
    def public(self) -> str:
        """The public key, PEM: what goes on a device's card."""
        return _pem(self.private.public_key())


def check_public_key(text: str) -> str:
    """The public key in the one form that keys are compared in; ConfigError if it is none."""
    try:
        key = serialization.load_pem_public_key(text.encode("ascii"))
    except (ValueError, UnsupportedAlgorithm):
        raise ConfigError("a device's node key must be a public key in PEM form") from None
    if not isinstance(key, ec.EllipticCurvePublicKey) or key.curve.name not in _CURVES:
        raise ConfigError(
            "a device's node key must be an elliptic-curve key of P-256, P-384 or P-521"
        )
    return _pem(key)


def _pem(key: ec.EllipticCurvePublicKey) -> str:
    return key.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    ).decode("ascii")
