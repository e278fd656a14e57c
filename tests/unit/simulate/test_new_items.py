"""The second day of a service: items come and go between runs, and every device can check it. By
masks.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from hdpmf.common.data import ItemTable
from hdpmf.common.protocol import (
    BitContribution,
    CatalogueVersion,
    ItemFacts,
    SumContribution,
    encode,
)
from hdpmf.common.protocol.catalogue import catalogue_table, known_items, number_of, version_at
from hdpmf.errors import ConfigError, FederationError, StorageError
from hdpmf.private.device.recommendations import recommend
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.untrusted.recommender.runs import SurveyAnswer
from hdpmf.untrusted.service.daemon import Daemon, Peers
from hdpmf.untrusted.service.folder import ServiceFolder
from hdpmf.untrusted.service.keys import CATALOGUE, KEY, change_items
from tests.world import BITS, GROWING, SUMS, Federation

pytestmark = pytest.mark.slow

NEW = ItemTable.build([1000, 0], ["Tomorrow", "Yesterday"], [["Drama"], ["Space"]], [2026, 1950])
"""Of these 0 would be the first in the order of sorting; they come last all the same."""
N = GROWING.n_items
RETIRED = 3  # a position


def rate_new(town: Federation, n: int = 5) -> None:
    for store in town.stores[:n]:
        store.rate("0", 5.0, user=owner(store))
    town.stores[0].rate("1000", 1.0, user=owner(town.stores[0]))


def owner(store: DeviceStore) -> str:
    return store.records()[0].user


def weights(answer: Any) -> np.ndarray:
    assert isinstance(answer, SumContribution)
    return answer.weights / 64


@pytest.mark.slow
def test_new_items_are_in_the_next_run_and_a_retired_one_is_not(town: Federation) -> None:
    retired = str(GROWING.items.ids[RETIRED])
    for store in town.stores[:3]:
        store.rate(retired, 4.0, user=owner(store))
    rate_new(town)  # before the catalogue has them: kept, not used
    first = town.run(SUMS)
    held = town.held()
    np.testing.assert_allclose(weights(first.answer), held, atol=0.2)
    change_items(town.folder, NEW, [retired])
    for store in town.stores[3:6]:
        store.rate(retired, 4.0, user=owner(store))
    town.add_later_ones()
    second = town.run(SUMS)
    assert [store.pinned_catalogue.number for store in town.stores] == [2] * 8  # type: ignore[union-attr]
    new = weights(second.answer)
    assert len(new) == N + 2
    now = sum(np.bincount(store.ratings().item_codes, minlength=N + 2) for store in town.stores)
    fresh = now - np.concatenate([held, [0, 0]])
    fresh[RETIRED] = 0  # nobody sends what they rated of it since
    np.testing.assert_allclose(new, fresh, atol=0.2)
    assert new[N:].round().tolist() == [5, 1]
    facts = second.model.numbers
    assert isinstance(facts, ItemFacts)
    np.testing.assert_allclose(facts.popularity[[N, N + 1]], [5, 1], atol=0.4)
    np.testing.assert_allclose(
        facts.popularity[RETIRED], held[RETIRED], atol=0.4
    )  # what was summed stays
    assert second.summary["catalogue_version"] == 2
    assert second.model.items.ids.tolist()[-2:] == [0, 1000]
    for agent, store in zip(town.devices, town.stores, strict=True):
        listed = recommend(store, 50, user=owner(store), keep_rated=True, model=agent.model)
        names = {entry.item for entry in listed}
        assert len(listed) == N + 1
        assert retired not in names
        assert {"0", "1000"} <= names
    assert ServiceFolder(town.folder.path).model() is not None


def test_an_earlier_run_is_read_with_its_own_items(town: Federation) -> None:
    first = town.run(SUMS)
    before = town.service.survey_answer(first.run)
    change_items(town.folder, NEW, [str(GROWING.items.ids[RETIRED])])
    after = town.service.survey_answer(first.run)
    assert (after.survey, after.retired) == (before.survey, ())
    assert after.survey.n_items == N
    second = town.run(SUMS)
    own = town.service.survey_answer(second.run)
    assert (own.survey.n_items, own.retired) == (N + 2, (RETIRED,))
    assert own.survey.catalogue == known_items(town.folder.items).fingerprint


def test_a_run_under_way_keeps_its_items(town: Federation) -> None:
    run = town.service.begin(SUMS)
    change_items(town.folder, NEW)
    assert number_of(town.folder.items) == 2
    assert number_of(town.folder.current_items) == 1
    rate_new(town)
    outcome = town.service.conduct(run)
    assert len(weights(outcome.answer)) == N
    assert [store.pinned_catalogue.number for store in town.stores] == [1] * 8  # type: ignore[union-attr]
    assert number_of(town.folder.current_items) == 2
    assert weights(town.run(SUMS).answer)[N:].round().tolist() == [5, 1]


def test_devices_see_new_items_before_a_run_and_the_model_of_before_still_serves(
    town: Federation,
) -> None:
    town.disconnect(7)
    town.run(SUMS)
    change_items(town.folder, NEW, [str(GROWING.items.ids[RETIRED])])
    town.connect(7)
    town.service.publish_items()
    town.look()
    assert [store.pinned_catalogue.number for store in town.stores] == [2] * 8  # type: ignore[union-attr]
    for agent, store in zip(town.devices, town.stores, strict=True):
        rate_new(town, 1)
        listed = recommend(store, 50, user=owner(store), keep_rated=True, model=agent.model)
        assert len(listed) == N - 1  # of the new ones nothing is known yet, the retired one is gone
        assert not {entry.item for entry in listed} & {"0", "1000", str(GROWING.items.ids[RETIRED])}


def test_bits_of_earlier_runs_are_about_the_same_items(town: Federation) -> None:
    first = town.run(BITS)
    change_items(town.folder, NEW)
    rate_new(town)
    second = town.run(BITS)
    assert isinstance(first.answer, BitContribution)
    assert isinstance(second.answer, BitContribution)
    assert sorted(second.answer.items.tolist()) == [N] * 5 + [N + 1]
    assert second.model.lists is not None
    assert second.model.lists.n_items == N + 2
    from hdpmf.untrusted.recommender.release import Release

    release = Release.load(town.folder.run_files(second.run).folder / "ratings.release")
    assert len(release.items) == N + 2
    assert release.items.ids.tolist()[-2:] == [0, 1000]


def test_training_runs_grow_too(town: Federation) -> None:
    settings = msgspec.structs.replace(BITS, method="mf", rounds=2, factors=3, epsilon=1.0)
    for store in town.stores:
        policy = msgspec.structs.replace(
            store.policy, methods=("mf",), allow_nominal=True, allow_unprotected=True
        )
        store.set_policy(policy)
    late = town.stores[7]
    town.disconnect(7)
    town.run(settings)
    change_items(town.folder, NEW, [str(GROWING.items.ids[RETIRED])])
    town.connect(7)
    town.service.publish_items()
    town.look()
    listed = recommend(late, 50, user=owner(late), keep_rated=True, model=town.devices[7].model)
    assert 0 < len(listed) < N
    rate_new(town)
    outcome = town.run(settings)
    raters = outcome.model.numbers.raters  # type: ignore[union-attr]
    assert raters[N:].tolist() == [5, 1]
    assert raters[RETIRED] == 0


def test_a_device_that_cannot_follow_refuses_and_the_operator_sees_it(
    town: Federation, tmp_path: Path
) -> None:
    """A recommender that was restored from a backup and has added something else since."""
    town.run(SUMS)
    (tmp_path / "backup").write_bytes((town.folder.path / CATALOGUE).read_bytes())
    change_items(town.folder, NEW)
    town.service.publish_items()
    town.look()
    (town.folder.path / CATALOGUE).write_bytes((tmp_path / "backup").read_bytes())
    change_items(town.folder, ItemTable.build([77], ["Other"], [[]], [None]))
    with pytest.raises(FederationError, match="8 refused") as raised:
        town.run(SUMS)
    assert "catalogue 8" in str(raised.value)
    assert town.service.metrics.refusals["catalogue"] == 8
    from hdpmf.untrusted.service.outcome import refusals_in_words

    (line,) = refusals_in_words({"catalogue": 8})
    assert "does not follow from the one that they have seen last" in line
    town.service.give_up(town.folder.unfinished() or b"")
    # The same items again give the same version, byte for byte, and everybody goes on.
    (town.folder.path / CATALOGUE).write_bytes((tmp_path / "backup").read_bytes())
    change_items(town.folder, NEW)
    assert town.run(SUMS).summary["users"] == 8


def test_who_refuses_the_items_takes_no_model_about_them(town: Federation) -> None:
    late = town.stores[7]
    town.disconnect(7)
    town.run(SUMS)
    late.pin_catalogue(catalogue_table(NEW.index, GROWING.scale, NEW))
    town.connect(7)
    for _ in range(3):
        town.look()
    assert town.devices[7].model is None
    assert sum("refused" in line for line in town.devices[7].said) == 2  # items and facts, once


def test_a_folder_of_before_there_were_versions(town: Federation) -> None:
    """Its catalogue is a plain table, without a key: it is the first version, and signed with
    the second.
    """
    table = town.folder.catalogue
    (town.folder.path / CATALOGUE).write_bytes(encode(table))
    (town.folder.path / KEY).unlink()
    town.run(SUMS)
    assert number_of(town.folder.items) == 1
    new = change_items(town.folder, NEW)
    assert isinstance(new, CatalogueVersion)
    assert version_at(new, 1).table == msgspec.structs.replace(table)  # type: ignore[union-attr]
    rate_new(town)
    assert weights(town.run(SUMS).answer)[N:].round().tolist() == [5, 1]


@pytest.mark.parametrize(
    ("added", "retired", "words"),
    [
        (None, ["nothing"], "no item 'nothing'"),
        (None, ["1", "1"], "twice"),
        (ItemTable.build([1], [""], [[]], [None]), [], "in the catalogue already"),
        (ItemTable.build(["x"], [""], [[]], [None]), [], "whole numbers"),
        (ItemTable.build([99], [""], [[f"g{n}" for n in range(300)]], [None]), [], "genres"),
        (None, [], "must change something"),
    ],
)
def test_changes_that_cannot_be_made_change_nothing(
    town: Federation, added: Any, retired: list[str], words: str
) -> None:
    before = (town.folder.path / CATALOGUE).read_bytes()
    with pytest.raises(ConfigError, match=words):
        change_items(town.folder, added, retired)
    assert (town.folder.path / CATALOGUE).read_bytes() == before


def test_another_key_signs_nothing(town: Federation) -> None:
    (town.folder.path / KEY).write_bytes(b"x" * 32)
    with pytest.raises(ConfigError, match="another key"):
        change_items(town.folder, NEW)
    (town.folder.path / KEY).write_bytes(b"x")
    with pytest.raises(StorageError, match="damaged"):
        change_items(town.folder, NEW)
    (town.folder.path / KEY).unlink()
    with pytest.raises(StorageError, match="restore a backup"):
        change_items(town.folder, NEW)


def test_a_service_that_idles_shows_new_items(town: Federation) -> None:
    town.run(SUMS)
    change_items(town.folder, NEW)
    naps = iter(range(3))

    def sleep(seconds: float) -> None:
        if next(naps, None) is None:
            raise KeyboardInterrupt

    life = Daemon(town.folder, Peers(devices=town.network), sleep=sleep)
    with pytest.raises(KeyboardInterrupt):
        life.live()
    town.look()
    assert [store.pinned_catalogue.number for store in town.stores] == [2] * 8  # type: ignore[union-attr]


def test_noise_of_runs_that_did_not_know_an_item_is_not_in_it() -> None:
    from hdpmf.untrusted.recommender.sums import add_up_runs

    settings = msgspec.structs.replace(SUMS, epsilon=1.0)
    table = catalogue_table(GROWING.items, GROWING.scale, GROWING.item_table)
    survey = settings.survey(known_items(table), 6)

    def answered(n: int, **more: Any) -> SurveyAnswer:
        asked = msgspec.structs.replace(survey, n_items=n)
        numbers = np.full(
            n, 10_000
        )  # all items alike, so that only who knew them makes a difference
        return SurveyAnswer(
            asked, SumContribution(scores=numbers // 2, weights=numbers, total=0), **more
        )

    own = answered(N + 2, retired=(RETIRED, N + 1))
    earlier = [answered(N, noises=4.0), answered(N + 1, retired=(RETIRED + 1,))]
    _, noise = add_up_runs(own.survey, own, earlier)
    assert np.ptp(np.delete(noise[:N], [RETIRED, RETIRED + 1])) == 0
    assert noise[N] < noise[0] - 0.01  # two runs, not three
    assert noise[N + 1] == pytest.approx(
        1.0
    )  # came and went between two runs: its own noise, so that it has any
    assert noise[RETIRED] < noise[0] - 0.01
    assert noise[RETIRED + 1] < noise[0] - 0.01
