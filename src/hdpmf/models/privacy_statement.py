"""The privacy statement of a model of this library: both sides are in this process.

What one person's ratings cost together is computed from the private part of the model, so it is
confidential; ``public`` leaves it out.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hdpmf.common.data import Ratings
from hdpmf.common.methods import Method, method_of
from hdpmf.common.privacy.accounting import DELTA, Setting
from hdpmf.common.privacy.accounting.costs import People
from hdpmf.common.privacy.statement import (
    Amount,
    PeopleCosts,
    PersonRow,
    PrivacyStatement,
    Provenance,
    Subject,
)
from hdpmf.common.privacy.weights import PrivacyWeights
from hdpmf.errors import ConfigError
from hdpmf.models.base import Estimator

_PLACES = {"least": 0.0, "5 %": 0.05, "25 %": 0.25, "median": 0.5, "75 %": 0.75, "95 %": 0.95,
           "most": 1.0}  # fmt: skip


def setting_of(model: Estimator) -> Setting:
    """Return the accountant's setting of a fitted model.

    Raises:
        ConfigError: The model's class belongs to no registered method.
    """
    setting = Setting.from_params(_method(model).name, model.get_params())
    return replace(setting, scale=model.catalogue_.scale)


def statement_of_model(
    model: Estimator,
    name: str,
    command: str,
    *,
    folder: Path | None = None,
    weights: PrivacyWeights | None = None,
    public: bool = False,
    tried: int = 0,
    budget: float | None = None,
    delta: float = DELTA,
) -> PrivacyStatement:
    """Return the privacy statement of a fitted model.

    Args:
        model: With its private part, or without.
        name: For the title.
        command: What makes the statement again.
        folder: Where it is saved: its public files are named by their hashes.
        weights: Those it was trained with, where the model does not know them all itself: weights
            of single ratings, and levels.
        public: Leave out what is exact about private ratings.
        tried: Trainings on the same ratings before this one, to choose its settings.
        budget: Of a rating of weight 1 over its whole life, to say what is left.
        delta: For numbers at delta.
    """
    method = _method(model)
    users = int((np.diff(model.devices_.fit_record.start) > 0).sum())
    subject = Subject(
        kind="model",
        name=name,
        setting=setting_of(model),
        view=method.headline,
        claim=model.privacy,
        alone=users == 1,  # also where numbers are left out
        trainings=1 + tried,
        delta=delta,
    )
    folder = folder or Path()
    files = {
        path.relative_to(folder).as_posix(): path
        for path in sorted((folder / "recommender").glob("*"))
        if path.is_file()
    }
    people = PeopleCosts(users=None, note="Left out of a statement for the public.")
    if not public:
        people = _people(model, subject, weights, users)
    return subject.statement(people, Provenance.now(command, files), budget)


def weights_of(model: Estimator, sources: Any, missing: float | None = None) -> PrivacyWeights:
    """Return privacy weights from files or frames, for the people of a model."""
    return PrivacyWeights.from_frame(_ratings(model), *sources, missing=missing)


def _ratings(model: Estimator) -> Ratings:
    """Return who rated what in training, to look weights up for: later ratings were not sent."""
    record, scale = model.devices_.fit_record, model.devices_.scale
    counts = np.diff(record.start)
    return Ratings(
        users=record.users,
        items=model.catalogue_.items,
        user_codes=np.repeat(np.arange(len(counts), dtype=np.int32), counts),
        item_codes=record.rated.astype(np.int32),
        values=np.full(len(record.rated), scale.low, np.float32),  # weights need none
        scale=scale,
        name="the model's ratings",
    )


def _people(
    model: Estimator, subject: Subject, weights: PrivacyWeights | None, users: int
) -> PeopleCosts:
    later = _later(model)
    if not users:
        none = "Nobody whom this model knows was in its training." if later else ""
        note = " ".join(filter(None, (none or "This model knows no person.", later)))
        return PeopleCosts(users=None, note=note)
    if weights is None and not getattr(model, "weights_by_user_and_item_", False):
        return PeopleCosts(
            users=users,
            note="Not computed: the model was trained with weights of single ratings, and does "
            "not know them. Give the file that it was trained with: --weights FILE.",
        )
    if weights is None:
        record, gamma = model.devices_.fit_record, model.devices_.gamma
        weights = PrivacyWeights(record.users, model.catalogue_.items, record.beta, gamma)
    people = People(_ratings(model), weights)

    def row(place: str, person: int) -> PersonRow:
        value, presence = (
            Amount.of(
                people.cost(
                    subject.setting,
                    subject.view,
                    person,
                    neighbours=neighbours,
                    releases=subject.trainings,
                    delta=subject.delta,
                )
            )
            for neighbours in ("value", "presence")
        )
        ratings = people.n_ratings(person)
        return PersonRow(place=place, ratings=ratings, value=value, presence=presence)

    return PeopleCosts(
        users=users,
        rows=tuple(row(place, people.at(part)) for place, part in _PLACES.items()),
        note="Exact about private ratings and wishes: CONFIDENTIAL. People are in the order of the "
        "sum of their weights." + (f" {later}" if later else ""),
    )


def _later(model: Estimator) -> str:
    """Return what came after the training, in words; empty where nothing did."""
    devices, record = model.devices_, model.devices_.fit_record
    if devices.earlier is None:
        return ""
    n_items = len(model.catalogue_.items)

    def pairs(users: np.ndarray, start: np.ndarray, rated: np.ndarray) -> np.ndarray:
        return np.asarray(np.repeat(users.astype(np.int64), np.diff(start)) * n_items + rated)

    now = pairs(np.arange(len(devices.users)), devices.rated_start, devices.rated)
    then = pairs(devices.users.find(record.users.ids), record.start, record.rated)
    people = int((record.users.find(devices.users.ids) < 0).sum())
    return (
        f"{int((~np.isin(now, then)).sum()):,} ratings, and {people:,} people, came after the "
        "training: nothing of them was sent, so they have spent 0. What was in the training keeps "
        "its cost, also where it was changed or removed later."
    )


def _method(model: Estimator) -> Method:
    method = method_of(model)
    if method is None:
        raise ConfigError(
            f"{type(model).__name__} is not registered as a method, so nothing is claimed for it; "
            "register it with hdpmf.add_method"
        )
    return method
