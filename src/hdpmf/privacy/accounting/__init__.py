"""What privacy really costs: events say what was released, accountants what it costs, ``cost`` puts them together."""

from hdpmf.privacy.accounting.accountants import (
    epsilon_at,
    epsilon_from_zcdp,
    gaussian_distance,
    guess,
    pure,
    renyi,
    zcdp,
)
from hdpmf.privacy.accounting.costs import DELTA, Cost, cost, honest_line, with_honest_cost
from hdpmf.privacy.accounting.persons import PersonCost, PersonCosts, person_costs
from hdpmf.privacy.accounting.setting import NEIGHBOURS, UNITS, VIEWS, Setting

__all__ = [
    "DELTA",
    "NEIGHBOURS",
    "UNITS",
    "VIEWS",
    "Cost",
    "PersonCost",
    "PersonCosts",
    "Setting",
    "cost",
    "epsilon_at",
    "epsilon_from_zcdp",
    "gaussian_distance",
    "guess",
    "honest_line",
    "person_costs",
    "pure",
    "renyi",
    "with_honest_cost",
    "zcdp",
]
