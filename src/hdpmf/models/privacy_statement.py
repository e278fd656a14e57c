"""The privacy statement of a model of this library: both sides are in this process.

What one person's ratings cost together is computed from the private part of the model, so it is
confidential; ``public`` leaves it out.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np

from hdpmf.common.data import Ratings
from hdpmf.common.methods import Method, method_of
from hdpmf.common.privacy.accounting import Setting
from hdpmf.common.privacy.accounting.costs import People
from hdpmf.common.privacy.statement import (
    Amount,
    PeopleCosts,
    PersonRow,
    PrivacyStatement,
    Subject,
    made_now,
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
    return replace(setting, scale=model.catalogue_.scale, implicit=model.implicit_)


def statement_of_model(
    model: Estimator,
    name: str,
    command: str,
    *,
    folder: Path | None = None,
    public: bool = False,
) -> PrivacyStatement:
    """Return the privacy statement of a fitted model.

    Args:
        model: With its private part, or without.
        name: For the title.
        command: What makes the statement again.
        folder: Where it is saved: its public files are named by their hashes.
        public: Leave out what is exact about private ratings.
    """
    users = int((np.diff(model.devices_.fit_record.start) > 0).sum())
    subject = Subject(
        kind="model",
        name=name,
        settings=(setting_of(model),),
        view=_method(model).headline,
        claim=model.privacy,
        alone=users == 1,  # also where numbers are left out
    )
    files = {
        f"recommender/{path.name}": path
        for path in ((folder or Path()) / "recommender").glob("*")
        if path.is_file()
    }
    people = PeopleCosts(users=None, note="Left out of a statement for the public.")
    if not public:
        people = _people(model, subject, users)
    return subject.statement(people, made_now(command, files))


def _people(model: Estimator, subject: Subject, users: int) -> PeopleCosts:
    record, catalogue = model.devices_.fit_record, model.catalogue_
    later = ""
    if model.devices_.earlier is not None:
        later = (
            "What came after the training was not sent, so it has spent 0. What was in the "
            "training keeps its cost, also where it was changed or removed later."
        )
    if not users:
        note = f"This model knows no person who was in its training. {later}".rstrip()
        return PeopleCosts(users=None, note=note)
    if not getattr(model, "weights_by_user_and_item_", False):
        return PeopleCosts(
            users=users,
            note="Not computed: the model was trained with weights of single ratings, and does "
            "not know them.",
        )
    counts = np.diff(record.start)
    ratings = Ratings(
        users=record.users,
        items=catalogue.items,
        user_codes=np.repeat(np.arange(len(counts), dtype=np.int32), counts),
        item_codes=record.rated.astype(np.int32),
        values=np.full(len(record.rated), catalogue.scale.low, np.float32),  # costs need none
        scale=catalogue.scale,
        name="the model's ratings",
    )
    weights = PrivacyWeights(record.users, catalogue.items, record.beta, model.devices_.gamma)
    people = People(ratings, weights)

    def row(place: str, person: int) -> PersonRow:
        value, presence, exchange = (
            Amount.of(people.cost(subject.settings[0], subject.view, person, neighbours=neighbours))
            for neighbours in ("value", "presence", "exchange")
        )
        return PersonRow(place, people.n_ratings(person), value, presence, exchange)

    return PeopleCosts(
        users=users,
        rows=tuple(row(place, people.at(part)) for place, part in _PLACES.items()),
        note="Exact about private ratings and wishes: CONFIDENTIAL. People are in the order of the "
        f"sum of their weights. {later}".rstrip(),
    )


def _method(model: Estimator) -> Method:
    method = method_of(model)
    if method is None:
        raise ConfigError(
            f"{type(model).__name__} is not registered as a method, so nothing is claimed for it; "
            "register it with hdpmf.add_method"
        )
    return method
