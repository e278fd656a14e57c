"""A released data set: what ``hdp-bit`` leaves with the recommender, as one file.

Who rated what, with which privacy weight, and one randomised bit per rating. Anything may be trained on it: that is
post-processing, and costs no privacy beyond what was paid when the bits were sent. The claim travels with the file.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from hdpmf.errors import HdpmfError, ModelFileError
from hdpmf.files import atomic_write
from hdpmf.privacy.claims import PrivacyClaim
from hdpmf.protocol import BitContribution, Survey
from hdpmf.ratings import IdIndex
from hdpmf.recommender.lists.presence import Presence

FORMAT = 1


@dataclass(frozen=True, eq=False, repr=False)
class Release:
    """Released ratings.

    Attributes:
        survey: What was asked: coding, epsilon, scale.
        bits: The answers of all devices.
        items: Item ids, in the order of the positions in the bits.
        claim: What the epsilon is worth.
        origin: Where it comes from, in words.
    """

    survey: Survey
    bits: BitContribution
    items: IdIndex
    claim: PrivacyClaim
    origin: str = ""

    def __repr__(self) -> str:
        return f"Release({len(self.bits.items)} bits about {len(self.items)} items, {self.claim})"

    @property
    def presence(self) -> Presence:
        """Who rated what."""
        senders = self.bits.senders
        n_users = int(senders.max()) + 1 if len(senders) else 0
        return Presence(senders, self.bits.items, n_users, len(self.items))

    def save(self, path: str | PathLike[str]) -> None:
        """Write it, whole or not at all."""
        from safetensors.numpy import save

        arrays = {name: getattr(self.bits, name) for name in ("senders", "items", "units", "plus")}
        small = {"units": np.uint8, "plus": np.uint8}
        arrays = {name: array.astype(small.get(name, np.int32)) for name, array in arrays.items()}
        about = {
            "format": FORMAT,
            "survey": msgspec.to_builtins(self.survey),
            "items": self.items.ids.tolist(),
            "claim": asdict(self.claim),
            "origin": self.origin,
        }
        text = json.dumps(about, sort_keys=True)
        atomic_write(Path(path), save(arrays, {"release": text, "sha256": _checksum(text, arrays)}))

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Release:
        """Read what ``save`` wrote."""
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(Path(path), "numpy") as stored:
                header: dict[str, str] = stored.metadata() or {}
                arrays = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118  # no mapping
            if _checksum(header["release"], arrays) != header["sha256"]:
                raise ModelFileError(f"{path} is damaged (its checksum differs); release it again")
            about: dict[str, Any] = json.loads(header["release"])
            if about["format"] != FORMAT:
                raise ModelFileError(f"{path} has format {about['format']}; this version reads {FORMAT}")
            ids = about["items"]
            return cls(
                msgspec.convert(about["survey"], Survey),
                BitContribution(**{name: array.astype(np.int64) for name, array in arrays.items()}),
                IdIndex(np.array(ids, np.int64 if ids and isinstance(ids[0], int) else np.str_)),
                PrivacyClaim(**about["claim"]),
                about["origin"],
            )
        except ModelFileError:
            raise
        except (OSError, SafetensorError, KeyError, ValueError, TypeError, msgspec.MsgspecError, HdpmfError) as error:
            raise ModelFileError(f"{path} is not a released data set that this version can read ({error})") from error


def _checksum(text: str, arrays: dict[str, np.ndarray]) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        digest.update(name.encode() + arrays[name].tobytes())
    return digest.hexdigest()
