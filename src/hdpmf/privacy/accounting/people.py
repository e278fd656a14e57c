"""Whose privacy is explained: the strictest, the median and the most liberal user of a specification."""

from __future__ import annotations

from dataclasses import dataclass

from hdpmf.errors import PrivacyError
from hdpmf.methods import method_named
from hdpmf.privacy.spec import Group, PrivacySpec


@dataclass(frozen=True, slots=True)
class Person:
    """A user of a specification, who rates an item of middling sensitivity.

    Attributes:
        weight: The privacy weight of such a rating.
    """

    name: str
    weight: float


def people(spec: PrivacySpec) -> tuple[Person, Person, Person]:
    """The three users, by the weights that the specification gives users; the item has the median item weight."""
    item = quantile(spec.item_groups, 0.5)
    return (
        Person("strictest user", quantile(spec.user_groups, 0.0) * item),
        Person("median user", quantile(spec.user_groups, 0.5) * item),
        Person("most liberal user", quantile(spec.user_groups, 1.0) * item),
    )


def noise_budget(method: str, spec: PrivacySpec, epsilon: float, threshold: str | float) -> float | None:
    """What sets the noise of DPMF and PDPMF for ratings of this specification; None for other methods."""
    smallest = quantile(spec.user_groups, 0.0) * quantile(spec.item_groups, 0.0) * epsilon
    mechanism = method_named(method).mechanism
    if mechanism == "uniform":
        return smallest
    if mechanism != "sample":
        return None
    if not isinstance(threshold, str):
        return threshold
    largest = quantile(spec.user_groups, 1.0) * quantile(spec.item_groups, 1.0) * epsilon
    known = {
        "min": smallest,
        "max": largest,
        "mean": _mean(spec.user_groups) * _mean(spec.item_groups) * epsilon,
    }
    if threshold not in known:
        raise PrivacyError(
            f"the sampling threshold must be 'mean', 'min', 'max' or a positive number, not {threshold!r}"
        )
    return known[threshold]


def quantile(groups: tuple[Group, ...], part: float) -> float:
    """The weight below which a part of the users (or items) is; groups may overlap or leave gaps."""
    present = [group for group in groups if group.ratio > 0]
    low, high = min(group.low for group in present), max(group.high for group in present)
    if part <= 0:
        return low
    if part >= 1:
        return high
    while high - low > 1e-9:
        middle = (low + high) / 2
        below = sum(group.ratio * _below(group, middle) for group in present)
        low, high = (middle, high) if below < part else (low, middle)
    return high


def _below(group: Group, weight: float) -> float:
    if weight >= group.high:
        return 1.0
    return 0.0 if weight <= group.low else (weight - group.low) / (group.high - group.low)


def _mean(groups: tuple[Group, ...]) -> float:
    return sum(group.ratio * (group.low + group.high) / 2 for group in groups)
