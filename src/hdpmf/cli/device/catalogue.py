"""``hdpmf device catalogue``: items with titles before the first recommender, and items that the owner hides."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hdpmf.cli.device.store import PlaceOptions, StoreOptions
from hdpmf.cli.shared.grouping import grouped
from hdpmf.cli.shared.options import Json, Scale
from hdpmf.cli.shared.output import print_json, print_lines


@grouped
def catalogue(
    target: StoreOptions,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Items: CSV, TSV or Parquet with item, title, ...")],
    scale: Scale = None,
    step: Annotated[
        float | None, typer.Option("--step", metavar="S", help="Between neighbouring ratings.", show_default="1")
    ] = None,
    json: Json = False,
) -> None:
    """Load items from a file, to search and rate before the first recommender, whose own replace them."""
    from hdpmf.device.titles import load_catalogue
    from hdpmf.ratings import RatingScale

    with target.open() as store:
        chosen = None
        if scale is not None or step is not None:
            low, high = scale or (1.0, 5.0)
            chosen = RatingScale(low, high, 1.0 if step is None else step)
        found = load_catalogue(store, file, chosen)
    facts = {"items": len(found.positions), "scale": [found.known.scale.low, found.known.scale.high]}
    if json:
        print_json({"store": str(target.path), **facts})
        return
    print_lines(f"{len(found.positions):,} items, rated {found.known.scale}. To search: rate --search TEXT")


@grouped
def hide(
    target: PlaceOptions,
    item: Annotated[str, typer.Argument(metavar="ITEM", help="The item's id.")],
    again: Annotated[bool, typer.Option("--again", help="Show it again.")] = False,
    json: Json = False,
) -> None:
    """Leave an item out of your list: not interested. Nobody hears of it."""
    from hdpmf.device.for_you import hidden_items
    from hdpmf.device.for_you import hide as hide_item
    from hdpmf.device.shelves import name_on

    with target.open() as store:
        hide_item(store, name_on(store.shelf, item), not again)
        n = len(hidden_items(store))
    if json:
        print_json({"item": item, "hidden": not again, "all_hidden": n})
        return
    print_lines(f"{'Shown again' if again else 'Hidden'}. {n} item{'s' if n != 1 else ''} stay off your list.")
