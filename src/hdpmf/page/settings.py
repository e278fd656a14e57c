"""The page "Settings": the passphrase, everything as a file, forgetting, and locking."""

from __future__ import annotations

import json
from typing import Any

from hdpmf.device.everything import everything_fields
from hdpmf.errors import ConfigError
from hdpmf.page.visit import Visit
from hdpmf.ratings import RatingScale

SCALES = {
    "stars": RatingScale(1.0, 5.0, 1.0),
    "half-stars": RatingScale(0.5, 5.0, 0.5),
    "ten": RatingScale(1.0, 10.0, 1.0),
}
"""What a new store can be rated on."""


def settings_page(visit: Visit) -> dict[str, Any]:
    """What this device is."""
    with visit.owner.store() as store:
        return {
            "name_of_device": (store.get("name") or b"").decode(),
            "identity": store.identity.public.hex(),
            "encrypted": store.encrypted,
            "file": visit.owner.path.name,
            "rated": store.n_ratings,
        }


def make(visit: Visit) -> str:
    """Make a new store."""
    scale = SCALES.get(visit.text("scale"))
    first, second = visit.text("passphrase", 1000), visit.text("again", 1000)
    if scale is None or first != second:
        raise ConfigError(visit.t("settings.not_twice"))
    visit.owner.make(visit.text("name"), first or None, scale)
    visit.session.note(visit.t("welcome.made"))
    return "/rate"


def new_passphrase(visit: Visit) -> str:
    """Seal the store with another passphrase."""
    new, again = visit.text("new", 1000), visit.text("again", 1000)
    if not new or new != again:
        raise ConfigError(visit.t("settings.not_twice"))
    visit.owner.change_passphrase(visit.text("old", 1000) or None, new)
    visit.session.note(visit.t("settings.changed"))
    return "/settings"


def export_everything(visit: Visit) -> bytes:
    """Everything that the store knows about its owner, as JSON."""
    with visit.owner.store() as store:
        return json.dumps(everything_fields(store), indent=1, allow_nan=False, ensure_ascii=False).encode()


def forget(visit: Visit) -> str:
    """Take ratings, the model or everything out, for good."""
    what = visit.text("what")
    if visit.text("sure") != "yes":
        raise ConfigError(visit.t("settings.not_sure"))
    if what == "everything":
        visit.owner.destroy()
        return "/welcome"
    if what not in ("ratings", "model"):
        raise ConfigError(visit.t("settings.not_sure"))
    with visit.owner.store() as store:
        store.forget(ratings=what == "ratings", model=what == "model")
    visit.session.note(visit.t(f"settings.forgot.{what}"))
    return "/settings"
