"""Joining and leaving recommenders, and rating what they publish: what the owner's commands do."""

import csv
import io
import re
from collections.abc import Iterator
from typing import NamedTuple

from hdpmf.common.protocol.identity import Invitation
from hdpmf.common.protocol.servers import plain_address, require_two_hosts
from hdpmf.errors import ConfigError, RatingsError
from hdpmf.private.device.ledger import WHOLE
from hdpmf.private.device.public import items_of
from hdpmf.private.device.state import Joined, Rated, State, changed

_ITEM = ("item", "itemid", "movieid", "id")
_RATING = ("rating", "value", "stars")
_WEIGHT = ("weight",)


def join(
    state: State, invitation: Invitation, *, proof: str = "", same_host: bool = False
) -> State:
    """Return the state with a recommender joined, and its servers pinned.

    A recommender may have another certificate than before, but no other servers.

    Args:
        proof: The secret of an invitation, or a token of a login.
        same_host: Both servers may be on one machine: in trials, where they protect from nobody.

    Raises:
        ConfigError: Something else is pinned of it and it was not left, or its servers are on one
            host.
    """
    require_two_hosts(invitation.servers, same_host=same_host)
    invitation = changed(invitation, address=plain_address(invitation.address))
    known = next((each for each in state.joined if each.address == invitation.address), None)
    if known is None:
        return state.with_joined(Joined(invitation=invitation, proof=proof))
    if known.invitation.servers != invitation.servers:
        if not known.left:
            raise ConfigError(
                f"other servers are pinned of {invitation.address}; if its "
                "operator told you, in another way, that they have changed, leave it (--leave), "
                "and join it again"
            )
        known = changed(known, keys=(b"", b""), keys_digest="", collector=None)
    if proof and not known.enrolled:
        known = changed(known, proof=proof, enrol_at=0)
    return state.with_joined(changed(known, invitation=invitation, left=False))


def leave(state: State, address: str) -> State:
    """Return the state with a recommender left: nothing is read of it or sent any more."""
    return state.with_joined(changed(state.of(plain_address(address)), left=True, answer=None))


def rate(
    state: State, joined: Joined, item: str, value: float | None, weight: float | None, now: int
) -> State:
    """Return the state with a rating, or with another weight of one.

    Args:
        value: None: as it was.
        weight: How much of the wish it may use, from 0 (never sent) to 1; None: as it was, or 1.

    Raises:
        ConfigError: The item is not in the catalogue, or was not rated.
        RatingsError: The value is not on the scale.
    """
    items = items_of(state, joined)
    if item not in items.positions:
        raise ConfigError(f"the catalogue has no item {item[:100]!r}; find it by --search TEXT")
    before = state.ratings_of(joined.address).get(item)
    if value is None:
        if before is None:
            raise ConfigError(f"{item[:100]!r} is not rated yet: rate STORE ITEM VALUE")
        value, now = before.value, before.at
    scale = items.known.scale
    if not scale.low <= value <= scale.high:
        raise RatingsError(f"a rating is on the scale {scale}")
    kept = WHOLE if before is None else before.weight
    thousandths = kept if weight is None else in_thousandths(weight)
    return state.with_rating(joined.address, item, Rated(value, thousandths, now))


def in_thousandths(weight: float) -> int:
    """Return a weight or a wish as the ledger counts it, rounded down."""
    if not 0 <= weight <= 1:
        raise ConfigError(f"a weight is from 0 (never sent) to 1, not {weight:g}")
    return int(weight * WHOLE + 1e-9)


class Taken(NamedTuple):
    """What came of a file of ratings.

    Attributes:
        unknown: Rows of items that the catalogue does not have.
        off_scale: Rows whose rating is not on the scale.
    """

    state: State
    rated: int
    unknown: int
    off_scale: int


def rate_file(state: State, joined: Joined, data: bytes, now: int) -> Taken:
    """Take the ratings of a CSV or TSV file, by item's id; a column ``weight`` may be there.

    Raises:
        RatingsError: It is no such file.
    """
    items, rated, unknown, off_scale = items_of(state, joined), 0, 0, 0
    own = dict(state.ratings_of(joined.address))
    scale = items.known.scale
    for number, (item, value, weight) in enumerate(_rows(data), start=2):
        try:
            stars, share = float(value), in_thousandths(float(weight or 1))
        except (ValueError, ConfigError):
            raise RatingsError(f"line {number}: its rating or its weight cannot be") from None
        if item not in items.positions:
            unknown += 1
        elif not scale.low <= stars <= scale.high:
            off_scale += 1
        else:
            own[item] = Rated(stars, share, now)
            rated += 1
    made = changed(state, ratings={**state.ratings, joined.address: own})
    return Taken(made, rated, unknown, off_scale)


def _rows(data: bytes) -> Iterator[tuple[str, str, str]]:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise RatingsError("the file is not text in UTF-8; save it as CSV (UTF-8)") from None
    first = text.partition("\n")[0]
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=max(",\t;", key=first.count))
    try:
        names = [re.sub(r"[^a-z]", "", name.lower()) for name in next(reader, [])]
        item, rating, weight = (
            next((names.index(name) for name in wanted if name in names), -1)
            for wanted in (_ITEM, _RATING, _WEIGHT)
        )
        if item < 0 or rating < 0:
            raise RatingsError("the first line must name the columns item and rating")
        for row in reader:
            if len(row) > max(item, rating):
                share = row[weight].strip() if 0 <= weight < len(row) else ""
                yield row[item].strip(), row[rating].strip(), share
    except csv.Error as error:
        raise RatingsError(f"the file is no CSV: {error}") from None
