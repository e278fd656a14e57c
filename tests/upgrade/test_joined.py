"""Two recommenders that version 0.2.0 had side by side: each gets its place, and nothing pays or
answers twice.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from old_versions import passphrase, said_before, unpack

from hdpmf.common.protocol.servers import Servers
from hdpmf.errors import StorageError
from hdpmf.private.device import old_joined
from hdpmf.private.device.consent import consents
from hdpmf.private.device.disclosures.data_export import data_export
from hdpmf.private.device.errors import DeclinedError
from hdpmf.private.device.joined import at_recommender, ever_joined, joined
from hdpmf.private.device.pinned_servers import pinned_servers, trusted
from hdpmf.private.device.recommendations import for_you, kept_model
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.untrusted.service.folder import ServiceFolder

SHOP, CLUB = "https://localhost:29443", "https://127.0.0.1:29444"
FOLDERS = {SHOP: "recommender", CLUB: "other"}
ANAS = [("", "ana"), ("killed", "ana")]
BENS = [pytest.param("killed", "ben", marks=pytest.mark.slow)]  # a passphrase takes its time
EACH = [*ANAS, *BENS, ("", "school"), ("killed", "school")]


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return unpack("0.2.0", tmp_path / "old")


def opened(folder: Path, device: str) -> DeviceStore:
    return DeviceStore.open(folder / f"{device}.sqlite", passphrase=passphrase(device))


def test_version_0_2_0_does_not_open_what_came_forward(old: Path) -> None:
    """It would answer recommenders that were left since, and know one catalogue only: it refuses
    a newer schema.
    """

    def schema() -> int:
        connection = sqlite3.connect(old / "ana.sqlite")
        try:
            return int(connection.execute("PRAGMA user_version").fetchone()[0])
        finally:
            connection.close()

    assert schema() == 2
    opened(old, "ana").close()
    assert schema() == 3


@pytest.mark.parametrize(("place", "device"), EACH)
def test_each_has_its_place_with_its_pins_and_the_items(old: Path, place: str, device: str) -> None:
    folder, before = old / place, said_before(old / place)[device]
    servers = Servers.from_json((old / "leader" / "servers.json").read_bytes())
    with opened(folder, device) as store:
        known = {each.address: each for each in joined(store)}
        told = [
            (each["address"], each["since"], each["paused"])
            for each in before["recommenders"]["recommenders"]
        ]
        assert sorted((each.address, each.since, each.paused) for each in known.values()) == sorted(
            told
        )
        assert sorted(each.place for each in known.values()) == [1, 2] == list(store.places)
        for address, name in FOLDERS.items():
            view = at_recommender(store, address)
            assert (
                view.get("authority")
                == (folder / name / "flower" / "tls" / "authority.pem").read_bytes()
            )
            assert pinned_servers(view) == servers
            assert trusted(view)
            items = view.pinned_catalogue
            assert items is not None
            # The shop has two versions, and devices have seen the second one in the run that was
            # killed.
            assert items.number == (2 if place and address == SHOP else 1)
            assert (view.shelf, view.n_left_out) == ("", 0)
            assert len(view.ratings()) == before["status"]["ratings"]
        assert ever_joined(store) == joined(store)


@pytest.mark.parametrize(("place", "device"), EACH)
def test_nothing_that_the_owner_said_is_lost_and_the_list_of_before_works(
    old: Path, place: str, device: str
) -> None:
    before = said_before(old / place)[device]
    was = before["everything"]
    with opened(old / place, device) as store:
        now = json.loads(json.dumps(data_export(store)))
        plain = [{name: told[name] for name in was["ratings"][0]} for told in now["ratings"]]
        assert plain == was["ratings"]
        assert {told["item"]: told["weight"] for told in now["item_weights"]} == was["item_weights"]
        for name in ("user_weights", "policy", "answers"):
            assert now[name] == was[name], name
        maker = SHOP if place else CLUB
        models = {address: kept_model(at_recommender(store, address)) for address in FOLDERS}
        assert [address for address, model in models.items() if model is not None] == [maker]
        view = at_recommender(store)
        model = kept_model(view)
        assert model is not None
        assert (model.recommender, model.run) == (maker, before["status"]["model"]["run"])
        if device != "school":
            assert {entry.title for entry in for_you(view, 3)} <= {
                f"Film {k:02}" for k in range(12)
            }


@pytest.mark.parametrize(("place", "device"), [*ANAS, *BENS])
def test_what_was_sent_is_known_as_sent_to_each_of_them(old: Path, place: str, device: str) -> None:
    """Of every rating 0.4 of its weight went to the shop, and 0.3 to the club; f07 came later,
    and may be held.
    """
    held = 0.2 if (place, device) == ("killed", "ben") else 0.0
    with opened(old / place, device) as store:
        ledger, policy = store.ledger, store.policy
        for address in FOLDERS:
            view = at_recommender(store, address)
            ratings, weights = view.ratings(), view.weights()
            left = ledger.remaining(ratings, weights, policy)
            assert left.tolist() == pytest.approx([0.3, 0.15, 0.075, 1.0 - held])
            assert not ledger.affords(ratings, weights, policy, left + 0.01).any()
            new = bool(held) and address == SHOP
            assert ledger.answered(address, "hdp-sum", ratings).tolist() == [True, True, True, new]
        assert ledger.spent_total() == pytest.approx(1.75 * 0.7)
        store.forget()  # gives back what is held, and no more
        assert ledger.spent_total() == pytest.approx(1.75 * 0.7)
        view = at_recommender(store, SHOP)
        left = ledger.remaining(view.ratings(), view.weights(), policy)
        assert left.tolist() == pytest.approx([0.3, 0.15, 0.075, 1.0])


def test_the_owners_answers_hold(old: Path) -> None:
    with opened(old, "ana") as store:
        ((recommender, said),) = [
            (known.asked.recommender, known.answer) for known in consents(store)
        ]
        assert (recommender, said) == (SHOP, "always")  # the club's was for once


@pytest.mark.parametrize("device", ["ana", "school"])
def test_each_goes_on_with_its_own_catalogue(
    old: Path, tmp_path: Path, say: Callable[..., Any], device: str
) -> None:
    """In version 0.2.0 the shop's second version kept the club's out for good."""
    club, shop = old / "killed" / "other", old / "killed" / "recommender"
    with opened(old / "killed", device) as store:
        view = at_recommender(store, CLUB)
        view.pin_catalogue(ServiceFolder(club).items)
        (tmp_path / "more.csv").write_text("item,title\nf20,Film 20\n")
        say("recommender", "items", club, "--add", tmp_path / "more.csv")
        assert view.pin_catalogue(ServiceFolder(club).items).number == 2
        assert view.shelf == at_recommender(store, SHOP).shelf
        assert at_recommender(store, SHOP).pin_catalogue(ServiceFolder(shop).items).number == 2
        with pytest.raises(DeclinedError):
            view.pin_catalogue(ServiceFolder(shop).items)


@pytest.mark.parametrize("device", ["ana", "school"])
def test_killed_while_they_get_their_places_they_have_none(
    old: Path, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*given: Any) -> None:
        raise StorageError("no space left")

    with opened(old, device) as store:
        monkeypatch.setattr(old_joined, "_share_out", full)
        with pytest.raises(StorageError, match="no space"):
            joined(store)
        monkeypatch.undo()
        assert len(store.places) == 1
    with opened(old, device) as store:
        assert len(joined(store)) == 2
        assert store.places == range(1, 3)
        total = sum(float(np.sum(run.paid)) for run in store.ledger.charged())
        assert total == pytest.approx(sum(entry.paid for entry in store.ledger.entries()))
