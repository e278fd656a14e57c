"""The audit of pairs finds out half of the noise, and cannot contradict all of it."""

from __future__ import annotations

import pytest

from hdpmf.common.privacy.pairs import pair_rho
from hdpmf.errors import ConfigError, PrivacyError
from hdpmf.lab.audit.pairs import audit_pairs


@pytest.mark.parametrize(("epsilon", "weight"), [(1.0, 1.0), (4.0, 0.5)])
def test_half_of_the_noise_is_found_out_and_all_of_it_stands(epsilon, weight):
    whole = audit_pairs(epsilon, weight, runs=1000, seed=0)
    assert whole.verdict == "not contradicted"
    # The world is the one in which a rating moves most: what is measured is what is claimed, but
    # for chance.
    assert whole.distance == pytest.approx(weight * (2 * pair_rho(epsilon)) ** 0.5, abs=0.15)
    assert (
        audit_pairs(epsilon, weight, runs=1000, seed=0, noise_factor=0.5).verdict == "claim broken"
    )


def test_what_cannot_be_audited_is_refused():
    with pytest.raises(ConfigError):
        audit_pairs(runs=5)
    with pytest.raises(PrivacyError):
        audit_pairs(weight=0.0)
