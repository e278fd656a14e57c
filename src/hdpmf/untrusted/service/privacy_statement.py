"""The privacy statement of a recommender, or of one of its runs: only what it may know.

It knows no ratings and no weights, so it states the most that whole people can cost, and leaves
what they did cost to their devices.
"""

from __future__ import annotations

from dataclasses import replace

from hdpmf.common.methods import method_named
from hdpmf.common.methods.method import PrivacyClaim
from hdpmf.common.privacy.accounting import DELTA, Setting
from hdpmf.common.privacy.accounting.costs import rounded_up
from hdpmf.common.privacy.statement import (
    PeopleCosts,
    PersonRow,
    PrivacyStatement,
    Provenance,
    RunRow,
    Subject,
)
from hdpmf.errors import ConfigError
from hdpmf.untrusted.service.folder import ServiceFolder
from hdpmf.untrusted.service.outcome import setting_of, state
from hdpmf.untrusted.service.settings import METHOD, VIEW


def statement_of_recommender(
    folder: ServiceFolder,
    command: str,
    *,
    run: bytes | None = None,
    tried: int = 0,
    lifetime: float,
    person_limit: float,
    delta: float = DELTA,
) -> PrivacyStatement:
    """Return the privacy statement of a recommender, or of one of its runs.

    Args:
        command: What makes the statement again.
        run: The only run that counts; None: all of them, for a rating that was in each.
        tried: Runs with the same settings before, that are not in this folder any more.
        lifetime: What a device with the default policy lets a rating of weight 1 spend in its life.
        person_limit: What it lets all ratings of one person spend together.
        delta: For numbers at delta.

    Raises:
        ConfigError: There is no run yet.
    """
    runs = folder.runs()
    if not runs:
        raise ConfigError(
            f"{folder.path} has no run yet, so there is nothing to state; begin one with: hdpmf "
            "recommender run"
        )
    numbers = {each: number for number, each in enumerate(runs, 1)}
    ended = [each for each in runs if folder.summary(each) is not None]
    about = run if run is not None else (ended or runs)[-1]
    counted = [about] if run is not None else runs
    settings = folder.record(about).settings
    rows = {each: _row(folder, each, numbers[each]) for each in counted}
    scale = folder.known.scale
    claim = method_named(METHOD).claim(VIEW)
    row = rows[about]
    subject = Subject(
        kind="recommender" if run is None else "run",
        name=folder.config.name if run is None else f"{folder.config.name}, run {row.number}",
        setting=_with_limits(setting_of(settings, scale)),
        view=VIEW,
        claim=PrivacyClaim(row.epsilon, claim.status, claim.against, claim.reason),
        alone=row.users == 1,
        trainings=1 + tried,
        others=tuple(
            (_with_limits(setting_of(other, scale)), VIEW)
            for other in (folder.record(each).settings for each in counted if each != about)
        ),
        delta=delta,
    )
    model = folder.path / "runs" / about.hex() / "model"
    files = {f"model/{path.name}": path for path in sorted(model.glob("*")) if path.is_file()}
    items = len(folder.known.items)
    bound = PersonRow(
        place="upper bound: every item of the catalogue rated with weight 1",
        ratings=items,
        value=subject.amount("value", ratings=items),
        presence=subject.amount("presence", ratings=items),
    )
    people = PeopleCosts(
        users=row.users,
        rows=(bound,),
        note="What single people have spent is not known here: a recommender knows neither ratings "
        "nor privacy weights. The table has the most that anyone can have spent by the parameters "
        "that runs published. By default a device has a limit, too: all ratings of a person spend "
        f"at most {rounded_up(person_limit)} in their whole life (max_total). People see their own "
        "cost on their own device: hdpmf device ledger.",
    )
    return subject.statement(
        people,
        Provenance.now(command, files, {str(numbers[each]): each.hex() for each in counted}),
        lifetime,
        tuple(rows.values()),
    )


def _with_limits(setting: Setting) -> Setting:
    """Count with limits per person, which devices have and this side does not know.

    Where they are reached, one more rating takes weight from others, so that its presence costs
    more; how large they are does not matter.
    """
    return replace(setting, max_ratings=1_000_000)


def _row(folder: ServiceFolder, run: bytes, number: int) -> RunRow:
    """Return a run as it ended, else as it is planned."""
    record, summary = folder.record(run), folder.summary(run)
    stated = (summary or {}).get("privacy")
    if not isinstance(stated, dict):
        stated = state(record.settings, folder.known.scale).as_dict()
    users = None if summary is None else summary.get("users")
    return RunRow(
        number=number,
        method=METHOD,
        epsilon=stated["epsilon"] if isinstance(stated["epsilon"], float) else None,
        status=str(stated["status"]),
        users=users if isinstance(users, int) else None,
        state="under way" if summary is None else "ended",
    )
