"""The base class of all models, which has a recommender's part and a devices' part.

Models are made by the names of their methods, and a method of one's own is added under a name.
"""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass, replace
from os import PathLike
from typing import Any, Self

import numpy as np

from hdpmf.common.base.progress import facts_html, progress_bar
from hdpmf.common.data import Id, Ratings, RatingsLike
from hdpmf.common.data.checks import ScaleLike
from hdpmf.common.methods import METHODS, Form, Method, check, method_named, method_of
from hdpmf.common.methods.method import NO_NOISE, PrivacyClaim, claim_of, nothing_hidden
from hdpmf.common.methods.registry import AS_CLAIMED
from hdpmf.common.privacy.weights import PrivacyWeights
from hdpmf.errors import ConfigError
from hdpmf.models.fitted import (
    column,
    described_items,
    privacy_weights,
    reading,
    writing,
)
from hdpmf.models.later_ratings import LaterRatings
from hdpmf.models.lists import Lists, Several
from hdpmf.models.training import EpochRecord
from hdpmf.private.client import Devices
from hdpmf.untrusted.recommender import Catalogue

Callback = Callable[[EpochRecord], object]
"""Called after every epoch; training goes on unless it returns True."""


class Estimator(Lists, LaterRatings):
    """A method that can be fitted and queried; subclass it to add your own.

    A subclass is a dataclass whose fields are its options. It says how it learns (``learn``) and
    what rating it expects (``expect``), and keeps what it learned in attributes that end in an
    underscore. Everything else is here: fallbacks for unknown users and items, errors, lists,
    files. docs/own-method.md has a whole one.

    A fitted model is two parts that never mix: what the recommender holds and what devices hold.

    Attributes:
        catalogue_: The recommender's part: item factors and public facts.
        devices_: The devices' part: user vectors, privacy weights, what each user rated.
    """

    weights_by_user_and_item_: bool
    """True if the devices know every weight: single ratings have none of their own, nor levels."""

    def _train_lists(self) -> None:
        """Train the model for lists, where there is one beside the one for stars."""
        return

    @writing
    def fit(
        self,
        train: RatingsLike,
        weights: Any = None,
        *,
        scale: ScaleLike | None = None,
        items: Any = None,
        validation: RatingsLike | None = None,
        callbacks: Sequence[Callback] = (),
        lists: bool = True,
        progress: bool | None = None,
    ) -> Self:
        """Learn from ratings.

        Args:
            train: Ratings to learn from, or a data frame or sparse matrix of them.
            weights: PrivacyWeights, or one number for all ratings; without them every rating has
                weight 1, that is the whole of epsilon.
            scale: The public scale of a frame or matrix, one to five where it is not given.
            items: Public facts about the items: an `ItemTable`, or a data frame or a file for
                `ItemTable.of`, with titles, genres, years and any columns for features. It may list
                items that nobody rated, and leave some out. The model's items are those of the
                ratings, unless these were restricted to a public list (`Ratings.over`).
            validation: Ratings to measure the error on after every epoch, for a method that has
                epochs.
            callbacks: Called with an EpochRecord after every epoch; one that returns True ends the
                training.
            lists: Train the model for lists, too, where the method has one beside the one for
                stars. Without it that waits for the first list: for whoever measures stars alone.
            progress: Whether to show a bar, on a terminal or in a notebook; None: in a notebook.
        """
        check(self)
        if scale is not None and isinstance(train, Ratings):
            raise ConfigError("these ratings know their own scale; leave scale out")
        if not isinstance(callbacks, Sequence) or not all(map(callable, callbacks)):
            raise ConfigError("callbacks are functions, in a list")
        ratings = self._taken(train, scale, again=True)
        if items is not None:
            ratings = ratings.describe(described_items(items, ratings.items))
        held = None if validation is None else self._taken(validation, ratings.scale)
        own = privacy_weights(ratings, weights)
        epochs = getattr(self, "epochs", None)
        with progress_bar(f"fitting {type(self).__name__}", epochs, show=progress) as advance:

            def after_epoch(record: EpochRecord) -> None:
                advance(record.epoch, record.epochs)

            self._fit(ratings, own, held, (*callbacks, after_epoch))
            self.set_source(ratings.implicit, ratings.columns)
            if lists:
                self._train_lists()
        self.weights_by_user_and_item_ = own.rating_weights is None
        return self

    def set_source(self, implicit: bool, columns: Mapping[str, str] | None) -> None:
        """Keep what kind of data the model learned from."""
        self.implicit_, self.columns_ = implicit, columns
        self.predicts_ratings = type(self).predicts_ratings and not implicit

    def _repr_html_(self) -> str:
        """Options, size and claim for notebooks; nothing of any rating, weight or vector."""
        facts: dict[str, object] = {
            name: value for name, value in self.get_params().items() if value is not None
        }
        if not hasattr(self, "catalogue_"):
            return facts_html(type(self).__name__, facts | {"fitted": "not yet"})
        catalogue = self.catalogue_
        facts |= {
            "fitted": f"{len(self.devices_.users):,} users, {len(catalogue.items):,} items, scale "
            f"{catalogue.scale}"
        }
        return facts_html(type(self).__name__, facts) + self.privacy._repr_html_()

    def learn(self, train: Ratings, weights: PrivacyWeights) -> None:
        """Learn from ratings, and keep it in attributes that end in an underscore.

        Subclasses implement this.
        """
        raise ConfigError(
            f"{type(self).__name__} does not say how it learns; give it learn(self, train, weights)"
        )

    def released(self, view: str) -> np.ndarray:
        """Return the numbers that an observer with this view saw in training, for audits.

        Subclasses that claim privacy implement this: ``hdpmf audit run`` attacks these numbers. The
        views are those of ``hdpmf.common.methods``: ``messages``, ``sums``, and ``final``.
        """
        raise ConfigError(
            f"{type(self).__name__} does not say what an observer with the view {view!r} sees; "
            "give it released(self, view), or audit the view 'final', where predictions are seen"
        )

    def _fit(
        self,
        train: Ratings,
        weights: PrivacyWeights,
        validation: Ratings | None,
        callbacks: Sequence[Callback],
    ) -> None:
        beta, gamma = weights.for_users(train.users), weights.for_items(train.items)
        self.learn(train, weights)
        self.devices_ = Devices.after_training(
            train, np.zeros((train.n_users, 0), np.float32), beta, gamma
        )
        # Counts of raters are public only if the method says so: none here.
        no_raters = np.zeros(train.n_items, np.int64)
        factors = np.zeros((train.n_items, 0), np.float32)
        self.catalogue_ = Catalogue(train.items, factors, no_raters, train.scale, train.item_table)

    @property
    def privacy(self) -> PrivacyClaim:
        """The model's epsilon and the claim that it stands on."""
        method = method_of(self)
        claim = claim_of(method, getattr(self, "epsilon", 0.0))
        if claim.epsilon:
            # Made in this process from a seed.
            stated = hasattr(self, "catalogue_") and self.catalogue_.items.stated
            claim = replace(claim, noise="simulated", items="stated" if stated else "rated")
        if method is None or claim.status != "nominal":
            return claim
        from hdpmf.common.privacy.accounting import with_honest_cost

        return with_honest_cost(claim, method.name, self.get_params())

    @reading
    def only_users(self, users: Id | Several) -> Self:
        """Return a copy with only these users' private part; the public part is the same.

        It has neither the seed (which would give away the simulated noise) nor the history of the
        training.
        """
        from hdpmf.models.files import with_users

        self._check_fitted()
        return with_users(self, self._user_codes(column(users)))

    @reading
    def save(self, folder: str | PathLike[str], *, replace: bool = False) -> None:
        """Write the model: ``folder/recommender`` is public, ``folder/devices`` private.

        The folder appears whole or not at all.

        Args:
            folder: Where to.
            replace: Whether an earlier model there may be replaced.

        Raises:
            StorageError: There is a model at ``folder`` already, or something else.
        """
        from hdpmf.models.files import save_model

        self._check_fitted()
        save_model(self, folder, replace=replace)

    @classmethod
    def load(cls, folder: str | PathLike[str]) -> Self:
        """Read a model of this class that ``save`` wrote."""
        from hdpmf.models.files import load_model

        model = load_model(folder)
        if not isinstance(model, cls):
            raise ConfigError(
                f"{folder} holds a {type(model).__name__}, not a {cls.__name__}; use "
                "hdpmf.load_model for any kind"
            )
        return model


def make_model(name: str, **params: Any) -> Estimator:
    """Return an unfitted model of the method ``name``.

    Raises:
        ConfigError: There is no such method, or it does not have such a parameter.
    """
    model: Estimator = method_named(name).configure(**params)
    return model


_ALL = "all ratings"


def add_method(
    name: str,
    estimator: type[Estimator],
    *,
    label: str = "",
    summary: str = "",
    form: Form | None = None,
    **more: Any,
) -> Method:
    """Register an estimator for ``make_model``, the command line, experiments and reports.

    Args:
        name: For commands: small letters, digits and hyphens.
        estimator: A subclass of `Estimator`, a dataclass whose fields are its options.
        label: For tables and figures; the name where it is not given.
        summary: One line for people; the first of the docstring where it is not given.
        form: What leaves devices and what epsilon is worth (`hdpmf.common.methods.Form`). Without
            it the method claims no privacy: it works on ratings given away. With it, everything
            that prints its epsilon says that this is its author's claim.
        **more: Anything else that `hdpmf.common.methods.Method` has.

    Raises:
        ConfigError: It is no `Estimator`, the name cannot be or is taken, or an option has no
            default.
    """
    if not (isinstance(estimator, type) and issubclass(estimator, Estimator)):
        called = (
            estimator.__name__ if isinstance(estimator, type) else repr(type(estimator).__name__)
        )
        raise ConfigError(
            f"{called} is no hdpmf.Estimator; write class {called}(hdpmf.Estimator) with learn and "
            "expect, and give the class itself (docs/own-method.md)"
        )
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", name):
        raise ConfigError(f"a method's name has small letters, digits and hyphens, not {name!r}")
    if estimator.parameter_names() and not is_dataclass(estimator):
        raise ConfigError(
            f"the options of {estimator.__name__} are not known: make it a dataclass, with "
            "a field for each"
        )
    method = Method(
        name=name,
        label=label or name,
        summary=summary or (inspect.getdoc(estimator) or name).splitlines()[0].rstrip("."),
        estimator=estimator,
        configuration=estimator,
        form=nothing_hidden("The ratings themselves.", _ALL, _ALL, NO_NOISE)
        if form is None
        else form,
        **{"family": "clear", "accounting": "no-noise" if form is None else AS_CLAIMED, **more},
    )
    known = METHODS.get(name)
    if known is not None and _same_class(known.estimator, estimator):
        METHODS.discard(name)  # a notebook's cell that is run again
    return METHODS.add(method)


def _same_class(known: str | type, new: type) -> bool:
    names = (new.__module__, new.__qualname__)
    return isinstance(known, type) and (known.__module__, known.__qualname__) == names
