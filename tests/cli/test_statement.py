"""``hdpmf privacy statement``: numbers from what was spent, and what each side may know."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from hdpmf.common.data import synthetic_world
from hdpmf.common.net.certificates import ensure_certificates
from hdpmf.common.privacy import PrivacyWeights, accounting
from hdpmf.common.privacy.statement import PrivacyStatement, render
from hdpmf.common.protocol.catalogue import catalogue_table
from hdpmf.models import make_model
from hdpmf.untrusted.service.folder import Config, RunRecord, ServiceFolder
from hdpmf.untrusted.service.outcome import state
from hdpmf.untrusted.service.settings import RunSettings

from .conftest import Call

WORLD = synthetic_world(40, 30, 600, rng=5)
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def weights() -> PrivacyWeights:
    rng = np.random.default_rng(1)
    users = rng.uniform(0.1, 1.0, WORLD.n_users)
    return PrivacyWeights.from_parts(WORLD, users, rng.uniform(0.5, 1.0, WORLD.n_items))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, weights: PrivacyWeights) -> Path:
    folder = tmp_path_factory.mktemp("statement") / "model"
    make_model("hdp-sum", epsilon=2.0, rng=0).fit(WORLD, weights).save(folder)
    return folder


def test_a_folder_that_is_not_there_is_named(call: Call, model: Path, tmp_path: Path) -> None:
    result = call("privacy", "statement", model, "--out", tmp_path / "none" / "page.html")
    assert f"make the folder {tmp_path / 'none'} or choose another" in result.err
    (tmp_path / "file").touch()
    other = call("privacy", "statement", model, "--out", tmp_path / "file" / "page.html")
    assert "choose another folder" in other.err
    assert "free space" not in result.err + other.err


def test_whole_people_cost_what_their_own_weights_cost(
    call: Call, model: Path, weights: PrivacyWeights
) -> None:
    found = call("privacy", "statement", model, "--json").json
    own = weights.for_ratings(WORLD)
    each = [own[WORLD.user_codes == user] for user in range(WORLD.n_users)]
    heaviest = max((mine for mine in each if len(mine)), key=lambda mine: mine.sum())
    rows = {row["place"]: row for row in found["people"]["rows"]}
    most = rows["most"]
    assert most["ratings"] == len(heaviest)
    wanted = accounting.cost(
        "hdp-sum", "sums", unit="user", weight=heaviest.tolist(), epsilon=2.0, n_raters=20
    )
    assert most["value"]["pure"] == pytest.approx(wanted.pure)
    assert most["value"]["at_delta"] == pytest.approx(wanted.epsilon_at_delta)
    # A person is there at 0.75 of what their values cost, in a library without limits per person.
    assert most["presence"]["pure"] == pytest.approx(0.75 * wanted.pure, rel=1e-6)
    costs = [row["value"]["pure"] for row in found["people"]["rows"]]
    assert costs == sorted(costs)
    assert found["people"]["users"] == WORLD.n_users
    assert found["confidential"]
    assert found["claim"]["noise"] == "simulated"


def test_a_public_statement_tells_nothing_exact(call: Call, model: Path, tmp_path: Path) -> None:
    page = tmp_path / "all.html"
    told = call("privacy", "statement", model, "-o", page)
    assert told.code == 0, told.err
    assert "CONFIDENTIAL" in told.out
    assert "CONFIDENTIAL" in page.read_text()
    made = msgspec.convert(call("privacy", "statement", model, "--json").json, PrivacyStatement)
    public = tmp_path / "public.html"
    assert call("privacy", "statement", model, "--public", "--out", public).code == 0
    text = public.read_text()
    assert "CONFIDENTIAL" not in text
    assert "40 people" not in text
    for row in made.people.rows:
        assert row.value.words not in text or row.value.words in "".join(
            party.value.words for party in made.parties
        )
    for secret in ("participants", "rng", "seed="):
        assert secret not in text


def test_the_page_loads_nothing_and_escapes_names(model: Path, call: Call) -> None:
    made = call("privacy", "statement", model, "--json").json
    statement = msgspec.convert({**made, "name": "<script>x</script>"}, PrivacyStatement)
    text = render(statement).decode()
    assert "<script>" not in text
    assert not re.search(r'(src|href)="', text)
    assert 'class="flow"' in text
    assert "default-src 'none'" in text


def test_warnings(call: Call, tmp_path: Path) -> None:
    one = WORLD.take(WORLD.user_codes == 0).compact()
    make_model("hdp-sum", epsilon=20.0, rng=0).fit(one).save(tmp_path / "one")
    said = " ".join(call("privacy", "statement", tmp_path / "one", "--json").json["warnings"])
    assert "epsilon 20, which is above 10" in said
    assert "The sum is over one person" in said
    public = call("privacy", "statement", tmp_path / "one", "--public", "--json").json
    assert any("The sum is over one person" in line for line in public["warnings"])
    make_model("hdpmf", epochs=3, rng=0).fit(WORLD).save(tmp_path / "paper")
    nominal = call("privacy", "statement", tmp_path / "paper", "--json").json
    assert any("NOMINAL" in line for line in nominal["warnings"])
    assert "messages visible" in nominal["claim"]["honest"]
    make_model("mf", epochs=3, rng=0).fit(WORLD).save(tmp_path / "mf")
    bare = call("privacy", "statement", tmp_path / "mf", "--json").json
    assert bare["warnings"][0].startswith("Nothing is protected")
    assert all(row["value"]["at_delta"] is None for row in bare["people"]["rows"])


def test_weights_of_single_ratings_are_not_known(call: Call, tmp_path: Path) -> None:
    own = np.where(np.arange(len(WORLD)) % 2, 1.0, 0.125)
    per_rating = PrivacyWeights.per_rating(WORLD, own)
    make_model("hdp-sum", rng=0).fit(WORLD, per_rating).save(tmp_path / "m")
    unknown = call("privacy", "statement", tmp_path / "m", "--json").json
    assert unknown["people"]["rows"] == []
    assert "weights of single ratings" in unknown["people"]["note"]


@pytest.fixture(scope="module")
def recommender(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recommender with two runs that ended."""
    path = tmp_path_factory.mktemp("statement") / "rec"
    folder = ServiceFolder.create(
        path,
        Config(name="films"),
        catalogue_table(WORLD.items, WORLD.scale, WORLD.item_table),
        lambda made: ensure_certificates(made.tls_folder, ("localhost",)),
    )
    for number, epsilon in enumerate((0.5, 0.25), 1):
        run = bytes([number] * 16)
        settings = RunSettings(minimum=20, epsilon=epsilon)
        folder.begin_run(run, RunRecord(settings=settings, people=0))
        summary = {"privacy": state(settings, WORLD.scale).as_dict(), "users": 30 + number}
        folder.finish(run, None, msgspec.json.encode(summary))
    return path


def test_a_recommender_states_only_what_it_may_know(call: Call, recommender: Path) -> None:
    found = call("privacy", "statement", recommender, "--json").json
    assert (found["kind"], found["name"], found["view"]) == ("recommender", "films", "two-servers")
    assert not found["confidential"]
    assert "hdpmf device ledger" in found["people"]["note"]
    # Nobody can have spent more, whatever they have rated: both runs together, against nothing.
    (bound,) = found["people"]["rows"]
    assert bound["ratings"] == 30
    assert 0.5 < bound["presence"]["at_delta"] < 0.75
    assert bound["presence"]["at_delta"] < bound["exchange"]["at_delta"] < 4 * 0.75
    assert "upper bound: everybody" in call("privacy", "statement", recommender).out
    assert found["claim"]["epsilon"] == 0.25
    value = {party["who"]: party["value"] for party in found["parties"]}
    assert value["The recommender"] == value["The recommender together with one of the servers"]
    assert value["Both servers together"]["at_delta"] is None


def test_every_proof_that_a_statement_names_is_there(
    call: Call, model: Path, tmp_path: Path
) -> None:
    found: dict[str, Any] = call("privacy", "statement", model, "--json").json
    assert (ROOT / "src/hdpmf/common/privacy" / found["claim"]["proof"]).is_file()
    assert math.isfinite(found["delta"])


@pytest.mark.parametrize("subject", ["model", "recommender"])
def test_it_answers_an_impact_assessment(
    call: Call, request: pytest.FixtureRequest, tmp_path: Path, subject: str
) -> None:
    """Each part of GDPR, Article 35(7), and what only the controller can say is left open."""
    page = tmp_path / "s.html"
    call("privacy", "statement", request.getfixturevalue(subject), "--out", page)
    text = page.read_text()
    assert text.count("For the controller:") >= 5
    for part in ("35(7)(a)", "35(7)(b)", "35(7)(c)", "35(7)(d)"):
        assert part in text
    assert "the noise protects, not the number of people" in text
