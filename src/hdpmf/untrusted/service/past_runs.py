"""Past runs: what they released, and how much noise is in it."""

from __future__ import annotations

import math

import numpy as np

from hdpmf.common.privacy.coding import WEIGHT_SCALE
from hdpmf.common.protocol import SharedContribution
from hdpmf.common.protocol.catalogue import known_items
from hdpmf.common.protocol.enrolment import Enrolled
from hdpmf.untrusted.recommender.runs import SurveyAnswer
from hdpmf.untrusted.recommender.sums import add_up_runs
from hdpmf.untrusted.service.aggregation.two_servers import NOISES
from hdpmf.untrusted.service.folder import ServiceFolder
from hdpmf.untrusted.service.run_files import decode_as
from hdpmf.untrusted.service.survey import load_answer


def survey_answer(folder: ServiceFolder, run: bytes) -> SurveyAnswer:
    """Return the release of a survey, and how many times the whole noise is in it."""
    record = folder.record(run)
    checkpoint = folder.run_files(run).load()
    settings = record.settings
    users = Enrolled(record.devices).users
    sharing = settings.sharing(users.values())
    noises = 1.0
    if settings.view == "two-servers":
        noises = NOISES
    elif settings.view == "sums":
        noises = max(
            settings.counted(users[device] for device in checkpoint.members) / sharing, 1.0
        )
    known = known_items(
        folder.items_of(run)
    )  # those that were asked about, not those that there are now
    return SurveyAnswer(
        settings.survey(known, sharing),
        load_answer(checkpoint),
        noises,
        tuple(known.retired.tolist()),
        decode_as(checkpoint.shared, SharedContribution) if checkpoint.shared else None,
    )


def weight_deviations(folder: ServiceFolder, run: bytes) -> np.ndarray | None:
    """Return the standard deviation of the noise in each item's weight, earlier runs included.

    None with taste labels, whose weights come from two sums with noise of different scales.
    """
    record = folder.record(run)
    if record.settings.labels is not None:
        return None
    n_items = len(known_items(folder.items_of(run)).items)
    if record.settings.kind.family != "sums":  # who rated what is in plain sight
        return np.zeros(n_items)
    own = survey_answer(folder, run)
    earlier = [survey_answer(folder, bytes.fromhex(name)) for name in record.earlier]
    scales = (
        add_up_runs(own.survey, own, earlier)[1]
        if earlier
        else np.full(n_items, math.sqrt(own.noises))
    )
    return np.asarray(math.sqrt(2.0) * WEIGHT_SCALE / own.survey.epsilon * scales)
