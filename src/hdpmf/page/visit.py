"""What a view gets to see of a request, and what several views show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hdpmf.device.public import PinnedCatalogue
from hdpmf.errors import ConfigError
from hdpmf.page.owner import Owner
from hdpmf.protocol import CatalogueTable
from hdpmf.web.sessions import BrowserSession
from hdpmf.web.wording import Wording

MOST_LEVELS = 11
"""Up to so many values a scale is shown as stars; above it, as a number."""


@dataclass(frozen=True, slots=True, repr=False)
class Visit:
    """A request of the owner's browser. PRIVATE.

    Attributes:
        owner: Whose store it is.
        session: The browser's.
        t: The page's sentences.
        fields: What was sent with it.
        body: The file that was sent with it.
    """

    owner: Owner
    session: BrowserSession
    t: Wording
    fields: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    def text(self, name: str, most: int = 300) -> str:
        """A field as text."""
        value = self.fields.get(name, "")
        if len(value) > most or "\0" in value:
            raise ConfigError(f"{name} is longer than {most} characters")
        return value

    def number(self, name: str) -> float:
        """A field as a number."""
        try:
            return float(self.text(name))
        except ValueError:
            raise ConfigError(f"{name} must be a number") from None


def item_fields(
    table: CatalogueTable, positions: Sequence[int], values: Mapping[str, float], weights: Mapping[str, float]
) -> list[dict[str, Any]]:
    """Items with the owner's ratings, as pages show them."""
    found = []
    for place in positions:
        item = table.ids[place]
        title = table.titles[place] if table.titles else ""
        year = table.years[place] if table.years else None
        found.append(
            {
                "item": item,
                "title": title or item,
                "year": "" if year is None or str(year) in title else str(year),
                "genres": ", ".join(table.genres[place]) if table.genres else "",
                "value": values.get(item),
                "private": weights.get(item, 1.0) < 1,
            }
        )
    return found


def levels(shown: PinnedCatalogue) -> list[float]:
    """The values of a scale, if they are few enough for stars; else none."""
    scale = shown.known.scale
    step = scale.step or 1.0
    n = round(scale.width / step) + 1
    return [scale.low + step * place for place in range(n)] if n <= MOST_LEVELS else []
