"""Privacy accounting: events say what was released, accountants what it costs."""

from hdpmf.common.privacy.accounting.accountants import (
    epsilon_at,
    guess,
    pure,
    zcdp,
)
from hdpmf.common.privacy.accounting.costs import (
    DELTA,
    Cost,
    PersonCosts,
    cost,
    person_costs,
    with_honest_cost,
)
from hdpmf.common.privacy.accounting.setting import VIEWS, Setting

__all__ = [
    "DELTA",
    "VIEWS",
    "Cost",
    "PersonCosts",
    "Setting",
    "cost",
    "epsilon_at",
    "guess",
    "person_costs",
    "pure",
    "with_honest_cost",
    "zcdp",
]
