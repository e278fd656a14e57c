"""``hdpmf device share``: what a recommender may see of your ratings, and what it has seen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from hdpmf.cli.device.store import RecommenderStoreOptions, User
from hdpmf.cli.options.common import Yes, argument, command, option
from hdpmf.cli.output import Block, Paragraph, Result, confirm, note
from hdpmf.errors import ConfigError

if TYPE_CHECKING:
    from hdpmf.private.device.choices.sharing import Choice, ChoicePreview
    from hdpmf.private.device.store.device_store import DeviceStore

_MEANING = {
    "hidden": "It sees neither what you rated nor how: your ratings enter sums over many people.",
    "seen": "It sees which items you rated, under this device's identity. How you rated them is "
    "hidden by noise, as your weight and epsilon say.",
    "open": "It gets your ratings as they are, under this device's identity. Nothing protects "
    "them.",
}


@command
def share(
    target: RecommenderStoreOptions,
    level: Annotated[str | None, argument("hidden, seen or open.", "[LEVEL]")] = None,
    user: User = "me",
    item: Annotated[
        str | None, option("Show no more than LEVEL of this item, to anybody.", "ITEM")
    ] = None,
    genre: Annotated[
        str | None,
        option("Show no more than LEVEL of this genre's items, to anybody, now and later.", "NAME"),
    ] = None,
    yes: Yes = False,
) -> Result:
    """Say what a recommender may see of your ratings, or print it. By default all is hidden."""
    from hdpmf.private.device.choices.sharing import choose, preview_choice

    if item is not None and genre is not None:
        raise ConfigError("give --item or --genre, not both")
    if level is None and (item is not None or genre is not None):
        raise ConfigError("LEVEL is missing: hidden, seen or open")
    with target.open() as store:
        if level is not None:
            choice = _choice(store, level, user, item, genre)
            preview = preview_choice(store, choice, user)
            if preview.raises:
                for words in _warnings(store, preview):
                    note(words)
                confirm(
                    f"Show so much to {_whom(store)}?",
                    yes=yes,
                    otherwise="what is shown cannot be taken back: confirm with --yes",
                )
            choose(store, choice)
        fields = {"store": str(target.path), **sharing_fields(store, user)}
    return Result(fields, _lines(fields, changed=level is not None))


def _choice(
    store: DeviceStore, level: str, user: str, item: str | None, genre: str | None
) -> Choice:
    from hdpmf.common.privacy.levels import LEVELS
    from hdpmf.private.device.choices.sharing import Choice

    known = next((each for each in LEVELS if each == level), None)
    if known is None:
        raise ConfigError(f"a level is one of {', '.join(LEVELS)}")
    if item is not None:
        return Choice("item", store.name_of(item), known)
    return Choice("user", user, known) if genre is None else Choice("genre", genre, known)


def sharing_fields(store: DeviceStore, user: str = "me") -> dict[str, Any]:
    """Return what a recommender may see, and what it has seen, for JSON."""
    from hdpmf.common.protocol.layout import SHARING_METHOD
    from hdpmf.private.device.choices.sharing import was_shown, would_show
    from hdpmf.private.device.store.catalogues import id_of, namespace_of

    rows = store.sharing.rows()
    address = store.recommender.address or None
    return {
        "recommender": address,
        "level": store.sharing_level(user),
        "ratings": would_show(store, user).counts(),
        "policy_allows": SHARING_METHOD in store.policy.methods,
        "items": [
            {"item": id_of(row.name), "item_namespace": namespace_of(row.name), "level": row.level}
            for row in rows
            if row.kind == "item"
        ],
        "genres": [{"genre": row.name, "level": row.level} for row in rows if row.kind == "genre"],
        "shown": None if address is None else was_shown(store, address),
    }


def _warnings(store: DeviceStore, preview: ChoicePreview) -> list[str]:
    from hdpmf.common.privacy.accounting.costs import rounded_up

    then = preview.then
    over = (
        []
        if preview.beyond <= 0
        else [
            "What you show may use up to half of max_total, separately, so that nobody can see how "
            "much the hidden ratings have used. The hidden ones have already used more than the "
            f"other half: the total may exceed max_total ({store.policy.own_total:g}) by "
            f"{rounded_up(preview.beyond)}."
        ]
    )
    return [
        f"From the next run on, {_whom(store)} would see that you rated {len(then.seen)} items, "
        f"but not how you rated them, and would get {len(then.open)} ratings as they are. "
        f"{len(then.hidden)} stay hidden. Anything you rate later is treated the same way. "
        f"Nothing changes for {len(then.answered)} that were part of an earlier run.",
        "Nothing that was sent can be taken back. Others can also see that you share. If your "
        "policy does not yet allow runs in which people share (hdp-share), this choice allows "
        "them.",
        "Sensitive items stay hidden, but similar items can give them away: someone who sees that "
        "you rated four films of a series can guess the fifth.",
        *over,
    ]


def _whom(store: DeviceStore) -> str:
    return store.recommender.address or "every recommender you let see something"


def _lines(fields: dict[str, Any], *, changed: bool) -> list[Block]:
    counts = fields["ratings"]
    whom = fields["recommender"] or "A recommender"
    text: list[Block] = [
        Paragraph(f"{whom} may see: {fields['level']}. {_MEANING[fields['level']]}"),
        Paragraph(
            f"In its next run of hdp-share, {counts['hidden']} of your ratings of its items are "
            f"hidden, {counts['seen']} seen and {counts['open']} open. {counts['answered']} were "
            "part of an earlier run: no choice reveals more of these."
        ),
    ]
    text += [f"Item {row['item']}: {row['level']} at most" for row in fields["items"]]
    text += [
        f"Genre {row['genre'] or '(items without one)'}: {row['level']} at most"
        for row in fields["genres"]
    ]
    if not fields["policy_allows"]:
        text.append(
            Paragraph(
                "Your policy does not allow hdp-share (methods = ...), so this device refuses such "
                "runs. To allow them: hdpmf device policy STORE --set FILE"
            )
        )
    shown = fields["shown"]
    if shown is not None and any(shown.values()):
        text.append(
            Paragraph(
                f"So far, it has seen that {shown['seen']} ratings exist and has received "
                f"{shown['open']} ratings as they are (hdpmf device ledger)."
                + (" No choice undoes that." if changed else "")
            )
        )
    return text
