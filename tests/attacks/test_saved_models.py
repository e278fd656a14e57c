"""Attack 9: a model from a seed that says 'proved'; whoever has the seed subtracts the noise."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from hdpmf.cli.main import app
from hdpmf.cli.output import claim_fields, short_claim
from hdpmf.common.data import synthetic_world
from hdpmf.common.model.public_model import PublicModel
from hdpmf.errors import RatingsError
from hdpmf.models import load_model, make_model

WORLD = synthetic_world(20, 30, 300, rng=1)


@pytest.mark.parametrize("method", ["hdp-sum", "hdp-bit", "hdpmf"])
def test_what_the_library_makes_says_that_its_noise_is_simulated(
    method: str, tmp_path: Path
) -> None:
    """A model of seed 0 was labelled proved, and an attacker was right 20 of 20 times at epsilon
    0.01.
    """
    options = {"epsilon": 0.01, "rng": 0} | ({"epochs": 2} if method == "hdpmf" else {})
    model = make_model(method, **options).fit(WORLD)  # type: ignore[arg-type]
    model.save(tmp_path / "model")
    for found in (model, load_model(tmp_path / "model")):
        claim = found.privacy
        assert claim.noise == "simulated"
        assert "simulated" in str(claim)
        assert "SIMULATED" in claim._repr_html_()
        assert "simulated" in short_claim(claim)
        assert claim_fields(claim)["epsilon_noise"] == "simulated"
    assert (
        PublicModel.load(tmp_path / "model" / "recommender").about["privacy"]["noise"]
        == "simulated"
    )


@pytest.mark.parametrize("method", ["hdp-sum", "hdp-bit"])
def test_a_catalogue_of_what_was_rated_says_that_nothing_covers_it(
    method: str, tmp_path: Path
) -> None:
    """One rating more made 401 ids of 400, next to the word 'proved': present or not was read
    off without any error.
    """
    counts = np.bincount(WORLD.item_codes, minlength=WORLD.n_items)
    rare = int(np.argmin(np.where(counts > 0, counts, counts.max() + 1)))
    without = WORLD.take(WORLD.item_codes != rare).compact()
    sizes = []
    for place, ratings in enumerate((WORLD.compact(), without)):
        make_model(method, epsilon=0.01, rng=0).fit(ratings).save(tmp_path / str(place))
        sizes.append(len(PublicModel.load(tmp_path / str(place) / "recommender").items))
        claim = load_model(tmp_path / str(place)).privacy
        assert claim.items == "rated"
        assert "that is not covered" in claim._repr_html_()
        assert claim_fields(claim)["epsilon_items"] == "rated"
        assert (
            PublicModel.load(tmp_path / str(place) / "recommender").about["privacy"]["items"]
            == "rated"
        )
    assert sizes[0] == sizes[1] + 1  # so the words are needed


@pytest.mark.parametrize("method", ["hdp-sum", "hdp-bit", "hdpmf-paid"])
def test_a_stated_catalogue_is_the_same_whatever_was_rated(method: str, tmp_path: Path) -> None:
    listed = [*WORLD.items.ids.tolist(), 10_001]
    options = {"epsilon": 0.01, "rng": 0} | ({"epochs": 2} if method == "hdpmf-paid" else {})
    for place, most in enumerate((WORLD.n_items, 3)):
        ratings = WORLD.take(WORLD.item_codes < most).compact().over(listed)
        make_model(method, **options).fit(ratings).save(tmp_path / str(place))  # type: ignore[arg-type]
        public = PublicModel.load(tmp_path / str(place) / "recommender")
        assert public.items.ids.tolist() == listed
        assert public.about["privacy"]["items"] == "stated"
        claim = load_model(tmp_path / str(place)).privacy
        assert claim.items == "stated"
        assert "not covered" not in claim._repr_html_()
        assert "public list" in claim._repr_html_()


def test_train_takes_a_public_list_of_items(tmp_path: Path) -> None:
    WORLD.write(tmp_path / "ratings.csv")
    kept = WORLD.items.ids.tolist()[:-1]
    (tmp_path / "items.csv").write_text(
        "item,title\n" + "".join(f"{item},a film\n" for item in [*kept, 10_001])
    )
    options = [
        "--train",
        tmp_path / "ratings.csv",
        "--catalogue",
        tmp_path / "items.csv",
        "--out",
        tmp_path / "model",
    ]
    done = CliRunner().invoke(app, ["train", "hdp-sum", *map(str, options)])
    assert done.exit_code == 0, done.output
    left_out = int((WORLD.item_codes == WORLD.n_items - 1).sum())
    assert f"{left_out} ratings of items that are not in" in " ".join(done.output.split())
    model = load_model(tmp_path / "model")
    assert model.catalogue_.items.ids.tolist() == [*kept, 10_001]
    assert model.privacy.items == "stated"


def test_a_list_without_any_rated_item_is_an_error() -> None:
    with pytest.raises(RatingsError, match="no rating is about an item of the list"):
        WORLD.over(["somewhere", "else"])
    listed = WORLD.over(WORLD.items.ids)
    assert pickle.loads(pickle.dumps(listed)).items.stated
    assert not listed.compact().items.stated  # what is left is what was rated


def test_what_sends_nothing_has_no_noise() -> None:
    assert make_model("user-mean").fit(WORLD).privacy.noise == ""
    assert make_model("mf", epochs=1).fit(WORLD).privacy.noise == ""
    assert make_model("user-mean").fit(WORLD).privacy.items == ""
