"""``hdpmf device rate``: ratings and privacy weights, typed, listed, removed, or from a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hdpmf.cli.device.store import PlaceOptions, User
from hdpmf.cli.shared.grouping import grouped
from hdpmf.cli.shared.options import Columns, Duplicates, Json, Scale
from hdpmf.cli.shared.output import note, print_json, print_lines, print_paragraph, print_table
from hdpmf.errors import ConfigError

if TYPE_CHECKING:
    from hdpmf.device.ledger import Charged
    from hdpmf.device.rated import Record
    from hdpmf.device.store import DeviceStore

_MOST_FOUND = 50


@grouped
def rate(
    target: PlaceOptions,
    item: Annotated[str | None, typer.Argument(metavar="[ITEM]", help="The item's id.")] = None,
    value: Annotated[float | None, typer.Argument(metavar="[VALUE]", help="Your rating of it.")] = None,
    user: User = "me",
    weight: Annotated[
        float | None,
        typer.Option(
            "--weight",
            metavar="W",
            help="Privacy weight of ITEM, or, without ITEM, yours: above 0, at most 1, which allows all of epsilon.",
        ),
    ] = None,
    genre: Annotated[
        str | None, typer.Option("--genre", metavar="NAME", help="Give all items of this genre the --weight.")
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Take the rating of ITEM out.")] = False,
    show: Annotated[bool, typer.Option("--list", help="Print all ratings.")] = False,
    search: Annotated[
        str | None,
        typer.Option("--search", metavar="TEXT", help="Print items of the catalogue with TEXT in the title."),
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--from", metavar="FILE", help="Add all ratings of a file, for a silo's users.")
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
    ways = [typed, item is None and weight is not None, show, search is not None, file is not None, own is not None]
    if sum(ways) != 1 or (remove and value is not None):
        raise ConfigError(
            "say one thing: ITEM VALUE, ITEM --remove, ITEM --weight W, --weight W, --list, --search TEXT, "
            "--from FILE, --own FILE"
        )
    if take and own is None:
        raise ConfigError("--take goes with --own FILE")
    if genre is not None and (item is not None or weight is None):
        raise ConfigError("--genre NAME goes with --weight W, and with no ITEM")
    if file is None and (scale is not None or column or duplicates):
        raise ConfigError("--scale, --column and --duplicates describe the file of --from")
    with target.open() as store:
        from hdpmf.device.shelves import name_on

        item = None if item is None else name_on(store.shelf, item)
        if show:
            _list(store, json)
        elif search is not None:
            _search(store, search, json)
        elif own is not None:
            _own(store, own, take, json)
        else:
            if genre is not None and weight is not None:
                from hdpmf.device.dial import mark_genre

                said: dict[str, Any] = {"done": f"Weighed {mark_genre(store, genre, weight)} items"}
            elif file is not None:
                said = _bulk(store, file, scale, column, duplicates)
            else:
                said = _change(store, item, value, user, weight, remove)
            if json:
                print_json({**said, "ratings": store.n_ratings})
            else:
                print_lines(f"{said['done']}. This device has {store.n_ratings} ratings; nothing was sent.")
                for words in said.get("means", {}).get("words", ()):
                    print_paragraph(words)
                for run in said.get("released", ()):
                    print_paragraph(run["words"])


def _change(
    store: DeviceStore, item: str | None, value: float | None, user: str, weight: float | None, remove: bool
) -> dict[str, Any]:
    from hdpmf.device.rated import ME

    with store.transaction():
        if remove and item is not None:
            store.remove(item, user=user)
            return {"done": "Removed. What it has spent stays spent", "released": _released(store, user, item, True)}
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
    elif catalogue is not None and item is not None and catalogue.positions[item] in catalogue.known.retired:
        note("The catalogue has retired this item: the rating counts for your own list and is not sent any more.")
    if item is None and user == ME:
        return {"done": "Weighed", "means": _meaning(store)}
    if value is None or item is None:
        return {"done": "Weighed"}
    return {"done": "Rated", "released": _released(store, user, item, False)}


def _meaning(store: DeviceStore) -> dict[str, Any]:
    """What the owner's weight means, in numbers and in words."""
    from hdpmf.device.dial import dial
    from hdpmf.methods.words import guess_at, percent

    now = dial(store)
    alone, together = (percent(part, at_most=True) for part in (now.guess, guess_at(now.all_at_delta)))
    words = [
        f"That is {now.group}. Somebody who guesses whether you loved or hated something, and has seen all that ever "
        f"left this device, is right at most {alone} of the time instead of 50 %. About all your ratings together, "
        f"when all of their budget is spent: at most {together} (epsilon {now.all_at_delta:.3g} at delta "
        f"{now.delta:g})."
    ]
    if not now.proved:
        words.append("Your policy also allows methods without a proof: for these, the numbers are no guarantee.")
    return {"group": now.group, "guess": now.guess, "all_epsilon_at_delta": now.all_at_delta, "words": words}


def _own(store: DeviceStore, file: Path, take: bool, json: bool) -> None:
    """What a file of the owner's would bring; it is taken in only if that was said."""
    from hdpmf.cli.shared.files import read_bytes
    from hdpmf.device.own_file import preview_file, take_file

    found = preview_file(store, read_bytes(file, "the file of ratings"))
    taken = take_file(store, found) if take else 0
    if json:
        facts = {name: getattr(found, name) for name in ("new", "changed", "unknown", "off_scale", "repeated")}
        print_json({**facts, "examples": list(found.examples), "taken": taken, "ratings": store.n_ratings})
        return
    print_lines(
        f"{found.new} new ratings, {found.changed} that change; left out: {found.unknown} of items that the catalogue "
        f"does not have, {found.off_scale} that are not on the scale",
        *found.examples,
        f"Taken in: {taken}. Nothing was sent." if take else "Nothing was changed; --take takes them in.",
    )


def _released(store: DeviceStore, user: str, item: str, removed: bool) -> list[dict[str, str]]:
    """What was sent of a rating before: nobody gets it back by changing or removing it."""
    from hdpmf.device.releases import released_words, releases

    return [
        {**_release_fields(run), "words": released_words(run.sent, removed=removed)}
        for run in releases(store, user, item)
    ]


def _release_fields(run: Charged) -> dict[str, str]:
    entry = run.sent
    return {"at": entry.at, "recommender": entry.recommender, "method": entry.method, "run": entry.run}


def _bulk(
    store: DeviceStore,
    file: Path,
    scale: tuple[float, float] | None,
    columns: list[str] | None,
    duplicates: str | None,
) -> dict[str, Any]:
    from hdpmf.cli.shared.ratings import RatingsOptions
    from hdpmf.ratings import Ratings

    catalogue = store.pinned_catalogue
    if scale is None and catalogue is not None:
        scale = (catalogue.known.scale.low, catalogue.known.scale.high)
    ratings: Ratings = RatingsOptions(train=file, scale=scale, column=columns, duplicates=duplicates).load()
    store.add(ratings)
    return {"done": f"Added {len(ratings)} ratings of {len(set(ratings.user_codes.tolist()))} users", "file": str(file)}


def _list(store: DeviceStore, json: bool) -> None:
    from hdpmf.device.releases import by_rating
    from hdpmf.device.shelves import id_of, shelf_of
    from hdpmf.device.titles import all_titles

    records, titles = list(by_rating(store)), all_titles(store)
    if json:
        items = [
            {
                "user": record.user,
                "item": id_of(record.item),
                "shelf": shelf_of(record.item),
                "title": titles.get(record.item),
                "value": record.value,
                "weight": record.weight,
                "released": [
                    {**_release_fields(run), "changed_afterwards": record.since >= run.number} for run in runs
                ],
            }
            for record, runs in records
        ]
        print_json({"ratings": items})
        return
    rows = [
        (record.user, id_of(record.item), f"{record.value:g}", f"{record.weight:.3g}", _sent(record, runs),
         titles.get(record.item, ""))
        for record, runs in records
    ]  # fmt: skip
    print_table(("user", "item", "rating", "weight", "released", "title"), rows, numeric=("rating", "weight"))


def _sent(record: Record, runs: list[Charged]) -> str:
    """When a rating was released last, and whether as it is now."""
    if not runs:
        return ""
    return f"{runs[-1].sent.at[:10]}{', changed since' if record.since >= runs[-1].number else ''}"


def _search(store: DeviceStore, text: str, json: bool) -> None:
    from hdpmf.device.shelves import id_of
    from hdpmf.device.titles import shown_items
    from hdpmf.public.title_search import TitleSearch

    shown = shown_items(store)
    if shown is None or not shown.table.titles:
        raise ConfigError("there are no titles to search: no catalogue is here yet (device catalogue), or it has none")
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
