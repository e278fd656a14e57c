"""How a recommender's process reaches others: devices, or two servers and whoever reads its public files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hdpmf.cli.recommender.two_servers import public_files, two_servers
from hdpmf.cli.shared.output import note

if TYPE_CHECKING:
    from hdpmf.service.folder import ServiceFolder
    from hdpmf.service.lifecycle import Ways
    from hdpmf.service.settings import RunSettings
    from hdpmf.transport.flower.recommender import FlowerRecommender


@contextmanager
def open_ways(place: ServiceFolder, asked: RunSettings) -> Iterator[Ways]:
    """Those that runs with these settings need."""
    from hdpmf.service.lifecycle import Ways

    if asked.view != "two-servers":
        with transport(place, asked) as devices:
            yield Ways(devices=devices, admit=lambda card: devices.admit(card.identity, card.node))
        return
    with two_servers(place) as servers, public_files(place):
        yield Ways(servers=servers)


@contextmanager
def transport(place: ServiceFolder, asked: RunSettings) -> Iterator[FlowerRecommender]:
    """The way to devices, for replies as long as these settings ask for."""
    from hdpmf.transport.flower.recommender import FlowerRecommender

    config, enrolled = place.config, place.enrolled
    most = asked.longest_reply(len(place.catalogue.ids), enrolled.users.values())
    with FlowerRecommender(
        place.transport_folder,
        host=config.host,
        port=config.port,
        names=config.names,
        roster={card.identity: card.node for card in enrolled.cards},
        max_reply=most,
    ) as opened:
        note(f"listening on {opened.address}")
        yield opened
