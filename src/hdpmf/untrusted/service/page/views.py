"""The operator's pages: counts, sums, claims, items of the public model. No device is named."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hdpmf.common.methods import method_named
from hdpmf.common.methods.registry import PROMISE, at_most, guess_at
from hdpmf.common.model.public_model import PublicModel
from hdpmf.common.protocol import ItemFacts
from hdpmf.common.protocol.catalogue import catalogue_table
from hdpmf.common.protocol.titles import TitleSearch
from hdpmf.untrusted.service.folder import ServiceFolder
from hdpmf.untrusted.service.health import ending_in, inspect_folder
from hdpmf.untrusted.service.keys import pinned_servers
from hdpmf.untrusted.service.outcome import refusal_classes, state
from hdpmf.untrusted.service.page.charts import RunCharts
from hdpmf.untrusted.service.progress import run_facts
from hdpmf.untrusted.service.settings import RunSettings
from hdpmf.untrusted.service.survey import weight_deviations

_PER_STAR = 4.0
"""Item facts are in one to five stars, whatever the scale is."""


class ModelItems:
    """Items of a public model with their popularity, rating and noise.

    Attributes:
        rated: True if it has ratings, not only popularity.
        weighted: True if popularity is a sum of privacy weights, not of raters.
    """

    def __init__(self, model: PublicModel, deviations: np.ndarray | None) -> None:
        self.model = model
        numbers = model.numbers
        method = method_named(str(model.about["method"]))
        self.rated = isinstance(numbers, ItemFacts) and not method.lists_only
        self.weighted = method.family == "sums"
        self._deviations = deviations
        self._table = catalogue_table(model.items, model.scale, model.item_table)
        self._search = TitleSearch(self._table)
        if isinstance(numbers, ItemFacts):
            per_star = model.scale.width / _PER_STAR
            self._popularity = numbers.popularity
            self._rating = model.scale.low + (numbers.mean + numbers.bias - 1.0) * per_star
            self._uncertain = np.sqrt(numbers.variance) * per_star
        else:
            self._popularity = numbers.raters
            self._rating = self._uncertain = np.zeros(len(numbers.raters))

    def most_popular(self, n: int) -> list[dict[str, Any]]:
        """Return the items with most raters."""
        return self._rows(_first(self._popularity, n))

    def most_liked(self, n: int) -> list[dict[str, Any]]:
        """Return the items with the highest lower bound of their rating."""
        return self._rows(_first(self._rating - self._uncertain, n)) if self.rated else []

    def find(self, words: str, n: int) -> list[dict[str, Any]]:
        """Return items with these words in the title."""
        return self._rows(self._search.find(words, n))

    def _rows(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        table = self._table
        scale = self.model.scale
        return [
            {
                "item": table.ids[index],
                "title": (table.titles[index] if table.titles else "") or table.ids[index],
                "popularity": float(self._popularity[index]),
                "popularity_noise": None
                if self._deviations is None
                else float(self._deviations[index]),
                "rating": float(np.clip(self._rating[index], scale.low, scale.high))
                if self.rated
                else None,
                "rating_uncertain": float(self._uncertain[index]) if self.rated else None,
            }
            for index in indices
        ]


class LatestItems:
    """The items of the newest model, read once per model."""

    def __init__(self, folder: ServiceFolder) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._path: Path | None = None
        self._items: ModelItems | None = None

    def get(self) -> ModelItems | None:
        """Return the newest model's items; None before the first run has ended."""
        link = self._folder.path / "model"
        with self._lock:
            if not link.exists():
                return None
            path = link.resolve()
            if self._items is None or path != self._path:
                model = PublicModel.load(path)
                deviations = weight_deviations(self._folder, bytes.fromhex(str(model.about["run"])))
                self._items = ModelItems(model, deviations)
                self._path = path
            return self._items


def _first(values: np.ndarray, n: int) -> list[int]:
    return [int(index) for index in np.argsort(-values, kind="stable")[:n]]


@dataclass(frozen=True, slots=True)
class Moment:
    """A time for people: for machines, in words, and how far from now it is."""

    machine: str
    words: str
    distance: str
    past: bool


_UNITS = ((86_400, "days"), (3_600, "h"), (60, "min"), (1, "s"))


def moment(at: float, now: float) -> Moment:
    """Return a Unix time as seen from now."""
    away = int(abs(at - now))
    size, unit = next((pair for pair in _UNITS if away >= 2 * pair[0]), _UNITS[-1])
    when = time.gmtime(at)
    return Moment(
        time.strftime("%Y-%m-%dT%H:%M:%SZ", when),
        time.strftime("%Y-%m-%d %H:%M UTC", when),
        f"{away // size} {unit}",
        at <= now,
    )


_SHOWN = 10
_FOUND = 20
_MOST_RUNS = 50

_LONGEST_SEARCH = 200


class OperatorViews:
    """The pages of a recommender, read from its folder."""

    def __init__(self, folder: ServiceFolder) -> None:
        self._folder = folder
        self._items = LatestItems(folder)
        self._charts = RunCharts(folder)
        self._planned: dict[bytes, dict[str, Any]] = {}  # by run; settings do not change
        self._ended: dict[bytes, dict[str, Any]] = {}
        self.pages: dict[str, tuple[str, Callable[[str], dict[str, Any]]]] = {
            "/overview": ("overview", self._overview),
            "/runs": ("runs", self._runs),
            "/devices": ("devices", self._devices),
            "/model": ("model", self._model),
            "/knowledge": ("knowledge", self._knowledge),
        }
        """By path: the name, and what is on it for the words that somebody looks for."""

    def _overview(self, _: str) -> dict[str, Any]:
        folder = self._folder
        seen = inspect_folder(self._folder)
        enrolled = folder.enrolled
        served = folder.is_serving()
        state_now = folder.state()
        until = (state_now or {}).get("until") if served else None
        runs = [self._run(run) for run in folder.runs()]
        return {
            "served": served,
            "state": state_now,
            "until": None if until is None else moment(float(until), seen.now),
            "next": self._next_run(seen.now),
            "rule": folder.config.schedule.rule,
            "address": folder.config.address,
            "servers": pinned_servers(folder.path),
            "charts": self._charts.draw(runs),
            "alerts": seen.alerts,
            "certificates": [
                (each.name, None if each.ends is None else ending_in(each.ends, seen.now))
                for each in seen.certificates
            ],
            "free": seen.free,
            "devices": len(enrolled),
            "users": enrolled.count_users(enrolled.users),
            "runs": len(folder.runs()),
            "items": len(folder.catalogue.ids),
            "at": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seen.now)),
        }

    def _next_run(self, now: float) -> Moment | None:
        """Return when the schedule repeats the last run; None where it names no time."""
        folder = self._folder
        seconds = folder.config.schedule.seconds
        runs = folder.runs()
        if seconds is None or not runs or not folder.summary_path(runs[-1]).exists():
            return None
        return moment(folder.summary_path(runs[-1]).stat().st_mtime + seconds, now)

    def _runs(self, _: str) -> dict[str, Any]:
        runs = self._folder.runs()
        return {
            "runs": [self._run(run) for run in runs[: -_MOST_RUNS - 1 : -1]],
            "all": len(runs),
            "served": self._folder.is_serving(),
        }

    def _run(self, run: bytes) -> dict[str, Any]:
        folder = self._folder
        now = time.time()
        begun = (folder.path / "runs" / run.hex() / "settings.json").stat().st_mtime
        summary = folder.summary_path(run)
        ended = summary.stat().st_mtime if summary.exists() else None
        trouble = folder.run_files(run).trouble() if ended is None else None
        retry = None if trouble is None else trouble.retry
        facts = self._facts(run, ended=ended is not None)
        return facts | {
            "begun_at": begun,
            "begun": moment(begun, now),
            "ended": None if ended is None else moment(ended, now),
            "trouble": trouble,
            "retry": None if retry is None else moment(retry, now),
            "tasks": [task | {"end": moment(task["end"], now)} for task in facts["tasks"]],
        }

    def _facts(self, run: bytes, *, ended: bool) -> dict[str, Any]:
        """Return what does not change with time; of a run that has ended it is read once."""
        if run in self._ended:
            return self._ended[run]
        record = self._folder.record(run)
        facts = run_facts(self._folder, run)
        facts |= self._promised(run, record.settings) | {
            "roster": len(record.devices),
            "one_round": record.settings.one_round,
            "refusals": sum(self._refusals(run).values()),
            "wrong_shares": len(facts["wrong_shares"]),
        }
        if ended:
            self._ended[run] = facts
        return facts

    def _promised(self, run: bytes, settings: RunSettings) -> dict[str, Any]:
        """Return a rating's epsilon: as the run ended, else as it was planned."""
        stated = (self._folder.summary(run) or {}).get("privacy")
        if not isinstance(stated, dict):
            if run not in self._planned:
                self._planned[run] = state(settings, self._folder.known.scale).as_dict()
            stated = self._planned[run]
        return {
            "epsilon": stated.get("epsilon"),
            "status": stated.get("status"),
            "minimum": settings.minimum,
        }

    def _devices(self, _: str) -> dict[str, Any]:
        folder = self._folder
        runs = self._folder.runs()
        enrolled = folder.enrolled
        last = None
        if runs:
            record = folder.record(runs[-1])
            checkpoint = folder.run_files(runs[-1]).load()
            by_servers = record.settings.view == "two-servers"
            last = {
                "run": runs[-1].hex(),
                "asked": None if by_servers else len(record.cohort),
                "agreed": None if by_servers else len(checkpoint.agreed),
                "members": None if by_servers else len(checkpoint.members),
                "reports": checkpoint.users[-1] if by_servers and checkpoint.users else None,
                "minimum": record.settings.minimum,
                "shown": self._shown(runs[-1]),
                "refusals": refusal_classes(self._refusals(runs[-1])),
            }
        return {
            "devices": len(enrolled),
            "users": enrolled.count_users(enrolled.users),
            "digest": enrolled.digest,
            "last": last,
        }

    def _shown(self, run: bytes) -> dict[str, tuple[int, int]] | None:
        """Return how many people showed how many ratings, by level; None where nobody may.

        They are known when the run has ended.
        """
        levels = (self._folder.summary(run) or {}).get("levels")
        if not isinstance(levels, dict):
            return None
        return {level: (each["people"], each["ratings"]) for level, each in levels.items()}

    def _model(self, words: str) -> dict[str, Any]:
        found = self._items.get()
        wanted = words.strip()[:_LONGEST_SEARCH]
        if found is None:
            return {"model": None}
        model = found.model
        return {
            "model": {
                "run": str(model.about["run"])[:12],
                "method": str(model.about["method"]),
                "n_items": len(model.items),
                "low": model.scale.low,
                "high": model.scale.high,
                "rated": found.rated,
                "weighted": found.weighted,
            },
            "popular": found.most_popular(_SHOWN),
            "liked": found.most_liked(_SHOWN),
            "words": wanted,
            "found": found.find(wanted, _FOUND),
        }

    def _knowledge(self, _: str) -> dict[str, Any]:
        runs = self._folder.runs()
        asked: dict[tuple[str, str, bool], dict[str, Any]] = {}
        for run in reversed(runs):
            settings = self._folder.record(run).settings
            key = settings.method, settings.view, settings.labels is not None
            promised = self._promised(run, settings)
            if key in asked:
                asked[key]["runs"].append((run.hex(), promised))
                continue
            method = method_named(settings.method)
            labels = settings.labels is not None
            form = method.form(labels)
            claim = method.claim(settings.view, labels=labels)
            asked[key] = {
                "method": settings.method,
                "label": method.label,
                "labels": labels,
                "view": settings.view,
                "claim": claim,
                "form": form,
                "promise": PROMISE[claim.status],
                "guess": _guess(promised["epsilon"], claim.value)
                if claim.status == "proved"
                else None,
                "presence": _guess(promised["epsilon"], claim.presence)
                if claim.status == "proved"
                else None,
                "runs": [(run.hex(), promised)],
            }
        return {"asked": list(asked.values())}

    def _refusals(self, run: bytes) -> dict[str, int]:
        """Return the refusals of a run by class, so far or at its end."""
        summary = self._folder.summary(run)
        state_now = self._folder.state()
        if summary is not None:
            found = summary.get("refusals", {})
        elif state_now is not None and state_now.get("run") == run.hex():
            found = state_now.get("refusals_of_run", {})
        else:
            found = self._folder.run_files(run).load().refusals
        return dict(found) if isinstance(found, dict) else {}


def _guess(epsilon: float | None, factor: float | None) -> str | None:
    """Return the highest success rate of a guess about a rating of weight 1."""
    return None if epsilon is None or factor is None else at_most(guess_at(epsilon * factor))
