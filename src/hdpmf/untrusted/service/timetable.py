"""Whether a run is due by the schedule in ``config.toml``, and what it is about: the same as the
last one.
"""

from __future__ import annotations

from hdpmf.untrusted.service.catalogue_key import CATALOGUE, KEY
from hdpmf.untrusted.service.folder import ServiceFolder
from hdpmf.untrusted.service.schedule import PastRun, worth_a_run
from hdpmf.untrusted.service.service import Service
from hdpmf.untrusted.service.settings import RunSettings


def next_settings(
    folder: ServiceFolder, service: Service, now: float
) -> tuple[RunSettings | None, str]:
    """The settings of the run that is due, or None; and why.

    A schedule repeats the last run that was finished, so that the operator chooses its settings
    once, by hand. It repeats surveys only: a rating answers one once, while each training run would
    spend its epsilon again.
    """
    schedule = folder.config.schedule
    if schedule.never:
        return None, ""
    ended = [(folder.summary_path(run).stat().st_mtime, run) for run in folder.runs()]
    done = [(at, run) for at, run in ended if folder.run_files(run).load().stage == "done"]
    if not done:
        return (
            None,
            "the schedule repeats the last run, and there is none yet: hdpmf recommender run",
        )
    settings = folder.record(done[-1][1]).settings.again()
    if not settings.one_round:
        return (
            None,
            f"the schedule does not repeat {settings.method}: each run would spend epsilon again",
        )
    if schedule.seconds is not None:
        due = now - ended[-1][0] >= schedule.seconds
        return (settings if due else None), (f"every {schedule.every}" if due else "")
    if settings.kind.family == "bits":
        return (
            None,
            "the rule weighs sums against noise, and bits have none; set every in config.toml",
        )
    past = [
        PastRun.of(service.answered(run), at=at, devices=len(folder.record(run).devices))
        for at, run in done
        if run in service.earlier(settings)
    ]
    made = [
        folder.path / name for name in (CATALOGUE, KEY, "config.toml")
    ]  # the first of these at the latest
    opened = min(path.stat().st_mtime for path in made if path.exists())
    counted = settings.counted(folder.enrolled.users.values())
    verdict = worth_a_run(past, now=now, opened=opened, devices=counted, minimum=settings.minimum)
    return (settings if verdict.worth else None), verdict.reason if verdict.worth else ""
