"""The key that signs versions of the catalogue. Devices pin it with the first version that they
take.

::

    folder/catalogue.key    32 secret bytes

It is lost for good if the folder is: devices take no version that another key signed, unless their
owners forget the catalogue. It is in every backup of the folder.
"""

from __future__ import annotations

from pathlib import Path

from hdpmf.common.aggregation.masks.primitives import KEY_BYTES, identity_public, new_secret, sign
from hdpmf.common.base.files import atomic_write
from hdpmf.errors import StorageError

CATALOGUE, KEY = "catalogue.msgpack", "catalogue.key"


class CatalogueKey:
    """An Ed25519 key that signs versions of a catalogue and nothing else."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self.public = identity_public(secret)

    def __repr__(self) -> str:
        return f"CatalogueKey({self.public.hex()[:16]})"

    def sign(self, text: bytes) -> bytes:
        """Signature of ``text``."""
        return sign(self._secret, text)

    @classmethod
    def ensure(cls, folder: Path) -> CatalogueKey:
        """The key of a recommender, made where there is none yet."""
        path = folder / KEY
        if not path.exists():
            atomic_write(path, new_secret(), mode=0o600)
        return cls.load(folder)

    @classmethod
    def load(cls, folder: Path) -> CatalogueKey:
        """The key of a recommender."""
        path = folder / KEY
        try:
            secret = path.read_bytes()
        except OSError as error:
            raise StorageError(
                f"cannot read {path}: {error.strerror}. Devices take no version of the "
                "catalogue that another key "
                "signed; restore a backup"
            ) from error
        if len(secret) != KEY_BYTES:
            raise StorageError(f"{path} is damaged; restore a backup")
        return cls(secret)
