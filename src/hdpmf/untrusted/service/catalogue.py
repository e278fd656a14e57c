"""The catalogue of a service: adding and retiring items."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec

from hdpmf.common.base.files import atomic_write
from hdpmf.common.base.platform import lock_file
from hdpmf.common.data import ItemTable
from hdpmf.common.protocol import AnyCatalogue, CatalogueVersion, encode
from hdpmf.common.protocol.catalogue import catalogue_table, known_items, next_version, signed_first
from hdpmf.errors import ConfigError, ProtocolError
from hdpmf.untrusted.service.folder import ServiceFolder
from hdpmf.untrusted.service.keys import CATALOGUE, CatalogueKey


def change_items(
    folder: ServiceFolder, added: ItemTable | None, retired: Sequence[str] = ()
) -> CatalogueVersion:
    """Write down the next version of the catalogue.

    Args:
        folder: The recommender's.
        added: New items for its end.
        retired: Ids of items that are no longer recommended or asked about.

    Raises:
        ConfigError: An item is there already, unknown, or retired already; nothing is changed then.
    """
    with _alone(folder):
        now, key = _signed(folder)
        table = now.table
        places = {item: place for place, item in enumerate(table.ids)}
        unknown = [item for item in retired if item not in places]
        if unknown:
            raise ConfigError(
                f"there is no item {unknown[0]!r} in the catalogue; nothing was changed"
            )
        if len(set(retired)) < len(retired):
            raise ConfigError("an item is to be retired twice; name it once")
        more = (
            None if added is None else catalogue_table(added.index, known_items(now).scale, added)
        )
        if more is not None and not table.integer_ids:
            more = msgspec.structs.replace(
                more, integer_ids=False
            )  # numbers are texts where ids are texts
        new = next_version(now, key.sign, added=more, retired=[places[item] for item in retired])
        try:
            known_items(new)
        except ProtocolError as error:
            raise ConfigError(f"{error}; nothing was changed") from error
        atomic_write(folder.path / CATALOGUE, encode(new))
    return new


def _signed(folder: ServiceFolder) -> tuple[CatalogueVersion, CatalogueKey]:
    """The catalogue as it is, with its key. One of version 0.1.0 gets its first signature."""
    items: AnyCatalogue = folder.items
    if isinstance(items, CatalogueVersion):
        key = CatalogueKey.load(folder.path)
        if key.public != items.key:
            raise ConfigError(
                f"{folder.path} has another key than the one that signed its catalogue; restore "
                "a backup"
            )
        return items, key
    key = CatalogueKey.ensure(folder.path)
    return signed_first(items, key.sign, key.public), key


@contextmanager
def _alone(folder: ServiceFolder) -> Iterator[None]:
    """Lock the catalogue: of two versions with one number devices take the one they saw first."""
    with (folder.path / ".items").open("w") as stream:
        lock_file(stream.fileno(), wait=True)
        yield
