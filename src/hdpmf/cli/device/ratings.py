"""``hdpmf device rate``, ``catalogue``, ``hide`` and ``recommend``: ratings and the lists that the
device makes of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hdpmf.cli.device.store import RecommenderStoreOptions, StoreOptions, User
from hdpmf.cli.options.common import Columns, Duplicates, Json, Scale, with_option_groups
from hdpmf.cli.output import note, print_json, print_lines, print_paragraph, print_table
from hdpmf.cli.recommendations import AllUsers, RecommendationOptions, print_lists
from hdpmf.errors import ConfigError

if TYPE_CHECKING:
    from hdpmf.private.device.disclosures.ledger import Charged
    from hdpmf.private.device.store.device_store import DeviceStore
    from hdpmf.private.device.store.ratings_table import Record


_MOST_FOUND = 50


@with_option_groups
def rate(
    target: RecommenderStoreOptions,
    item: Annotated[str | None, typer.Argument(metavar="[ITEM]", help="The item's id.")] = None,
    value: Annotated[
        float | None, typer.Argument(metavar="[VALUE]", help="Your rating of it.")
    ] = None,
    user: User = "me",
    weight: Annotated[
        float | None,
        typer.Option(
            "--weight",
            metavar="W",
            help="Privacy weight of ITEM, or, without ITEM, yours: above 0, at most 1, which "
            "allows all of epsilon.",
        ),
    ] = None,
    genre: Annotated[
        str | None,
        typer.Option("--genre", metavar="NAME", help="Give all items of this genre the --weight."),
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Take the rating of ITEM out.")] = False,
    show: Annotated[bool, typer.Option("--list", help="Print all ratings.")] = False,
    search: Annotated[
        str | None,
        typer.Option(
            "--search", metavar="TEXT", help="Print items of the catalogue with TEXT in the title."
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--from", metavar="FILE", help="Add all ratings of a file, for a silo's users."
        ),
    ] = None,
    own: Annotated[
        Path | None,
        typer.Option(
            "--own",
            metavar="FILE",
            help="Look into a CSV of your own ratings, by item or title: what it would bring here.",
        ),
    ] = None,
    take: Annotated[bool, typer.Option("--take", help="Take in what --own has.")] = False,
    scale: Scale = None,
    column: Columns = None,
    duplicates: Duplicates = None,
    json: Json = False,
) -> None:
    """Add or change a rating: rate STORE ITEM VALUE. It stays on this device."""
    typed = item is not None and (value is not None or remove or weight is not None)
    ways = [
        typed,
        item is None and weight is not None,
        show,
        search is not None,
        file is not None,
        own is not None,
    ]
    if sum(ways) != 1 or (remove and value is not None):
        raise ConfigError(
            "say one thing: ITEM VALUE, ITEM --remove, ITEM --weight W, --weight W, "
            "--list, --search TEXT, "
            "--from FILE, --own FILE"
        )
    if take and own is None:
        raise ConfigError("--take goes with --own FILE")
    if genre is not None and (item is not None or weight is None):
        raise ConfigError("--genre NAME goes with --weight W, and with no ITEM")
    if file is None and (scale is not None or column or duplicates):
        raise ConfigError("--scale, --column and --duplicates describe the file of --from")
    with target.open() as store:
        from hdpmf.private.device.store.catalogues import name_in

        item = None if item is None else name_in(store.shelf, item)
        if show:
            _list(store, json)
        elif search is not None:
            _search(store, search, json)
        elif own is not None:
            _own(store, own, take, json)
        else:
            if genre is not None and weight is not None:
                from hdpmf.private.device.privacy_level import mark_genre

                said: dict[str, Any] = {"done": f"Weighed {mark_genre(store, genre, weight)} items"}
            elif file is not None:
                said = _bulk(store, file, scale, column, duplicates)
            else:
                said = _change(store, item, value, user, weight, remove)
            if json:
                print_json({**said, "ratings": store.n_ratings})
            else:
                print_lines(
                    f"{said['done']}. This device has {store.n_ratings} ratings; nothing was sent."
                )
                for words in said.get("means", {}).get("words", ()):
                    print_paragraph(words)
                for run in said.get("released", ()):
                    print_paragraph(run["words"])


def _change(
    store: DeviceStore,
    item: str | None,
    value: float | None,
    user: str,
    weight: float | None,
    remove: bool,
) -> dict[str, Any]:
    from hdpmf.private.device.store.ratings_table import ME

    with store.transaction():
        if remove and item is not None:
            store.remove(item, user=user)
            return {
                "done": "Removed. What it has spent stays spent",
                "released": _released(store, user, item, True),
            }
        if value is not None and item is not None:
            store.rate(item, value, user=user)
        if weight is not None:
            if item is None:
                store.set_weight(user=user, beta=weight)
            else:
                store.set_weight(item=item, gamma=weight)
    catalogue = store.pinned_catalogue
    if catalogue is not None and item is not None and item not in catalogue.positions:
        note("The catalogue does not have this item: the rating is kept, but not used.")
    elif (
        catalogue is not None
        and item is not None
        and catalogue.positions[item] in catalogue.known.retired
    ):
        note(
            "The catalogue has retired this item: the rating counts for your own list and "
            "is not sent any more."
        )
    if item is None and user == ME:
        return {"done": "Weighed", "means": _meaning(store)}
    if value is None or item is None:
        return {"done": "Weighed"}
    return {"done": "Rated", "released": _released(store, user, item, False)}


def _meaning(store: DeviceStore) -> dict[str, Any]:
    """What the owner's weight means, in numbers and in words."""
    from hdpmf.common.methods.descriptions import guess_at, percent
    from hdpmf.private.device.privacy_level import privacy_level

    now = privacy_level(store)
    alone, together = (
        percent(part, at_most=True) for part in (now.guess, guess_at(now.all_at_delta))
    )
    words = [
        f"That is {now.group}. Somebody who guesses whether you loved or hated "
        "something, and has seen all that ever "
        f"left this device, is right at most {alone} of the time instead of 50 %. About "
        "all your ratings together, "
        f"when all of their budget is spent: at most {together} (epsilon "
        f"{now.all_at_delta:.3g} at delta "
        f"{now.delta:g})."
    ]
    if not now.proved:
        words.append(
            "Your policy also allows methods without a proof: for these, the numbers are "
            "no guarantee."
        )
    return {
        "group": now.group,
        "guess": now.guess,
        "all_epsilon_at_delta": now.all_at_delta,
        "words": words,
    }


def _own(store: DeviceStore, file: Path, take: bool, json: bool) -> None:
    """What a file of the owner's would bring; it is taken in only if that was said."""
    from hdpmf.cli.options.common import read_bytes
    from hdpmf.private.device.own_items import preview_file, take_file

    found = preview_file(store, read_bytes(file, "the file of ratings"))
    taken = take_file(store, found) if take else 0
    if json:
        facts = {
            name: getattr(found, name)
            for name in ("new", "changed", "unknown", "off_scale", "repeated")
        }
        print_json(
            {**facts, "examples": list(found.examples), "taken": taken, "ratings": store.n_ratings}
        )
        return
    print_lines(
        f"{found.new} new ratings, {found.changed} that change; left out: "
        f"{found.unknown} of items that the catalogue "
        f"does not have, {found.off_scale} that are not on the scale",
        *found.examples,
        f"Taken in: {taken}. Nothing was sent."
        if take
        else "Nothing was changed; --take takes them in.",
    )


def _released(store: DeviceStore, user: str, item: str, removed: bool) -> list[dict[str, str]]:
    """What was sent of a rating before: nobody gets it back by changing or removing it."""
    from hdpmf.private.device.disclosures.history import released_words, releases

    return [
        {**_release_fields(run), "words": released_words(run.sent, removed=removed)}
        for run in releases(store, user, item)
    ]


def _release_fields(run: Charged) -> dict[str, str]:
    entry = run.sent
    return {
        "at": entry.at,
        "recommender": entry.recommender,
        "method": entry.method,
        "run": entry.run,
    }


def _bulk(
    store: DeviceStore,
    file: Path,
    scale: tuple[float, float] | None,
    columns: list[str] | None,
    duplicates: str | None,
) -> dict[str, Any]:
    from hdpmf.cli.options.ratings import RatingsOptions
    from hdpmf.common.data import Ratings

    catalogue = store.pinned_catalogue
    if scale is None and catalogue is not None:
        scale = (catalogue.known.scale.low, catalogue.known.scale.high)
    ratings: Ratings = RatingsOptions(
        train=file, scale=scale, column=columns, duplicates=duplicates
    ).load()
    store.add(ratings)
    return {
        "done": f"Added {len(ratings)} ratings of {len(set(ratings.user_codes.tolist()))} users",
        "file": str(file),
    }


def _list(store: DeviceStore, json: bool) -> None:
    from hdpmf.private.device.disclosures.history import by_rating
    from hdpmf.private.device.own_items import all_titles
    from hdpmf.private.device.store.catalogues import id_of, namespace_of

    records, titles = list(by_rating(store)), all_titles(store)
    if json:
        items = [
            {
                "user": record.user,
                "item": id_of(record.item),
                "shelf": namespace_of(record.item),
                "title": titles.get(record.item),
                "value": record.value,
                "weight": record.weight,
                "released": [
                    {**_release_fields(run), "changed_afterwards": record.since >= run.number}
                    for run in runs
                ],
            }
            for record, runs in records
        ]
        print_json({"ratings": items})
        return
    rows = [
        (
            record.user,
            id_of(record.item),
            f"{record.value:g}",
            f"{record.weight:.3g}",
            _sent(record, runs),
            titles.get(record.item, ""),
        )
        for record, runs in records
    ]
    print_table(
        ("user", "item", "rating", "weight", "released", "title"),
        rows,
        numeric=("rating", "weight"),
    )


def _sent(record: Record, runs: list[Charged]) -> str:
    """When a rating was released last, and whether as it is now."""
    if not runs:
        return ""
    return f"{runs[-1].sent.at[:10]}{', changed since' if record.since >= runs[-1].number else ''}"


def _search(store: DeviceStore, text: str, json: bool) -> None:
    from hdpmf.common.model.title_search import TitleSearch
    from hdpmf.private.device.own_items import shown_items
    from hdpmf.private.device.store.catalogues import id_of

    shown = shown_items(store)
    if shown is None or not shown.table.titles:
        raise ConfigError(
            "there are no titles to search: no catalogue is here yet (device catalogue), "
            "or it has none"
        )
    table = shown.table
    places = TitleSearch(table).find(text, len(table.ids))
    found = [(id_of(table.ids[place]), table.titles[place]) for place in places]
    if json:
        items = [{"item": item, "title": title} for item, title in found]
        print_json({"items": items})
        return
    print_table(("item", "title"), found[:_MOST_FOUND])
    if len(found) > _MOST_FOUND:
        note(f"{len(found) - _MOST_FOUND} more; say more of the title.")


@with_option_groups
def catalogue(
    target: StoreOptions,
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="Items: CSV, TSV or Parquet with item, title, ..."),
    ],
    scale: Scale = None,
    step: Annotated[
        float | None,
        typer.Option("--step", metavar="S", help="Between neighbouring ratings.", show_default="1"),
    ] = None,
    json: Json = False,
) -> None:
    """Load items from a file, to search and rate before the first recommender, whose own replace
    them.
    """
    from hdpmf.common.data import RatingScale
    from hdpmf.private.device.own_items import load_catalogue

    with target.open() as store:
        chosen = None
        if scale is not None or step is not None:
            low, high = scale or (1.0, 5.0)
            chosen = RatingScale(low, high, 1.0 if step is None else step)
        found = load_catalogue(store, file, chosen)
    facts = {
        "items": len(found.positions),
        "scale": [found.known.scale.low, found.known.scale.high],
    }
    if json:
        print_json({"store": str(target.path), **facts})
        return
    print_lines(
        f"{len(found.positions):,} items, rated {found.known.scale}. To search: rate --search TEXT"
    )


@with_option_groups
def hide(
    target: RecommenderStoreOptions,
    item: Annotated[str, typer.Argument(metavar="ITEM", help="The item's id.")],
    again: Annotated[bool, typer.Option("--again", help="Show it again.")] = False,
    json: Json = False,
) -> None:
    """Leave an item out of your list: not interested. Nobody hears of it."""
    from hdpmf.private.device.recommendations import hidden_items
    from hdpmf.private.device.recommendations import hide as hide_item
    from hdpmf.private.device.store.catalogues import name_in

    with target.open() as store:
        hide_item(store, name_in(store.shelf, item), not again)
        n = len(hidden_items(store))
    if json:
        print_json({"item": item, "hidden": not again, "all_hidden": n})
        return
    print_lines(
        f"{'Shown again' if again else 'Hidden'}. {n} item{'s' if n != 1 else ''} stay "
        "off your list."
    )


@with_option_groups
def recommend(
    target: RecommenderStoreOptions,
    question: RecommendationOptions,
    user: Annotated[
        list[str] | None,
        typer.Option(
            "--user", metavar="NAME", help="Whose, on a device of several users.", show_default="me"
        ),
    ] = None,
    all_users: AllUsers = False,
) -> None:
    """Print the items that you would soonest choose and like, and why. Computed here; nothing is
    sent.
    """
    if user and all_users:
        raise ConfigError("say --user or --all-users, not both")
    names = user or ["me"]
    with target.open(moved=True) as store:
        from hdpmf.private.device.recommendations import (
            hidden_ids,
            kept_model,
            recommend_each,
            without,
        )

        model, hidden = kept_model(store), hidden_ids(store)
        run, method = ("", "") if model is None else (model.run, model.method)
        print_lists(
            without(
                hidden,
                question.number,
                recommend_each(
                    store,
                    None if all_users else names,
                    question.number + len(hidden),
                    keep_rated=question.keep_rated,
                    only=question.only(),
                ),
            ),
            question,
            {"method": method, "run": run},
            alone=names[0] if len(names) == 1 and not all_users else None,
            total=store.users if all_users else len(names),
        )
    if not (question.json or question.csv):
        note(
            f"From the model of run {run[:8]} ({method}) and your own ratings, on this "
            "device; nothing was sent."
        )
