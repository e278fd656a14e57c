"""Lists and stars of small worlds, as this device makes them: ``spec/vectors/lists.json``.

``python -m tests.unit.participant.lists_cases`` writes the file anew, with new models: their noise
is drawn. What a test compares is what a device makes of the models in the file.
"""

from __future__ import annotations

import json
import random
from base64 import b64decode, b64encode
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from hdpmf.common.data import ItemFilter, Ratings, synthetic_world
from hdpmf.common.model.device_fit import log_popularity
from hdpmf.common.model.published_model import publish_model
from hdpmf.common.model.taste import choice_shares
from hdpmf.common.protocol.catalogue import (
    catalogue_table,
    known_items,
    next_version,
    signed_first,
)
from hdpmf.common.protocol.documents import file_digest
from hdpmf.models import HDPPairs
from hdpmf.private.client.ranking import certainly_above
from hdpmf.private.device.lists import OwnModel
from hdpmf.private.device.public import model_of
from hdpmf.private.device.state import Joined, Rated, State, changed, new_state
from tests.unit.participant.publishing import CATALOGUE_KEY, FILMS, LIMITS, RUN, invitation

FILE = Path(__file__).parents[3] / "spec" / "vectors" / "lists.json"
NOW = 1_900_800_123
N = 12
AGES = (0, 30, 600, 4000, 90_000, 10**7)


def worlds() -> dict[str, Ratings]:
    """People whose reports a model is made of."""
    stars = synthetic_world(900, 60, 14_000, rng=2)
    facts = stars.item_table
    assert facts is not None
    titles = [f"{title} II" if at % 4 else title for at, title in enumerate(facts.titles)]
    years = [year if at % 3 else None for at, year in enumerate(facts.years)]
    facts = replace(facts, titles=tuple(titles), years=tuple(years))
    clicks = synthetic_world(900, 60, 12_000, rng=4, implicit=True, pull=2.0)
    assert clicks.item_table is not None
    audiences = tuple(("G", "PG", "")[at % 3] for at in range(clicks.n_items))
    return {
        "stars": replace(stars, item_table=facts),
        "stars from 0 to 10 of items without features": synthetic_world(
            500, 40, 8_000, rng=3, scale=(0, 10, 1), features=False
        ),
        "clicks": replace(clicks, item_table=replace(clicks.item_table, audiences=audiences)),
        "clicks of items without features": synthetic_world(
            60, 40, 900, rng=5, implicit=True, features=False
        ),
    }


def published(name: str, ratings: Ratings) -> dict[str, Any]:
    """A catalogue and a model as files; the catalogue of stars has grown since, and shrunk."""
    sign, public = CATALOGUE_KEY.sign, CATALOGUE_KEY.public
    catalogue = signed_first(
        catalogue_table(ratings.items, ratings.scale, ratings.item_table), sign, public
    )
    heads = 24 if name == "stars" else "auto"
    model = HDPPairs(epsilon=8.0, heads=heads, features=ratings.item_table is not None, rng=1)
    model.fit(ratings)
    facts = changed(model.facts_, catalogue=known_items(catalogue).fingerprint)
    document, arrays = publish_model(facts, model.lists_, run=RUN, reports=(ratings.n_users,) * 2)
    if name == "stars":
        added = changed(
            catalogue.table,
            ids=("1001",),
            titles=("New II",),
            genres=(("Drama", "New"),),
            years=(None,),
            audiences=(),
        )
        catalogue = next_version(catalogue, sign, added=added, retired=(1, 5))
    return {
        "name": name,
        "catalogue": catalogue.to_bytes().decode(),
        "model": document.to_bytes().decode(),
        "arrays": [b64encode(data).decode() for data in arrays.values()],
    }


def people(world: dict[str, Any]) -> list[dict[str, Any]]:
    """Owners of all kinds, and what they ask for."""
    draw = random.Random(f"lists of {world['name']}")
    table = json.loads(world["catalogue"])["table"]
    low, high = table["scale_low"], table["scale_high"]
    levels = [high] if world["name"].startswith("clicks") else np.linspace(low, high, 5).tolist()
    found = []
    for count in (0, 1, 3, 8, 20, 30):
        items = draw.sample(table["ids"], count)
        kinds = [levels] if count in (1, 30) else [levels[-2:], levels]
        for some in kinds:
            rated = [[item, draw.choice(some), NOW - draw.choice(AGES)] for item in items]
            found.append({"rated": rated, "keep_rated": draw.random() < 0.3, "only": {}})
    items = draw.sample(table["ids"], 4)
    lowest = [[item, low, NOW - 5] for item in items]
    found.append({"rated": lowest, "keep_rated": False, "only": {}})
    if table["genres"]:
        rated = [[item, levels[-1], NOW - 10**6] for item in items]
        one = next(own[0] for own in table["genres"] if own)
        years = {"from_year": 1990, "to_year": 1999}
        for only in (years, {"genres": [one]}, {"not_genres": [one]}):
            found.append({"rated": rated, "keep_rated": True, "only": only})
    if any(table["audiences"]):
        found.append({"rated": rated, "keep_rated": False, "only": {"audience": ["G"]}})
    return found


def state_of(world: dict[str, Any], person: dict[str, Any]) -> State:
    """A device that has these ratings and files."""
    datas = [world["catalogue"].encode(), world["model"].encode()]
    datas += [b64decode(data) for data in world["arrays"]]
    names = [file_digest(data) for data in datas]
    joined = Joined(
        invitation=invitation(), catalogue=names[0], model=names[1], arrays=tuple(names[2:])
    )
    state = changed(new_state(LIMITS), files=dict(zip(names, datas, strict=True)), joined=(joined,))
    for item, value, at in person["rated"]:
        state = state.with_rating(FILMS, item, Rated(value, 1000, at))
    return state


def made(world: dict[str, Any], person: dict[str, Any]) -> dict[str, Any]:
    """What this device makes of them."""
    state = state_of(world, person)
    with patch("hdpmf.private.device.lists.time.time", return_value=NOW):
        own = OwnModel(state, state.of(FILMS))
    only = ItemFilter(**person["only"]) if person["only"] else None
    found = own.recommend(N, keep_rated=person["keep_rated"], only=only)
    ids = json.loads(world["catalogue"])["table"]["ids"]
    return {
        "list": [[each.item, each.rank_score, each.score, each.reason] for each in found],
        "predicted": own.predict([*ids, "no item"]).tolist(),
    }


def well_known(world: dict[str, Any]) -> list[str]:
    """The items that are chosen more than a usual one for certain, the most popular first."""
    state = state_of(world, {"rated": []})
    facts, _ = model_of(state, state.of(FILMS))
    popularity = facts.popularity.astype(np.float64)
    usual = float(choice_shares(popularity) @ log_popularity(popularity))
    certain = certainly_above(popularity, usual, facts.popularity_margin)
    document = json.loads(world["catalogue"])
    retired = {at for link in document["links"] for at in link["retired"]}
    order = np.argsort(-log_popularity(popularity), kind="stable").tolist()
    ids = document["table"]["ids"]
    return [ids[at] for at in order if certain[at] and at not in retired]


def main() -> None:
    """Write the file."""
    found = []
    for name, ratings in worlds().items():
        world = published(name, ratings)
        cases = [person | made(world, person) for person in people(world)]
        found.append({**world, "well_known": well_known(world), "people": cases})
    rows = ",\n".join(json.dumps(each, separators=(",", ":")) for each in found)
    FILE.write_text(f'{{"now":{NOW},"worlds":[\n{rows}\n]}}\n')


if __name__ == "__main__":
    main()
