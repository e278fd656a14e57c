"""The operator's pages: counts, sums, claims, items of the public model. No device is named."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hdpmf.common.methods import method_named
from hdpmf.common.methods.registry import PROMISE, guess_at, percent
from hdpmf.common.model.public_model import PublicModel
from hdpmf.common.protocol import ItemFacts
from hdpmf.common.protocol.catalogue import TitleSearch, catalogue_table
from hdpmf.untrusted.service.folder import ServiceFolder
from hdpmf.untrusted.service.health import ending_in, inspect_folder
from hdpmf.untrusted.service.outcome import state
from hdpmf.untrusted.service.past_runs import weight_deviations
from hdpmf.untrusted.service.progress import run_facts
from hdpmf.untrusted.service.refusals import refusal_classes
from hdpmf.untrusted.service.settings import RunSettings

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


_SHOWN = 10
_FOUND = 20
_MOST_RUNS = 50

_LONGEST_SEARCH = 200


class OperatorViews:
    """The pages of a recommender, read from its folder."""

    def __init__(self, folder: ServiceFolder) -> None:
        self._folder = folder
        self._items = LatestItems(folder)
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
        return {
            "recommender": folder.config.name,
            "served": folder.is_serving(),
            "state": folder.state(),
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

    def _runs(self, _: str) -> dict[str, Any]:
        runs = self._folder.runs()
        return {"runs": [self._run(run) for run in runs[: -_MOST_RUNS - 1 : -1]], "all": len(runs)}

    def _run(self, run: bytes) -> dict[str, Any]:
        facts = run_facts(self._folder, run)
        settings = self._folder.record(run).settings
        about = {
            "refusals": sum(self._refusals(run).values()),
            "wrong_shares": len(facts["wrong_shares"]),
        }
        return facts | self._promised(run, settings) | about

    def _promised(self, run: bytes, settings: RunSettings) -> dict[str, Any]:
        """Return a rating's epsilon: as the run ended, else as it was planned."""
        stated = (self._folder.summary(run) or {}).get("privacy")
        if not isinstance(stated, dict):
            stated = state(settings, self._folder.known.scale).as_dict()
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
    return (
        None
        if epsilon is None or factor is None
        else percent(guess_at(epsilon * factor), at_most=True)
    )
