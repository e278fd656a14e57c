"""A released data set: what ``hdp-bit`` leaves with the recommender, as one file.

Who rated what, with which privacy weight, and one randomised bit per rating. Anything may be
trained on it: that is post-processing, and costs no privacy beyond what was paid when the bits were
sent. The claim travels with the file, and so does where it comes from.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from functools import cached_property
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from hdpmf.common.base.files import atomic_write
from hdpmf.common.data import IdIndex, ItemTable, RatingScale
from hdpmf.common.data.item_features import ItemFeatures, fingerprint
from hdpmf.common.methods.method import PrivacyClaim
from hdpmf.common.protocol import BitContribution, CatalogueTable, Survey
from hdpmf.common.protocol.catalogue import catalogue_table, known_items
from hdpmf.errors import HdpmfError, ModelFileError, made_by_newer
from hdpmf.untrusted.recommender.lists.training import Presence

FORMAT = 3
_BITS = {"senders": np.int32, "items": np.int32} | dict.fromkeys(
    ("units", "plus", "ruler"), np.uint8
)


@dataclass(frozen=True, eq=False, repr=False)
class Release:
    """Released ratings.

    Attributes:
        survey: What was asked: coding, epsilon, scale.
        bits: The answers of all devices.
        items: Item ids, in the order of the positions in the bits.
        claim: What the epsilon is worth, and whether its noise was simulated.
        origin: Where it comes from, in words.
        terms: Under which terms the ratings were given, in words; they hold for this, too.
        max_ratings: How many bits of a person there are at most; None: as many as there are
            ratings.
        item_table: Titles, genres and years, where there are any.
        features: Public features of the items, where there are any.
    """

    survey: Survey
    bits: BitContribution
    items: IdIndex
    claim: PrivacyClaim
    origin: str = ""
    terms: str = ""
    max_ratings: int | None = None
    item_table: ItemTable | None = None
    features: ItemFeatures | None = None
    made_by: str = field(default_factory=lambda: f"hdpmf {version('hdpmf')}")

    def __repr__(self) -> str:
        return f"Release({len(self.bits.items)} bits about {len(self.items)} items, {self.claim})"

    @property
    def scale(self) -> RatingScale:
        """The public rating scale."""
        return self.survey.scale

    @cached_property
    def presence(self) -> Presence:
        """The pairs of user and item, with users renumbered from 0 to save memory."""
        people, users = np.unique(self.bits.senders, return_inverse=True)
        return Presence(users, self.bits.items, len(people), len(self.items))

    @property
    def digest(self) -> str:
        """SHA-256 of everything in it."""
        return _checksum(self._text(), self._arrays())

    def save(self, path: str | PathLike[str], *, mode: int = 0o644) -> None:
        """Write it, whole or not at all."""
        from safetensors.numpy import save

        text, arrays = self._text(), self._arrays()
        atomic_write(
            Path(path),
            save(arrays, {"release": text, "sha256": _checksum(text, arrays)}),
            mode=mode,
        )

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Release:
        """Read what ``save`` wrote.

        Raises:
            ModelFileError: It is damaged, of another version, or something else.
        """
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(Path(path), "numpy") as stored:
                header: dict[str, str] = stored.metadata() or {}
                arrays = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118  # no mapping
            if _checksum(header["release"], arrays) != header["sha256"]:
                raise ModelFileError(f"{path} is damaged (its checksum differs); release it again")
            about: dict[str, Any] = json.loads(header["release"])
            if about["format"] > FORMAT:
                raise ModelFileError(made_by_newer(path))
            if about["format"] < FORMAT:
                raise ModelFileError(
                    f"{path} is in a format that no release of hdpmf had; release it again"
                )
            return _read(about, arrays)
        except ModelFileError:
            raise
        except (
            OSError,
            SafetensorError,
            HdpmfError,
            msgspec.MsgspecError,
            RecursionError,
            *_WRONG,
        ) as error:
            what = f"{type(error).__name__}: {error}"
            raise ModelFileError(
                f"{path} is not a released data set that this version can read ({what})"
            ) from error

    def _arrays(self) -> dict[str, np.ndarray]:
        arrays = {name: getattr(self.bits, name).astype(kind) for name, kind in _BITS.items()}
        if self.features is not None:
            arrays |= {"features": self.features.matrix, "ridges": self.features.ridges}
        return arrays

    def _text(self) -> str:
        features = self.features
        about = {
            "format": FORMAT,
            "survey": msgspec.to_builtins(self.survey),
            "catalogue": msgspec.to_builtins(
                catalogue_table(self.items, self.scale, self.item_table)
            ),
            "features": None
            if features is None
            else {"names": features.names, "source": features.source},
            "claim": asdict(self.claim),
            **{name: getattr(self, name) for name in _WORDS},
        }
        return json.dumps(about, sort_keys=True)


_WORDS = ("origin", "terms", "max_ratings", "made_by")
_WRONG = (KeyError, ValueError, TypeError, AttributeError)


def _read(about: dict[str, Any], arrays: dict[str, np.ndarray]) -> Release:
    survey = msgspec.convert(about["survey"], Survey)
    known = known_items(msgspec.convert(about["catalogue"], CatalogueTable))
    fields: dict[str, Any] = {name: arrays[name].astype(np.int64) for name in _BITS}
    bits = BitContribution(**fields)
    named = about["features"]
    features = None
    if named is not None:
        matrix, ridges = arrays["features"], arrays["ridges"]
        features = ItemFeatures(tuple(named["names"]), matrix, ridges, named["source"])
        if matrix.shape != (len(known.items), len(features.names)) or ridges.shape != (
            len(features.names),
        ):
            raise ValueError("its features are of other items")
    items = fingerprint(known.items, features)
    if survey.design != "L" or survey.catalogue != items or not survey.epsilon > 0:
        raise ValueError("its parts do not belong together")
    if len(bits.items) and int(bits.items.max()) >= len(known.items):
        raise ValueError("a bit is about an item that is not there")
    words = {name: about[name] for name in _WORDS}
    claim = msgspec.convert(about["claim"], PrivacyClaim)
    return Release(
        survey, bits, known.items, claim, item_table=known.item_table, features=features, **words
    )


def _checksum(text: str, arrays: dict[str, np.ndarray]) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        digest.update(name.encode() + arrays[name].tobytes())
    return digest.hexdigest()
