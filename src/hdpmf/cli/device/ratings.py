"""``hdpmf device rate``, ``catalogue``, ``hide`` and ``recommend``: ratings, items and lists."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from hdpmf.cli.device.disclosures import bounds_words
from hdpmf.cli.device.store import RecommenderStoreOptions, StoreOptions
from hdpmf.cli.inference import ListOptions
from hdpmf.cli.options import (
    Scale,
    argument,
    command,
    option,
    read_bytes,
)
from hdpmf.cli.output import Block, Paragraph, Result, Table, note
from hdpmf.errors import ConfigError

if TYPE_CHECKING:
    from hdpmf.private.device.disclosures.ledger import Charge
    from hdpmf.private.device.store.device_store import DeviceStore
    from hdpmf.private.device.store.ratings_table import Record

_MOST_FOUND = 50


@command
def rate(
    target: RecommenderStoreOptions,
    item: Annotated[str | None, argument("The item's id.", "[ITEM]")] = None,
    value: Annotated[float | None, argument("Your rating of it.", "[VALUE]")] = None,
    weight: Annotated[
        float | None,
        option(
            "Privacy weight of ITEM, or, without ITEM, yours: above 0, at most 1, which "
            "allows all of epsilon.",
            "W",
        ),
    ] = None,
    remove: Annotated[bool, option("Remove the rating of ITEM.")] = False,
    show: Annotated[bool, option("Print all ratings.", None, "--list")] = False,
    search: Annotated[str | None, option("Print items with TEXT in the title.", "TEXT")] = None,
    own: Annotated[
        Path | None,
        option(
            "Look into a CSV of your own ratings, by item or title: what it would bring here.",
            "FILE",
        ),
    ] = None,
    take: Annotated[bool, option("Add the ratings of --own.")] = False,
) -> Result:
    """Add or change a rating: rate STORE ITEM VALUE. It stays on this device."""
    typed = item is not None and (value is not None or remove or weight is not None)
    ways = (
        typed,
        item is None and weight is not None,
        show,
        search is not None,
        own is not None,
    )
    if sum(ways) != 1 or (remove and value is not None):
        raise ConfigError(
            "choose one of: ITEM VALUE, ITEM --remove, ITEM --weight W, --weight W, "
            "--list, --search TEXT, --own FILE"
        )
    if take and own is None:
        raise ConfigError("--take goes with --own FILE")
    with target.open() as store:
        item = None if item is None else store.name_of(item)
        if show:
            return _list_ratings(store)
        if search is not None:
            return _search_titles(store, search)
        if own is not None:
            return _own_file(store, own, take)
        change = _change_rating(store, item, value, weight, remove)
        count = store.n_ratings
    words = (
        *change.get("means", {}).get("words", ()),
        *(run["words"] for run in change.get("released", ())),
    )
    text: list[Block] = [
        f"{change['done']}. This device has {count} ratings; nothing was sent.",
        *map(Paragraph, words),
    ]
    return Result({**change, "ratings": count}, text)


def _change_rating(
    store: DeviceStore,
    item: str | None,
    value: float | None,
    weight: float | None,
    remove: bool,
) -> dict[str, Any]:
    with store.transaction():
        if remove and item is not None:
            store.remove(item)
            return {
                "done": "Removed. What it has spent stays spent",
                "released": _releases(store, item, "removed"),
            }
        if value is not None and item is not None:
            store.rate(item, value)
        if weight is not None and item is None:
            store.set_weight(beta=weight)
        elif weight is not None:
            store.set_weight(item=item, gamma=weight)
    catalogue = store.pinned_catalogue
    if catalogue is not None and item is not None:
        if item not in catalogue.positions:
            note("The catalogue does not have this item: the rating is kept, but not used.")
        elif catalogue.positions[item] in catalogue.known.retired:
            note(
                "The catalogue has retired this item: the rating counts for your own list and "
                "is not sent any more."
            )
    if item is None:
        return {"done": "Weighed", "means": _weight_meaning(store)}
    if value is None:
        return {"done": "Weighed", "released": _releases(store, item, "marked")}
    return {"done": "Rated", "released": _releases(store, item, "changed")}


def _weight_meaning(store: DeviceStore) -> dict[str, Any]:
    """Explain the owner's weight, in numbers and in words."""
    from hdpmf.private.device.choices.privacy_level import group_of
    from hdpmf.private.device.disclosures.bounds import privacy_bounds

    now = privacy_bounds(store)
    group = group_of(now.weight)
    words = [f"That is {group}.", *bounds_words(now)]
    return {
        "group": group,
        "guess": now.rating.guess if now.proved else None,
        "guess_at_most": now.fields(),
        "all_epsilon_at_delta": now.person.epsilon if now.proved else None,
        "words": [" ".join(words)],
    }


def _own_file(store: DeviceStore, file: Path, take: bool) -> Result:
    """Preview a file of the owner's ratings, and add them if ``--take`` says so."""
    from hdpmf.private.device.own_items import preview_file, take_file

    found = preview_file(store, read_bytes(file, "the file of ratings"))
    taken = take_file(store, found) if take else 0
    names = ("new", "changed", "unknown", "off_scale", "repeated")
    fields = {
        **{name: getattr(found, name) for name in names},
        "service": None if found.service is None else found.service.name,
        "examples": list(found.examples),
        "taken": taken,
        "ratings": store.n_ratings,
    }
    of = ""
    if found.service is not None:
        of = f"Ratings of {found.service.name} ({found.service.scale}), converted: "
    text = [
        f"{of}{found.new} new ratings, {found.changed} that change; left out: {found.unknown} of "
        f"items that the catalogue does not have, {found.off_scale} that are not on the scale",
        *found.examples,
        f"Taken in: {taken}. Nothing was sent."
        if take
        else "Nothing was changed; --take takes them in.",
    ]
    return Result(fields, text)


def _releases(
    store: DeviceStore, item: str, done: Literal["changed", "removed", "marked"]
) -> list[dict[str, str]]:
    """Return the releases of a rating before now: nothing that is done to it undoes them."""
    from hdpmf.private.device.disclosures.history import released_words, releases

    return [
        {**_release_fields(run), "words": released_words(run.sent, done)}
        for run in releases(store, item)
    ]


def _release_fields(run: Charge) -> dict[str, str]:
    entry = run.sent
    return {
        "at": entry.at,
        "recommender": entry.recommender,
        "method": entry.method,
        "run": entry.run,
    }


def _list_ratings(store: DeviceStore) -> Result:
    from hdpmf.private.device.disclosures.history import by_rating
    from hdpmf.private.device.own_items import all_titles
    from hdpmf.private.device.store.catalogues import id_of, namespace_of

    titles = all_titles(store)
    items = []
    rows = []
    for record, runs in by_rating(store):
        item = id_of(record.item)
        title = titles.get(record.item)
        released = [
            {**_release_fields(run), "changed_afterwards": record.since >= run.number}
            for run in runs
        ]
        items.append(
            {
                "item": item,
                "item_namespace": namespace_of(record.item),
                "title": title,
                "value": record.value,
                "weight": record.weight,
                "released": released,
            }
        )
        rows.append(
            (
                item,
                f"{record.value:g}",
                f"{record.weight:.3g}",
                _last_release(record, runs),
                title or "",
            )
        )
    columns = ("item", "rating", "weight", "released", "title")
    return Result({"ratings": items}, [Table(columns, rows, numeric=("rating", "weight"))])


def _last_release(record: Record, runs: list[Charge]) -> str:
    """Return the day of a rating's last release, and whether it has changed since."""
    if not runs:
        return ""
    changed = ", changed since" if record.since >= runs[-1].number else ""
    return f"{runs[-1].sent.at[:10]}{changed}"


def _search_titles(store: DeviceStore, text: str) -> Result:
    from hdpmf.common.protocol.titles import TitleSearch
    from hdpmf.private.device.own_items import current_catalogue
    from hdpmf.private.device.store.catalogues import id_of

    items = current_catalogue(store)
    if items is None or not items.table.titles:
        raise ConfigError(
            "there are no titles to search: no catalogue is here yet (device catalogue), "
            "or it has none"
        )
    table = items.table
    matches = TitleSearch(table).find(text, len(table.ids))
    found = [(id_of(table.ids[row]), table.titles[row]) for row in matches]
    more = len(found) - _MOST_FOUND
    return Result(
        {"items": [{"item": item, "title": title} for item, title in found]},
        [Table(("item", "title"), found[:_MOST_FOUND])],
        notes=[f"{more} more; say more of the title."] if more > 0 else [],
    )


@command
def catalogue(
    target: StoreOptions,
    file: Annotated[Path, argument("Items: CSV, TSV or Parquet with item, title, ...", "FILE")],
    scale: Scale = None,
    step: Annotated[float | None, option("Between neighbouring ratings.", "S", default="1")] = None,
) -> Result:
    """Load items from a file, to search and rate before the first recommender's replace them."""
    from hdpmf.common.data import RatingScale
    from hdpmf.private.device.own_items import load_catalogue

    with target.open() as store:
        chosen = None
        if scale is not None or step is not None:
            low, high = scale or (1.0, 5.0)
            chosen = RatingScale(low, high, 1.0 if step is None else step)
        found = load_catalogue(store, file, chosen)
    used = found.known.scale
    n_items = len(found.positions)
    return Result(
        {"store": str(target.path), "items": n_items, "scale": [used.low, used.high]},
        [f"{n_items:,} items, rated {used}. To search: rate --search TEXT"],
    )


@command
def recommend(
    target: RecommenderStoreOptions,
    options: ListOptions,
    hide: Annotated[
        str | None, option("Leave this item off your list: not interested.", "ITEM")
    ] = None,
    show: Annotated[str | None, option("Show this item again.", "ITEM")] = None,
) -> Result:
    """Print the items that you would soonest choose and like, and the reasons. Nothing is sent."""
    from hdpmf.private.device import recommendations

    with target.open() as store:
        for item, hidden in ((hide, True), (show, False)):
            if item is not None:
                recommendations.hide(store, store.name_of(item), hidden)
        model = recommendations.local_model(store)
        run, method = ("", "") if model is None else (model.run, model.method)
        found = recommendations.owner_recommendations(
            store, options.number, keep_rated=options.keep_rated, only=options.only()
        )
    return options.result(
        iter([("me", found)]),
        {"method": method, "run": run},
        alone="me",
        total=1,
        notes=[
            f"From the model of run {run[:8]} ({method}) and your own ratings, on this device; "
            "nothing was sent."
        ],
    )
