"""Population priors: general taste, learned from public ratings and shipped as constants.

A prior is a Gaussian for each user's vector: ``theta_i ~ N(M z_i, A)`` with z_i describing what the
user rated. It comes from a data set that was declared public; its file says which. It must not be
used to judge a method on the data set that it comes from.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from hdpmf.common.base.files import atomic_write
from hdpmf.errors import ConfigError, ModelFileError, made_by_newer

FORMAT = 1

SHIPPED = {"films": "films-ml-1m.json", "films-100k": "films-ml-100k.json"}
"""Priors that come with the package, by name."""

N_DESCRIBING = 2
"""What describes a user besides mean features: log number of ratings, and its square."""


@dataclass(frozen=True, slots=True, eq=False)
class Prior:
    """A population prior for users' vectors.

    Attributes:
        name: What to call it.
        origin: Where its numbers come from: data set, how many users, how they were learned.
        columns: Names of the columns it knows.
        means: M, from a user's mean columns (and log number of ratings, and its square) to the
            expected vector.
        covariance: A.
        noise: Variance of a rating around its prediction, in stars squared.
    """

    name: str
    origin: dict[str, Any]
    columns: tuple[str, ...]
    means: np.ndarray = field(repr=False)
    covariance: np.ndarray = field(repr=False)
    noise: float

    def __post_init__(self) -> None:
        size = len(self.columns)
        sound = (
            self.means.shape == (size, size + N_DESCRIBING)
            and self.covariance.shape == (size, size)
            and np.isfinite(self.means).all()
            and np.isfinite(self.covariance).all()
            and np.allclose(self.covariance, self.covariance.T, atol=1e-6)
            and 0 < self.noise < np.inf
        )
        if not sound or np.linalg.eigvalsh(self.covariance)[0] <= 0:
            raise ModelFileError(
                f"the prior {self.name!r} is not a Gaussian over its columns; learn it again"
            )

    @property
    def dataset(self) -> str:
        """The data set that it was learned from."""
        return str(self.origin.get("dataset", ""))

    def on(self, names: tuple[str, ...], ridges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Precision, and precision times mean map, for a model's columns.

        Columns that the prior does not know get their ridge; what the prior knows beyond the
        model's columns is integrated out.
        """
        at = {name: position for position, name in enumerate(self.columns)}
        known = np.array([position for position, name in enumerate(names) if name in at], np.intp)
        own = np.array([at[names[position]] for position in known], np.intp)
        precision = np.diag(ridges).astype(np.float64)
        precision[np.ix_(known, known)] = self.noise * np.linalg.inv(
            self.covariance[np.ix_(own, own)]
        )
        means = np.zeros((len(names), len(names) + N_DESCRIBING))
        means[np.ix_(known, known)] = self.means[np.ix_(own, own)]
        means[known, len(names) :] = self.means[own, len(self.columns) :]
        return precision, precision @ means

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it as JSON, rounded to what matters."""
        plain = {
            "format": FORMAT,
            "name": self.name,
            "origin": self.origin,
            "columns": list(self.columns),
            "noise": round(self.noise, 5),
            "means": _rounded(self.means),
            "covariance": _rounded(np.tril(self.covariance)),
        }
        atomic_write(path, json.dumps(plain, separators=(",", ":"), indent=None).encode())

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Prior:
        """Read what ``save`` wrote."""
        try:
            content = Path(path).read_bytes()
        except OSError as error:
            raise ModelFileError(
                f"cannot read the prior {os.fspath(path)}: {error.strerror}"
            ) from error
        return cls.parse(content, os.fspath(path))

    @classmethod
    def parse(cls, content: bytes, label: str) -> Prior:
        """A prior from the content of its file."""
        try:
            plain = json.loads(content)
            if plain["format"] > FORMAT:
                raise ModelFileError(made_by_newer(label))
            lower = _padded(plain["covariance"])
            return cls(
                name=str(plain["name"]),
                origin=dict(plain["origin"]),
                columns=tuple(map(str, plain["columns"])),
                means=np.array(plain["means"], np.float64),
                covariance=lower + np.tril(lower, -1).T,
                noise=float(plain["noise"]),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ModelFileError(
                f"{label} is not a prior; hdpmf.models.prior_learning.learn_prior makes one"
            ) from error


def load_prior(wanted: str | os.PathLike[str] | Prior | None) -> Prior | None:
    """A shipped prior by name, one from a file, one as it is, or none."""
    if wanted is None or isinstance(wanted, Prior):
        return wanted
    if isinstance(wanted, str) and wanted in SHIPPED:
        return Prior.parse((files("hdpmf.common.model") / SHIPPED[wanted]).read_bytes(), wanted)
    if not Path(wanted).exists():
        raise ConfigError(
            f"there is no prior {os.fspath(wanted)!r}: it is neither a file nor "
            f"{' or '.join(SHIPPED)}"
        )
    return Prior.read(wanted)


def _rounded(matrix: np.ndarray) -> list[list[float]]:
    return [[float(f"{number:.4g}") for number in _trimmed(row)] for row in matrix]


def _trimmed(row: np.ndarray) -> np.ndarray:
    """Without the zeros at the end, which a lower triangle has."""
    filled = np.flatnonzero(row)
    return row if len(filled) == 0 else row[: filled[-1] + 1]


def _padded(rows: list[list[float]]) -> np.ndarray:
    out = np.zeros((len(rows), len(rows)))
    for at, row in enumerate(rows):
        out[at, : len(row)] = row
    return out
