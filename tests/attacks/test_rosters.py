"""A recommender that makes the roster: one real organisation, and fifteen that it invented, or a
roster for each of them.

Masks hide an organisation among those on its roster that are real. Which ones are, people find out:
they know each other, and compare one digest.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from hdpmf.cli.device.join import PinOptions, pin
from hdpmf.common.aggregation.masks import DeviceIdentity
from hdpmf.common.base.names import plain_name
from hdpmf.common.net.certificates import ensure_certificates
from hdpmf.common.protocol import DeviceCard
from hdpmf.common.protocol.enrolment import Enrolled
from hdpmf.errors import ConfigError
from hdpmf.private.device.device_identity import card_of, new_device
from hdpmf.private.device.pinned_servers import preview_roster
from hdpmf.private.device.store.device_store import DeviceStore

WHERE = "https://films.example:9443"


def card(name: str, users: int = 1) -> DeviceCard:
    return DeviceCard(name=name, identity=DeviceIdentity.generate().public.hex(), users=users)


@pytest.fixture
def museum(tmp_path: Path) -> DeviceStore:
    return new_device(tmp_path / "museum.sqlite", name="Museum")


@pytest.fixture
def library(tmp_path: Path) -> DeviceStore:
    return new_device(tmp_path / "library.sqlite", name="Library")


def pinned(store: DeviceStore, roster: Enrolled, folder: Path, digest: str | None) -> str:
    file = folder / "roster.json"
    file.write_bytes(roster.to_json())
    authority = ensure_certificates(folder / "tls", ["films.example"]).authority
    pin(store, PinOptions(WHERE, ca=authority, roster=file, roster_digest=digest))
    return store.recommender.roster_digest


@pytest.mark.parametrize(
    "name",
    [
        "museum",
        "Museum ",
        "Mu\N{CYRILLIC SMALL LETTER DZE}eum",
        "\N{CYRILLIC CAPITAL LETTER EM}useum",
        "\N{GREEK CAPITAL LETTER MU}useum",
        "\N{FULLWIDTH LATIN CAPITAL LETTER M}useum",
    ],
)
def test_an_organisation_is_not_on_a_roster_twice(museum: DeviceStore, name: str) -> None:
    with pytest.raises(ConfigError, match=r"look the same|the same name"):
        Enrolled([card_of(museum), card(name), card("Library")])


def test_a_key_is_not_on_a_roster_twice(museum: DeviceStore) -> None:
    again = DeviceCard(name="Library", identity=card_of(museum).identity)
    with pytest.raises(ConfigError, match="same identity"):
        Enrolled([card_of(museum), again, card("Archive")])


def test_names_that_differ_stay_different() -> None:
    names = ["Museum", "Museum 2", "Museum of Art", "Art Museum", "Müseum", "Музей", "Μουσείο"]
    assert len({plain_name(name) for name in names}) == len(names)
    assert len({plain_name(f"device-{number}") for number in range(1000)}) == 1000


def test_fifteen_that_nobody_knows_are_not_pinned_without_a_call(
    museum: DeviceStore, tmp_path: Path
) -> None:
    roster = Enrolled([card_of(museum), *(card(f"Institute {n}") for n in range(15))])
    with pytest.raises(ConfigError, match="--roster-digest"):
        pinned(museum, roster, tmp_path, None)
    assert museum.roster is None


def test_two_rosters_have_two_digests(
    museum: DeviceStore, library: DeviceStore, tmp_path: Path
) -> None:
    """Each organisation gets a roster on which the other one's name has a key of the recommender's:
    both see the same names.
    """
    rest = [card(f"Institute {n}") for n in range(3)]
    to_museum = Enrolled([card_of(museum), card("Library"), *rest])
    to_library = Enrolled([card("Museum"), card_of(library), *rest])
    read_out = preview_roster(library, to_library.to_json()).digest
    with pytest.raises(ConfigError, match="somebody was given another roster"):
        pinned(museum, to_museum, tmp_path, read_out)
    assert museum.roster is None
    honest = Enrolled([card_of(museum), card_of(library), *rest])
    read_out = preview_roster(library, honest.to_json()).digest
    assert pinned(museum, honest, tmp_path, f" {read_out.upper()} ") == honest.digest


def test_names_are_in_the_digest_and_the_own_one_is_checked(
    museum: DeviceStore, library: DeviceStore
) -> None:
    """Otherwise the recommender could call a key of its own "Library" on one roster and the
    library's "Institute 9", with the same digest.
    """
    keys = [card_of(museum), card_of(library), card("Archive")]
    honest = Enrolled(keys)
    renamed = Enrolled(
        [
            keys[0],
            DeviceCard(name="Archive", identity=keys[1].identity),
            DeviceCard(name="Library", identity=keys[2].identity),
        ]
    )
    assert honest.digest != renamed.digest
    assert preview_roster(museum, renamed.to_json()).digest == renamed.digest
    with pytest.raises(ConfigError, match="the roster calls this device 'Archive'"):
        preview_roster(library, renamed.to_json())
