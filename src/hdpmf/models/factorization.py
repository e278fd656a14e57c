"""The paper's four methods. They differ in their mechanism; the rest is one trainer."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from hdpmf.common.base.threads import Workers
from hdpmf.common.data import Ratings, RatingScale
from hdpmf.common.methods import check
from hdpmf.common.methods.options import (
    FactorizationOptions,
    HDPMFOptions,
    PrivateFactorizationOptions,
    SampledOptions,
)
from hdpmf.common.privacy.mechanisms import (
    MECHANISMS,
    Mechanism,
    NoPrivacy,
    Paid,
    Sample,
    Stretch,
    Uniform,
    Weight,
)
from hdpmf.common.privacy.sampling import seed_of
from hdpmf.common.privacy.weights import PrivacyWeights
from hdpmf.common.protocol import Plan
from hdpmf.errors import ConfigError, RatingsError
from hdpmf.models.base import Callback, Estimator
from hdpmf.models.later_ratings import FoldIn
from hdpmf.models.training import (
    EpochRecord,
    batch_epochs,
    gpu_epochs,
    run_epochs,
    sequential_epochs,
    warn_if_far,
)
from hdpmf.private.client import Devices
from hdpmf.private.kernels.gpu.availability import use_gpu
from hdpmf.untrusted.recommender import Catalogue

_SOLVERS = {"batch": batch_epochs, "sequential": sequential_epochs}


@dataclass(eq=False, repr=False)
class Factorization(FactorizationOptions, FoldIn, Estimator, ABC):
    """Matrix factorization with some mechanism; see the subclasses.

    Args:
        n_factors: Length K of the latent vectors.
        learning_rate: Initial step; a fifth of it after a quarter of the epochs, 1/25 after three
            quarters.
        reg: Regularisation.
        epochs: Passes over the ratings.
        solver: ``batch`` (Algorithm 1, what a federation can run) or ``sequential`` (published
            numbers).
        scale_steps: In ``batch``, divide a step by the square root of the number of ratings behind
            it; False is the form printed in the paper, which diverges on popular items.
        early_stopping: Stop after this many epochs without a better validation error, and keep the
            best.
        on: ``cpu``, ``gpu`` (NVIDIA), or ``auto`` for the GPU where there is one. On a GPU the
            noise comes from another generator: the same distribution, other numbers.
        n_threads: Threads of a CPU; every core by default. The result does not depend on it.
        rng: An int, a numpy Generator, or None for another result every time.

    Attributes:
        history_: One record per epoch.
    """

    history_: tuple[EpochRecord, ...] = field(init=False)

    # What only private methods can change; MF's plan needs a number for epsilon, and nothing reads
    # it.
    epsilon: ClassVar[float] = 1.0
    h: ClassVar[str] = "auto"
    noise: ClassVar[str] = "epoch"

    def _fit(
        self,
        train: Ratings,
        weights: PrivacyWeights,
        validation: Ratings | None,
        callbacks: Sequence[Callback],
    ) -> None:
        self._check_params(validation)
        plan, mechanism, h_per_item = self.setup(train.n_items, train.scale)
        beta, gamma = weights.for_users(train.users), weights.for_items(train.items)

        def state(
            vectors: np.ndarray, factors: np.ndarray, raters: np.ndarray
        ) -> tuple[Devices, Catalogue]:
            devices = Devices.after_training(train, vectors, beta, gamma)
            return devices, Catalogue(train.items, factors, raters, train.scale, train.item_table)

        def validate(vectors: np.ndarray, factors: np.ndarray, raters: np.ndarray) -> float:
            self.devices_, self.catalogue_ = state(vectors, factors, raters)
            return float(self.score(validation)["mse"]) if validation is not None else math.nan

        settings = train, weights, mechanism, plan, h_per_item, seed_of(self.rng)
        on_gpu = self._on_gpu()
        with Workers(self.n_threads) as workers:
            epochs = (
                gpu_epochs(*settings, self.solver)
                if on_gpu
                else _SOLVERS[self.solver](*settings, workers)
            )
            trained = run_epochs(
                epochs,
                plan,
                None if validation is None else validate,
                self.early_stopping,
                callbacks,
            )
        self.devices_, self.catalogue_ = state(trained.vectors, trained.factors, trained.raters)
        self.history_ = trained.history
        warn_if_far(self, train)

    def _fit_newcomers(
        self, ratings: Ratings, items: np.ndarray, weights: PrivacyWeights | float | None
    ) -> np.ndarray:
        known = np.flatnonzero(np.append(self.catalogue_.trained, False)[items])
        if len(known) == 0:
            raise RatingsError(
                "none of the rated items was in training, so there is nothing to fit a vector to"
            )
        if isinstance(weights, PrivacyWeights):
            row_weights, beta = weights.for_ratings(ratings), weights.for_users(ratings.users)
        else:
            parts = PrivacyWeights.uniform(ratings, 1.0 if weights is None else weights)
            beta = parts.beta
            row_weights = beta[ratings.user_codes] * np.append(self.devices_.gamma, 1.0)[items]
        return self.devices_.take_in(
            ratings.take(known),
            items[known],
            row_weights[known],
            beta,
            self.catalogue_.factors,
            self.reg,
            self.solver == "sequential",
            self._mechanism(),
        )

    def _usable(self) -> np.ndarray:
        return self.catalogue_.trained

    def setup(self, n_items: int, scale: RatingScale) -> tuple[Plan, Mechanism, bool]:
        """Return the plan of a training, how ratings enter it, and True if h is drawn per item."""
        mechanism = self._mechanism()
        name = next(name for name, kind in MECHANISMS.items() if kind is type(mechanism))
        plan = Plan(
            n_items=n_items,
            n_factors=self.n_factors,
            epochs=self.epochs,
            learning_rate=float(self.learning_rate),
            reg=float(self.reg),
            mechanism=name,  # type: ignore[arg-type]  # one of the registry's names
            epsilon=float(self.epsilon),
            scale_low=scale.low,
            scale_high=scale.high,
            scale_steps=self.scale_steps,
            fresh_noise=self.noise == "epoch",
        )
        return plan, mechanism, self._h_per_item()

    def _on_gpu(self) -> bool:
        if self.cpu_only is None:
            return use_gpu(self.on)
        if self.on == "gpu":
            raise ConfigError(self.cpu_only)
        return False

    @property
    def cpu_only(self) -> str | None:
        """Why no GPU can train it; None where one can."""
        return None

    @abstractmethod
    def _mechanism(self) -> Mechanism:
        """Return the mechanism by which ratings enter and predictions come back."""

    def _predict_codes(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        catalogue = self.catalogue_
        return self.devices_.predict(
            users, items, catalogue.factors, catalogue.trained, self._mechanism()
        )

    def _candidates(self) -> np.ndarray:
        return self.catalogue_.trained.copy()

    def _ever_rated(self) -> np.ndarray:
        return self.catalogue_.trained

    def _predicted(self, users: np.ndarray) -> np.ndarray:
        catalogue = self.catalogue_
        return self.devices_.predict_all(
            users, catalogue.factors, catalogue.trained, self._mechanism()
        )

    def _h_per_item(self) -> bool:
        """Return True if h is drawn per item, False if items share it.

        ``auto`` follows the source of each solver: per item in the paper's text (``batch``), shared
        in the published numbers (``sequential``).
        """
        return self.solver == "batch" if self.h == "auto" else self.h == "item"

    def _check_params(self, validation: Ratings | None) -> None:
        check(self)
        if self.early_stopping is not None and validation is None:
            raise ConfigError(
                "early_stopping needs a validation set; pass fit(..., validation=ratings)"
            )


class MF(Factorization):
    """Matrix factorization without privacy."""

    @property
    def cpu_only(self) -> str | None:  # noqa: D102
        if self.solver == "batch":
            return None
        return (
            "sequential MF runs on the CPU: each step needs the one before; use on='cpu' or "
            "'auto', or solver='batch'"
        )

    def _mechanism(self) -> Mechanism:
        return NoPrivacy()


@dataclass(eq=False, repr=False)
class PrivateFactorization(PrivateFactorizationOptions, Factorization):
    """The base class of the private methods.

    Args:
        epsilon: The largest budget of a rating; rating (i, j) has W_ij times this. NOMINAL: see
            ``privacy``.
        h: The recommender's draws per ``item`` (the paper's text) or ``shared`` by all items (the
            published numbers); ``auto`` is per item in ``batch`` and shared in ``sequential``.
        noise: Drawn anew in every ``epoch`` or ``once``.
    """


class DPMF(PrivateFactorization):
    """Everybody's noise at the smallest budget of anyone."""

    def _mechanism(self) -> Mechanism:
        return Uniform()


@dataclass(eq=False, repr=False)
class PDPMF(SampledOptions, PrivateFactorization):
    """Ratings below a threshold budget are sampled, the noise is set by the threshold.

    Args:
        threshold: ``mean``, ``min`` or ``max`` of the ratings' budgets, or a number.
    """

    def _mechanism(self) -> Mechanism:
        return Sample(self.threshold)


@dataclass(eq=False, repr=False)
class HDPMF(HDPMFOptions, PrivateFactorization):
    """The paper's method: ratings are stretched by their weights, predictions rescaled.

    Args:
        mechanism: ``stretch`` (the paper), ``weight`` (weighted residuals; more accurate at the
            same noise) or ``paid`` (the only one whose epsilon is a guarantee, where sums are
            secure: all rounds share the budget, so use few epochs).
        rescale: For ``stretch``: divide predictions by the weight; False is the paper's ablation
            HDPMF-R.
    """

    def _mechanism(self) -> Mechanism:
        check(self)
        return {"stretch": Stretch(self.rescale), "weight": Weight(), "paid": Paid()}[
            self.mechanism
        ]

    @property
    def cpu_only(self) -> str | None:  # noqa: D102
        if self.mechanism != "paid":
            return None
        return (
            "the mechanism 'paid' runs on the CPU: what devices send are whole numbers with exact "
            "noise, which GPUs do not compute here; use on='cpu' or 'auto'"
        )

    def _check_params(self, validation: Ratings | None) -> None:
        super()._check_params(validation)
        if self.mechanism != "stretch" and not self.rescale:
            raise ConfigError(
                f"rescale is for the mechanism 'stretch'; {self.mechanism!r} has nothing to rescale"
            )
        if self.mechanism == "paid":
            # Each of these would void the guarantee: nobody can run the first as sums, the
            # second is removed by subtracting two rounds, the third stops at a time that depends on
            # ratings.
            for wrong, what in (
                (self.solver != "batch", "solver='batch'"),
                (self.noise != "epoch", "noise='epoch'"),
                (self.early_stopping is not None, "early_stopping=None"),
                (self.h != "auto", "h='auto': there is no h"),
            ):
                if wrong:
                    raise ConfigError(f"the mechanism 'paid' keeps its guarantee only with {what}")
