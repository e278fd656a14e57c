"""``hdpmf recommend``: lists by a saved model; the options and the format of all lists."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from hdpmf.cli.options import (
    ModelFolder,
    argument,
    command,
    option,
    read_text,
)
from hdpmf.cli.output import Block, Result, Table, claim_fields, privacy_line, wants_json
from hdpmf.common.base.progress import progress_bar
from hdpmf.errors import ConfigError, UnknownIdError

if TYPE_CHECKING:
    from hdpmf.common.data import Id, IdIndex, ItemFilter
    from hdpmf.private.client.ranking import Recommendation


@dataclass(frozen=True)
class ListOptions:
    """Length, filters and format of lists."""

    number: Annotated[int, option("How many items.", "N", "-n", "--number")] = 10
    keep_rated: Annotated[bool, option("Rated items may be in a list, too.")] = False
    genre: Annotated[list[str] | None, option("Only items of this genre; repeatable.", "NAME")] = (
        None
    )
    audience: Annotated[
        list[str] | None,
        option("Only items known to be suitable for this audience; repeatable.", "NAME"),
    ] = None
    items: Annotated[Path | None, option("Only items of this file, an id per line.", "FILE")] = None

    def only(self, parse: Callable[[str], Id] = str) -> ItemFilter:
        """Return the filter that the options describe; ``parse`` makes an id of its text."""
        from hdpmf.common.data import ItemFilter

        return ItemFilter(
            genres=self.genre or (),
            audience=self.audience or (),
            items=None if self.items is None else [parse(text) for text in read_ids(self.items)],
        )

    def result(
        self,
        lists: Iterable[tuple[Id, Sequence[Recommendation]]],
        fields: Mapping[str, Any],
        *,
        alone: str | None,
        total: int,
        end: str = "",
        notes: Sequence[str] = (),
    ) -> Result:
        """Return lists in the format that was asked for.

        ``alone`` is the user, if one was named, and ``total`` how many there are.
        """

        def text() -> Iterator[Block]:
            for user, found in lists:
                yield list_table(found, None if alone is not None else f"For {user}:")
                if alone is None:
                    yield ""
            if end:
                yield end

        def document() -> dict[str, Any]:
            if alone is not None:
                return {"user": alone, "items": item_fields(next(iter(lists))[1]), **fields}
            with progress_bar("recommending", total) as advance:
                everyone = []
                for done, (user, found) in enumerate(lists, start=1):
                    everyone.append({"user": user, "items": item_fields(found)})
                    advance(done, total)
            return {"lists": everyone, **fields}

        return Result(document, text(), notes=() if wants_json() else notes)


def read_ids(path: Path) -> list[str]:
    """Return the ids in a file, one on each line."""
    found = [line.strip() for line in read_text(path).splitlines() if line.strip()]
    if not found:
        raise ConfigError(f"there is no id in {path}; it should have one on each line")
    return found


def item_fields(recommended: Iterable[Recommendation]) -> list[dict[str, Any]]:
    """Return recommended items for JSON."""
    return [
        {
            "item": entry.item,
            "title": entry.title,
            "year": entry.year,
            "genres": list(entry.genres),
            "score": entry.score,
            "rank_score": entry.rank_score,
            "reason": entry.reason,
        }
        for entry in recommended
    ]


def list_table(recommended: Sequence[Recommendation], title: str | None = None) -> Table:
    """Return recommended items as a table, the best first; empty columns are left out."""
    columns = {
        "rank": [str(rank) for rank in range(1, len(recommended) + 1)],
        "item": [str(entry.item) for entry in recommended],
        "expected": ["" if each.score is None else f"{each.score:.2f}" for each in recommended],
        "title": [entry.title or "" for entry in recommended],
        "year": [_year_apart(entry) for entry in recommended],
        "genres": [", ".join(entry.genres) for entry in recommended],
        "why": [entry.reason or "" for entry in recommended],
    }
    names = [name for name, cells in columns.items() if name in ("rank", "item") or any(cells)]
    rows = list(zip(*(columns[name] for name in names), strict=True))
    return Table(names, rows, numeric=("rank", "expected", "year"), title=title)


def _year_apart(entry: Recommendation) -> str:
    """Return the year, unless the title has it."""
    has_it = entry.year is None or str(entry.year) in (entry.title or "")
    return "" if has_it else str(entry.year)


@command
def recommend(
    folder: ModelFolder,
    options: ListOptions,
    users: Annotated[
        list[str] | None, argument("Ids of users, as in the ratings.", "[USER]...")
    ] = None,
    users_file: Annotated[
        Path | None, option("The users of this file, an id per line.", "FILE", "--users")
    ] = None,
    all_users: Annotated[bool, option("A list for everybody.", None, "--all-users")] = False,
) -> Result:
    """Print the items that each USER would soonest choose and like, and the reasons."""
    from hdpmf.models import load_model

    if bool(users) + (users_file is not None) + all_users != 1:
        raise ConfigError("name the users: USER..., --users FILE or --all-users")
    model = load_model(folder)
    known = model.devices_.users
    if all_users:
        ids = known.ids.tolist()
    else:
        texts = users or (read_ids(users_file) if users_file is not None else [])
        ids = [_known_user(known, text) for text in texts]
    only = options.only(model.catalogue_.items.parse)
    return options.result(
        model.recommend_each(ids, options.number, keep_rated=options.keep_rated, only=only),
        {"model": type(model).__name__, **claim_fields(model.privacy)},
        alone=users[0] if users and len(users) == 1 else None,
        total=len(ids),
        end=privacy_line(model.privacy, "statement", folder),
    )


def _known_user(known: IdIndex, text: str) -> Id:
    try:
        return known.parse(text)
    except UnknownIdError as error:
        raise UnknownIdError(
            f"no such user in the model: {error}; model.fold_in(ratings) takes new users in"
        ) from error
