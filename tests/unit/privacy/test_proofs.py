"""Each mechanism that claims a guarantee has a page with its proof, and the page's constants are
the code's.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from importlib import import_module
from importlib.resources import files

import numpy as np
import pytest

from hdpmf.common.data import RatingScale
from hdpmf.common.methods import METHODS
from hdpmf.common.privacy.accounting import VIEWS, cost
from hdpmf.common.privacy.accounting.person import Spent, rho_of
from hdpmf.common.privacy.accounting.rules import inverse_sum_median
from hdpmf.common.privacy.coding import make_coding, make_ruler, sum_channels
from hdpmf.common.privacy.mechanisms import dense_laplace_scale, laplace_scale
from hdpmf.common.privacy.pairs import make_plan, presence_rho, value_rho
from hdpmf.models import make_model
from tests.unit.gpu import kernel_reference as reference

FOLDER = files("hdpmf.common.privacy") / "proofs"
PAGES = sorted(
    page.name.removesuffix(".md") for page in FOLDER.iterdir() if page.name.endswith(".md")
)
SECTIONS = (
    "## Statement",
    "## Adjacency",
    "## Assumptions",
    "## Proof",
    "## What is *not* protected",
)
STARS = RatingScale(1.0, 5.0, 1.0)


def front_matter(page: str) -> tuple[dict[str, str], dict[str, float]]:
    text = (FOLDER / f"{page}.md").read_text(encoding="utf-8")
    match = re.match(r"---\n(.*?)\n---\n", text, re.DOTALL)
    assert match, f"{page} has no block of constants"
    head, _, constants = match[1].partition("constants:\n")
    facts = dict(line.split(": ", 1) for line in head.splitlines())
    numbers = dict(line.strip().split(": ", 1) for line in constants.splitlines())
    return facts, {name: float(value) for name, value in numbers.items()}


def views_of(method: str) -> list[str]:
    return [view for view in VIEWS if view != "two-servers" or view in METHODS[method].offered]


PROVED = [name for name in METHODS if make_model(name).privacy.status == "proved"]


def test_the_methods_that_claim_a_guarantee_are_these() -> None:
    assert set(PROVED) == {
        "hdp-sum",
        "hdp-pairs",
        "hdp-bit",
        "hdpmf-paid",
        "private-popular",
        "user-mean",
    }


@pytest.mark.parametrize("method", PROVED)
def test_a_claim_has_its_page(method: str) -> None:
    assert method in PAGES
    text = (FOLDER / f"{method}.md").read_text(encoding="utf-8")
    positions = [text.find(section) for section in SECTIONS]
    assert -1 not in positions
    assert positions == sorted(positions)
    facts, _ = front_matter(method)
    assert facts["method"] == method
    import_module(facts["module"])
    # What the page, the claim and the accountant say is one thing.
    claim = make_model(method).privacy
    assert claim.view.startswith({"sums": "sums", "messages": "all messages"}[facts["view"]])
    for view in views_of(method):
        seen = facts["view"] == "messages"
        proved = seen or view != "messages"
        assert cost(method, view).status == ("proved" if proved else "no guarantee")


@pytest.mark.parametrize("method", [*METHODS, "hdpmf-paid", "hdp-sum", "hdp-bit"])
def test_references_lead_to_pages(method: str) -> None:
    for view in views_of(method):
        for neighbours in ("value", "presence"):
            found = cost(method, view, neighbours=neighbours)
            if found.status == "proved":
                assert found.reference == f"proofs/{method}.md"
            assert (
                found.reference == ""
                or found.reference.removeprefix("proofs/").removesuffix(".md") in PAGES
            )


def _factor(neighbours: str) -> Callable[[str], float]:
    def factor(method: str) -> float:
        """The largest cost over weights and epsilons, per W epsilon; reached at W = 1."""
        view = front_matter(method)[0]["view"]
        ratios = [
            cost(method, view, weight=weight, epsilon=epsilon, neighbours=neighbours).pure
            / (weight * epsilon)
            for weight in (1.0, 0.5, 0.3, 0.02)
            for epsilon in (0.1, 1.0, 4.0, 16.0)
        ]
        assert max(ratios) <= max(ratios[:4]) * (1 + 1e-9)
        return ratios[0]

    return factor


def _laplace_moved(method: str) -> float:
    """b = factor * sqrt(K) Delta / epsilon."""
    return laplace_scale(9, 4.0, 0.5) / (3 * 4.0 / 0.5)


def _gradient_factor(method: str) -> float:
    """How far the gradient that is sent moves per W Delta |u|, from the readable kernel."""
    only, u, v = np.zeros(1, np.int64), np.array([[0.6, 0.8]]), np.array([[0.3, -0.2]])
    low, high = (
        reference.item_gradients(only, only, np.array([value]), np.array([0.5]), u, v)
        for value in (1.0, 5.0)
    )
    return float(np.linalg.norm(high - low) / (0.5 * 4.0))


DERIVED: dict[str, Callable[[str], float]] = {
    "value_factor": _factor("value"),
    "presence_factor": _factor("presence"),
    "share_e1": lambda _: float(
        sum_channels(make_coding("soft", STARS, 1.0), 1.0).score.value_cost
    ),
    "share_em": lambda _: float(
        sum_channels(make_coding("soft", STARS, 1.0), 1.0).total.value_cost
    ),
    "popularity_share": lambda _: cost("private-popular", "sums", neighbours="presence").pure,
    "soft_grid": lambda _: 64 / make_coding("soft", STARS, 1.0).unit,
    "soft_value_step": lambda _: make_coding("soft", STARS, 1.0).value_step,
    "soft_presence_step": lambda _: make_coding("soft", STARS, 1.0).presence_step,
    "ruler_value_step": lambda _: make_ruler(STARS).value_step,
    "ruler_presence_step": lambda _: make_ruler(STARS).presence_step,
    "laplace_factor": _laplace_moved,
    "l1_factor": lambda _: (
        float(dense_laplace_scale(9, 4.0, 0.5, 7, 0.25)) / (3 * 4.0 * 7 / 0.5 / 0.25)
    ),
    "gradient_factor": _gradient_factor,
    "message_rho": lambda _: (
        cost("hdpmf", "messages", n_raters=1, rounds=1).zcdp / (inverse_sum_median(10) / 10)
    ),
    "hidden_rho": lambda _: cost("hdpmf", "sums-h-hidden", rounds=1).zcdp,
}


@pytest.mark.parametrize("page", [page for page in PAGES if page != "README"])
def test_the_pages_constants_are_the_codes(page: str) -> None:
    _, constants = front_matter(page)
    assert constants
    for name, stated in constants.items():
        if "." in name:
            module, _, attribute = name.rpartition(".")
            found = float(getattr(import_module(module), attribute))
        else:
            found = DERIVED[name](page)
        assert found == pytest.approx(stated, rel=1e-9), name


def test_the_readme_lists_every_page() -> None:
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\((\S+)\.md\)", text)) == set(PAGES) - {"README"}


@pytest.mark.parametrize("coding", ["soft", "threshold", "linear"])
@pytest.mark.parametrize(
    "scale", [STARS, RatingScale(0.5, 5.0, 0.5), RatingScale(1, 10, 1), RatingScale(0, 100, None)]
)
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 7.0])
def test_the_sums_cost_the_same_on_every_scale(
    coding: str, scale: RatingScale, epsilon: float
) -> None:
    """By brute force over pairs of ratings, not by the steps that the code computes the noise
    from.
    """
    chosen = make_coding(coding, scale, epsilon)
    ruler = make_ruler(scale)
    channels = sum_channels(chosen, epsilon)
    levels = np.linspace(
        scale.low, scale.high, 4001 if scale.step is None else round(scale.width / scale.step) + 1
    )
    scores, lengths = (
        chosen.encode(levels.astype(np.float32)),
        ruler.encode(levels.astype(np.float32)),
    )
    total = float(channels.total.scale)
    score, weight = float(channels.score.scale), float(channels.weight.scale)
    ends = [0, len(levels) // 2, len(levels) - 1]
    value = max(
        64 * (np.abs(scores - scores[end]) / score + np.abs(lengths - lengths[end]) / total).max()
        for end in ends
    )
    presence = 64 * (np.abs(scores) / score + 1 / weight + np.abs(lengths) / total).max()
    assert value == pytest.approx(epsilon)
    assert presence == pytest.approx(0.75 * epsilon)


def test_paid_rounds_add_up() -> None:
    # A round moves by at most 2 sqrt(K) Delta W in the sum of sizes: 8 rounds of it cost W epsilon.
    assert 8 * 2 * 3 * 4.0 / float(dense_laplace_scale(9, 4.0, 2.0, 8, 1.0)) == pytest.approx(2.0)
    assert cost("hdpmf-paid", "sums", rounds=7, epsilon=2.0, weight=0.5).pure == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("noises", "at_delta", "right"), [(1, "1.00", "69.7"), (2, "0.89", "62.1")]
)
def test_what_two_noises_cost(noises: int, at_delta: str, right: str) -> None:
    """The table of two servers in hdp-sum.md: one number that pays for all of W = epsilon = 1."""
    moved = 64 * make_ruler(STARS).value_step
    scale = float(moved)
    k, q = np.arange(-40 * int(scale), 40 * int(scale) + 1), math.exp(-1 / scale)
    law = math.tanh(0.5 / scale) * q ** np.abs(k)
    if noises == 2:
        convolved = np.convolve(law, law, "same")
        law = math.tanh(0.5 / scale) ** 2 * q ** np.abs(k) * (np.abs(k) + 1 + 2 * q**2 / (1 - q**2))
        near = slice(len(k) // 4, -len(k) // 4)
        np.testing.assert_allclose(law[near], convolved[near], rtol=1e-9)
    assert law.sum() == pytest.approx(1.0)
    high, low = law[moved:], law[:-moved]
    assert 0.97 < np.log(high / low).max() <= 1.0 + 1e-9  # it comes near the pure epsilon far out

    def over(epsilon: float) -> float:
        return float(np.maximum(high - math.exp(epsilon) * low, 0).sum())

    stated = float(at_delta)
    assert over(stated + 0.005) <= 1e-5 < over(stated - 0.005)
    assert 50 + 25 * np.abs(high - low).sum() == pytest.approx(float(right), abs=0.05)
    text = (FOLDER / "hdp-sum.md").read_text(encoding="utf-8")
    assert f" | 1 | {at_delta} | {right} % |" in text


def _row(text: str, start: str) -> list[float]:
    """Numbers of a page's line that starts so."""
    (line,) = (line for line in text.splitlines() if line.startswith(start))
    return [float(found) for found in re.findall(r"\d*\.?\d+", line.removeprefix(start))]


def test_the_tables_of_pairs_are_the_codes() -> None:
    """What a rating and a person pay in hdp-pairs.md, on data of ML-1M's shape."""
    text = (FOLDER / "hdp-pairs.md").read_text(encoding="utf-8")
    plans = [make_plan(6_040, 3_706, rho_of(8), stars=stars) for stars in (False, True)]
    for weight, start in ((1.0, "| 1 |"), (0.36, "| .36 |"), (0.1, "| .1 |"), (1 / 64, "| 1/64 |")):
        found = [
            bound(plan, 1.0, weight) / (plan.kappa * weight**2 * sum(plan.costs.values()))
            for plan in plans
            for bound in (presence_rho, value_rho)
        ]
        assert _row(text, start) == pytest.approx(found, rel=0.01)
    costs = plans[1].costs
    factor = (2 * costs["linear"] + 4 * costs["values"] + 2 * costs["pairs"]) / sum(costs.values())
    people = [Spent(rho_of(epsilon)) for epsilon in (1, 2, 4, 8)]
    rows = [each for one in people for each in (one, one.times(2), one.times(factor))]
    right = _row(text, "| right at most, against none; clicks, another; stars, another |")
    assert right == pytest.approx([100 * each.right for each in rows], abs=0.15)
    sure = _row(text, "| 99 % sure in at most: against none; clicks, another; stars, another |")
    assert sure == pytest.approx([100 * each.sure for each in rows], abs=0.7)  # a grid adds to it
