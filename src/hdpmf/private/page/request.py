"""A request of the owner's browser, and fields that several views show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from zlib import crc32

from hdpmf.common.protocol import CatalogueTable
from hdpmf.common.protocol.identity import Invitation
from hdpmf.common.protocol.servers import HTTPS
from hdpmf.common.protocol.titles import upright
from hdpmf.common.web.local_server import BrowserSession
from hdpmf.common.web.templates import Wording
from hdpmf.errors import ConfigError
from hdpmf.private.device.memberships import known_recommenders, looks_like_another, with_catalogue
from hdpmf.private.device.own_items import current_catalogue
from hdpmf.private.device.store.catalogues import PinnedCatalogue, id_of
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.private.device.store.schema import FIRST
from hdpmf.private.page.owner import Owner

START = "/start"
"""The page with the first steps."""


_RECOMMENDER = "recommender_id"
HUES = 12
"""Colours of drawn covers."""

MOST_LEVELS = 11
"""Up to so many values a scale is shown as stars; above it, as a number."""


@dataclass(frozen=True, slots=True, repr=False)
class PageRequest:
    """A request of the owner's browser, with its fields or its file. PRIVATE."""

    owner: Owner
    session: BrowserSession
    t: Wording
    fields: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    @contextmanager
    def store(self) -> Iterator[DeviceStore]:
        """Lock the store of the recommender that the page shows, and of no other."""
        with self.owner.store() as store:
            known = [view.recommender_id for _, view in with_catalogue(store)] or [FIRST]
            if self.text(_RECOMMENDER) and self.recommender_id not in known:
                raise ConfigError(self.t("choose.gone"))
            yield store.at(self.recommender_id if self.recommender_id in known else known[0])

    @property
    def recommender_id(self) -> int:
        """The recommender of this page or else of the last one; 0 if none was chosen."""
        given = self.text(_RECOMMENDER) or str(self.session.state.get(_RECOMMENDER, ""))
        return int(given) if given.isdecimal() and len(given) < 6 else 0

    def choose(self, recommender_id: int) -> None:
        """Show this recommender's items from now on."""
        self.session.state[_RECOMMENDER] = recommender_id

    def back_to(self, *paths: str) -> str:
        """Return the page that the form was on, one of these; else the first."""
        back = self.text("back")
        return back if back in paths else paths[0]

    def text(self, name: str, most: int = 300) -> str:
        """Return a field as text."""
        value = self.fields.get(name, "")
        if len(value) > most or "\0" in value:
            raise ConfigError(f"{name} is longer than {most} characters")
        return value

    def number(self, name: str) -> float:
        """Return a field as a number."""
        try:
            return float(self.text(name))
        except ValueError:
            raise ConfigError(f"{name} must be a number") from None


def item_fields(
    table: CatalogueTable,
    positions: Sequence[int],
    values: Mapping[str, float],
    weights: Mapping[str, float],
) -> list[dict[str, Any]]:
    """Return items with the owner's ratings, for templates."""
    found = []
    for position in positions:
        item = table.ids[position]
        title = upright(table.titles[position].strip()) if table.titles else ""
        year = table.years[position] if table.years else None
        found.append(
            {
                "item": item,
                "title": title or id_of(item),
                "year": "" if year is None or str(year) in title else str(year),
                "genres": ", ".join(table.genres[position]) if table.genres else "",
                "value": values.get(item),
                "private": weights.get(item, 1.0) < 1,
                "hue": crc32(item.encode()) % HUES,
            }
        )
    return found


def choices(store: DeviceStore) -> list[dict[str, Any]]:
    """Return the recommenders to choose from; empty if there is at most one."""
    known = with_catalogue(store)
    return [
        {
            "recommender_id": view.recommender_id,
            "name": each.name or short(each.address),
            "left": each.left,
            "chosen": view.recommender_id == store.recommender_id,
        }
        for each, view in (known if len(known) > 1 else ())
    ]


def local_time(t: Wording, at: str | float) -> str:
    """Return a moment (ISO 8601 or Unix) as the clock on this machine's wall has it."""
    moment = datetime.fromisoformat(at) if isinstance(at, str) else datetime.fromtimestamp(at, UTC)
    local, now = moment.astimezone(), datetime.now().astimezone()
    days = (now.date() - local.date()).days
    if days in (-1, 0, 1):
        day = {-1: "tomorrow", 0: "today", 1: "yesterday"}[days]
        return t(f"app.{day}", time=f"{local:%H:%M}")
    return f"{local:%Y-%m-%d %H:%M}"


def ago(t: Wording, at: float, now: float) -> str:
    """Return how long ago a moment (Unix) was."""
    seconds = max(now - at, 0.0)
    if seconds < 60:
        return t("app.just_now")
    if seconds < 3600:
        return t.count("app.minutes_ago", int(seconds // 60))
    return local_time(t, at)


def short(address: str) -> str:
    """Return a recommender's address without its scheme."""
    return address.removeprefix(HTTPS)


def invited_fields(request: PageRequest, store: DeviceStore) -> dict[str, Any]:
    """Return the invitation under review; ``alike`` if it has the name of another recommender."""
    invited = request.session.state.get("invitation")
    alike = isinstance(invited, Invitation) and looks_like_another(
        store, invited.name, invited.address
    )
    return {"invited": invited, "alike": alike}


def name_of(store: DeviceStore, address: str) -> str:
    """Return what a recommender calls itself; its address if it was joined without a name."""
    known = (each.name for each in known_recommenders(store) if each.address == address)
    return next(known, "") or short(address)


def levels(shown: PinnedCatalogue) -> list[float]:
    """Return the values of a scale, if they are few enough for stars."""
    scale = shown.known.scale
    step = scale.step or 1.0
    n = round(scale.width / step) + 1
    return [scale.low + step * number for number in range(n)] if n <= MOST_LEVELS else []


def star_fields(shown: PinnedCatalogue) -> dict[str, Any]:
    """Return the scale of a catalogue, for templates."""
    scale = shown.known.scale
    return {"levels": levels(shown), "low": scale.low, "high": scale.high, "step": scale.step}


def page_of(request: PageRequest, most: int) -> int:
    """Return the number of entries that the browser has already; at most ``most``."""
    given = request.text("offset", 6)
    return min(int(given), most) if given.isdecimal() else 0


def shown_item(request: PageRequest, store: DeviceStore) -> str:
    """Return the item that the request names."""
    shown = current_catalogue(store)
    item = request.text("item")
    if shown is None or item not in shown.positions:
        raise ConfigError(request.t("rate.unknown"))
    return item
