"""Encryption to one server, or to the collector: HPKE (RFC 9180) in base mode.

One triple of algorithms, which every implementation of DAP has: X25519, HKDF-SHA256 and
AES-128-GCM. The work is done by the package ``pyhpke``. Base mode does not say who the sender is.
"""

import secrets
from typing import Self

from hdpmf.common.aggregation.two_servers.dap.messages import (
    VERSION,
    HpkeCiphertext,
    HpkeConfig,
    ReportError,
    ReportRefusedError,
    Role,
)
from hdpmf.errors import DapError, MissingExtraError

try:
    from pyhpke import AEADId, CipherSuite, KDFId, KEMId
    from pyhpke.exceptions import PyHPKEError
except ImportError as error:  # pragma: no cover - tested in a process of its own
    raise MissingExtraError(
        "sums by two servers need the package pyhpke: pip install 'hdpmf[federation]' (or pip "
        "install pyhpke)"
    ) from error

KEY_SIZE = 32
_KEM = KEMId.DHKEM_X25519_HKDF_SHA256
_KDF = KDFId.HKDF_SHA256
_AEAD = AEADId.AES128_GCM
_SUITE = CipherSuite.new(_KEM, _KDF, _AEAD)


class KeyPair:
    """A secret key of 32 bytes with its public one; ``config_id`` is 0 to 255."""

    __slots__ = ("_config", "_secret", "_secret_bytes")

    def __init__(self, config_id: int, secret_key: bytes) -> None:
        if not (0 <= config_id <= 255 and len(secret_key) == KEY_SIZE):
            raise DapError(f"a key pair is an id of 0 to 255 and {KEY_SIZE} bytes of secret key")
        self._secret_bytes = secret_key
        self._secret = _SUITE.kem.deserialize_private_key(secret_key)
        public_key: bytes = self._secret.raw.public_key().public_bytes_raw()
        self._config = HpkeConfig(config_id, _KEM.value, _KDF.value, _AEAD.value, public_key)

    @classmethod
    def generate(cls, config_id: int = 0) -> Self:
        """Generate a new pair."""
        return cls(config_id, secrets.token_bytes(KEY_SIZE))

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read the result of ``to_bytes``."""
        if len(data) != 1 + KEY_SIZE:
            raise DapError(
                f"a key pair has {1 + KEY_SIZE} bytes, not {len(data)}; is this another file?"
            )
        return cls(data[0], data[1:])

    def to_bytes(self) -> bytes:
        """Return the id and the secret key."""
        return bytes([self._config.id]) + self._secret_bytes

    @property
    def config(self) -> HpkeConfig:
        """The public part."""
        return self._config

    def knows(self, config_id: int) -> bool:
        """Return True if this is the key's id."""
        return config_id == self._config.id

    def open(self, ciphertext: HpkeCiphertext, info: bytes, aad: bytes) -> bytes:
        """Decrypt, or raise ReportRefusedError: for another key, or anything else."""
        if not self.knows(ciphertext.config_id):
            raise ReportRefusedError(
                "encrypted for a key that is not in use; ask for the keys again",
                ReportError.HPKE_UNKNOWN_CONFIG_ID,
            )
        try:
            context = _SUITE.create_recipient_context(ciphertext.enc, self._secret, info=info)
            return context.open(ciphertext.payload, aad=aad)
        except (PyHPKEError, ValueError):  # ValueError: the other key is none, or has a small order
            message = (
                "could not be decrypted: another key, another task, another sender or receiver, or "
                "changed bytes"
            )
            raise ReportRefusedError(message, ReportError.HPKE_DECRYPT_ERROR) from None

    def __repr__(self) -> str:
        return f"KeyPair(config_id={self._config.id})"

    def __reduce__(self) -> str:
        # A copy in a pickle would be one that nobody wanted.
        raise TypeError("a secret key is not pickled: to_bytes writes it")


def is_supported(config: HpkeConfig) -> bool:
    """Return True if we can encrypt to this key."""
    algorithms = config.kem_id, config.kdf_id, config.aead_id
    return (
        algorithms == (_KEM.value, _KDF.value, _AEAD.value) and len(config.public_key) == KEY_SIZE
    )


def seal(config: HpkeConfig, info: bytes, aad: bytes, plaintext: bytes) -> HpkeCiphertext:
    """Encrypt to the owner of a key, with ``input_share_info`` or ``aggregate_share_info``."""
    if not is_supported(config):
        raise DapError(
            "HpkeConfig: not a key for X25519, HKDF-SHA256 and AES-128-GCM; we speak nothing else"
        )
    try:
        enc, context = _SUITE.create_sender_context(
            _SUITE.kem.deserialize_public_key(config.public_key), info=info
        )
    except ValueError:
        raise DapError("HpkeConfig: invalid public key") from None
    return HpkeCiphertext(config.id, enc, context.seal(plaintext, aad=aad))


def input_share_info(server_role: Role) -> bytes:
    """Return HPKE's info for an input share."""
    return VERSION + b" input share" + bytes([Role.CLIENT, server_role])


def aggregate_share_info(server_role: Role) -> bytes:
    """Return HPKE's info for an aggregate share."""
    return VERSION + b" aggregate share" + bytes([server_role, Role.COLLECTOR])
