"""Refusals of devices, explained to the operator: counts by class, nothing about a device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hdpmf.common.methods import RUN_EPSILON

_WORDS = {
    "policy": (
        "their owners' policies forbid it",
        "compare method, epsilon, rounds and --minimum with what owners agree to; by "
        f"default hdp-sum, epsilon {RUN_EPSILON:g} (max_epsilon_per_run) and "
        "sums over 16 devices and a tenth of the roster",
    ),
    "protocol": (
        "a message was not what they had agreed to, or out of turn",
        "see that devices have this version; after a restore, give the run up",
    ),
    "catalogue": (
        "the catalogue does not follow from the one that they have seen last",
        "after a restore, add what was added since once more (hdpmf recommender items): the same "
        "items give the same version",
    ),
    "secure-sum": (
        "a secure sum was not as they insist on, or broke off",
        "have owners pin the newest roster; more devices, or more neighbours in config.toml",
    ),
    "busy": (
        "they were answering somebody else in that moment, or their owners have not "
        "said yet whether they want to",
        "nothing, unless it stays so; owners who are asked find the question on their "
        "page or by hdpmf device consent",
    ),
    "storage": ("their disks refused", "tell the owners: nothing is sent or lost meanwhile"),
    "unavailable": (
        "they could not, for now: no roster pinned, or numbers lost in a restart",
        "have owners pin the roster (hdpmf device join --roster)",
    ),
}
_OURS = (
    "their answers could not be taken",
    "see that devices have this version; take off who keeps sending such",
)


@dataclass(frozen=True, slots=True)
class RefusalClass:
    """Refusals of one class: its name, their number, its meaning, and the remedy."""

    reason: str
    count: int
    why: str
    todo: str


def refusal_classes(counts: Mapping[str, int]) -> list[RefusalClass]:
    """All classes, the most frequent first."""
    found = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
    return [RefusalClass(reason, count, *_WORDS.get(reason, _OURS)) for reason, count in found]


def refusals_in_words(counts: Mapping[str, int]) -> list[str]:
    """A line for each class, the most frequent first."""
    return [
        f"{each.count} refusals ({each.reason}): {each.why}; to do: {each.todo}"
        for each in refusal_classes(counts)
    ]


def refusals_in_short(counts: Mapping[str, int]) -> str:
    """All classes in a few words."""
    return ", ".join(f"{reason} {count}" for reason, count in sorted(counts.items())) or "none"
