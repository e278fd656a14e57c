"""Methods that are not ours: their claims are their authors', everywhere, and can be audited."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest

import hdpmf
from hdpmf.cli.output import privacy_line, short_claim
from hdpmf.common.methods import METHODS, Claim, Form, Method, method_named
from hdpmf.common.methods.registry import MEANING
from hdpmf.common.privacy.accounting import cost
from hdpmf.errors import ConfigError
from hdpmf.lab.audit.game import Audit, pairs, run_audit
from hdpmf.lab.audit.scores import BROKEN, STANDS
from hdpmf.models import compare
from tools.methods_page import markdown


@dataclass(eq=False, repr=False)
class Noisy(hdpmf.Estimator):
    """Item means of ratings with Laplace noise."""

    epsilon: float = 1.0
    rng: int | None = None
    share: float = 1.0

    def learn(self, train, weights):
        budgets = self.epsilon * weights.for_ratings(train)
        scale = self.share * train.scale.width / budgets
        self.sent_ = train.values + np.random.default_rng(self.rng).laplace(scale=scale)
        self.means_ = np.bincount(train.item_codes, self.sent_, train.n_items)
        self.means_ /= np.maximum(train.item_counts(), 1)

    def expect(self, users, items):
        return self.means_[items]

    def released(self, view):
        return self.sent_


CLAIM = Claim(
    status="proved", against="all messages", reason="noise", sees="noisy ratings", value=1.0
)
FORM = Form(claims={"messages": CLAIM}, sent="Noisy ratings.", stays_open="Presence.", rounds=1)


@pytest.fixture
def noisy() -> Iterator[Method]:
    yield hdpmf.add_method("noisy", Noisy, form=FORM, views=("messages",))
    METHODS.discard("noisy")


def test_one_label_everywhere(noisy: Method) -> None:
    label = "author's claim"
    assert noisy.claim().status == label
    model = Noisy()
    assert (model.privacy.status, model.privacy.epsilon) == (label, 1.0)
    assert label.upper() in privacy_line(model.privacy)
    assert label in short_claim(model.privacy)
    assert label in markdown([noisy])
    assert label in MEANING
    for view in ("messages", "sums", "final"):  # what messages hide, sums and models hide
        found = cost("noisy", view, weight=0.5, epsilon=2.0)
        assert (found.status, found.pure) == (label, pytest.approx(1.0))
        assert found.reference == ""
        assert "hdpmf has not checked it" in found.reason
    assert cost("noisy", "messages", neighbours="presence").status == "no guarantee"
    several = cost("noisy", "messages", unit="user", weight=[0.5, 0.25])
    assert several.pure == pytest.approx(0.75)
    rows = compare([Noisy(rng=0)], hdpmf.synthetic_world(n_users=60, n_items=40, n_ratings=900))
    assert rows["noisy"]["epsilon_is"] == label


def test_our_rule_does_not_lend_our_proof() -> None:
    hdpmf.add_method("like-bits", Noisy, form=FORM, accounting="bits")
    try:
        found = cost("like-bits", "messages")
        ours = cost("hdp-bit", "messages")
        assert (found.status, found.reference) == ("author's claim", "")
        assert (ours.status, ours.reference) == ("proved", "proofs/hdp-bit.md")
        assert found.pure == ours.pure
    finally:
        METHODS.discard("like-bits")


@pytest.mark.parametrize(
    ("form", "accounting", "says"),
    [(FORM, "no-noise", "claims an epsilon, but"), (None, "bits", "claims nothing, but")],
)
def test_a_claim_that_contradicts_its_accounting_is_refused(form, accounting, says) -> None:
    with pytest.raises(ConfigError, match=says):
        hdpmf.add_method("two-minded", Noisy, form=form, accounting=accounting)
    assert "two-minded" not in METHODS


def test_ours_stay_ours() -> None:
    assert all(map(METHODS.is_ours, METHODS))
    assert method_named("hdp-bit").claim().status == "proved"
    # A copy under another name is not ours, whatever estimator it has.
    copied = METHODS.add(replace(method_named("hdp-bit"), name="copied"))
    try:
        assert copied.claim().status == "author's claim"
        assert cost("copied", "messages").status == "author's claim"
    finally:
        METHODS.discard("copied")


def test_the_audit_finds_half_of_the_noise(noisy: Method) -> None:
    assert "noisy" not in {name for name, _ in pairs()}
    right = run_audit(Audit("noisy", "messages", runs=800))
    assert (right.verdict, right.claim_status) == (STANDS, "author's claim")
    assert right.claim_covers_view
    METHODS.discard("noisy")
    hdpmf.add_method("noisy", Noisy, form=FORM, fixed={"share": 0.5})
    assert run_audit(Audit("noisy", "messages", runs=800)).verdict == BROKEN


def test_the_audit_of_a_method_that_does_not_say_what_is_seen() -> None:
    @dataclass(eq=False, repr=False)
    class Silent(Noisy):
        """It says nothing."""

        released = hdpmf.Estimator.released

    hdpmf.add_method("silent", Silent, form=FORM)
    try:
        with pytest.raises(ConfigError, match=r"give it released\(self, view\)"):
            run_audit(Audit("silent", "messages", runs=10))
        final = run_audit(Audit("silent", "final", runs=20))
        assert final.verdict == STANDS
        with pytest.raises(ConfigError, match="does not claim to hide which items"):
            Audit("silent", "messages", adjacency="presence")
    finally:
        METHODS.discard("silent")


def test_impossible_predictions_are_counted() -> None:
    @dataclass(eq=False, repr=False)
    class Percent(hdpmf.Estimator):
        """It answers on a scale of its own."""

        def learn(self, train, weights):
            self.mean_ = 80.0

        def expect(self, users, items):
            return np.where(items % 2, self.mean_, 3.0)

    train, test = hdpmf.synthetic_world(60, 40, 900, rng=0).hold_out(3, rng=0)
    score = Percent().fit(train).score(test)
    items = train.items.find(test.item_ids)
    warm = score["n"] - score["n_cold"]
    assert 0 < score["n_off_scale"] <= (items % 2).sum()
    assert score["n_off_scale"] < warm
    assert "n_off_scale" not in hdpmf.UserMean().fit(train).score(test)
