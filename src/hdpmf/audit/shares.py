"""Attacks on what one server has of single reports: its share, the public share, what the other server said of it.

All of these must be worth as much as a coin. So many different looks are tried, each a rule that gives one number per
report, positive for "high" (or "there"). The attacker knows everything of a report but one rating.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hdpmf.audit.bounds import clopper_pearson
from hdpmf.audit.server_pair import FIXED, Entries, FaultyPrio, Held, HeldReport


@dataclass(frozen=True, slots=True)
class Look:
    """What became of one rule.

    Attributes:
        right: Part of the guesses that were right; about one half where nothing is told.
        epsilon: What that proves, at least, also for whoever says the opposite of the rule.
    """

    right: float
    epsilon: float


def look_at_shares(held: Held, users: tuple[Entries, Entries], truth: np.ndarray, confidence: float) -> dict[str, Look]:
    """Guess one rating of each report.

    Args:
        held: What a server has; the last report is the attacker's own, with zeros.
        users: What a report says if the rating is low (or not there), and if it is high.
        truth: The coins of all reports but the last.
        confidence: That no rule proves anything where nothing is told.
    """
    *reports, own = held.reports
    circuit, field = held.prio.circuit, held.prio.field
    encoded = [circuit.encode(*user) for user in users]  # type: ignore[attr-defined]  # a circuit of ratings
    low, high = (np.array(field.integers(circuit.truncate(vector)), np.float64) for vector in encoded)
    worlds = _Worlds(
        encoded=encoded,
        middle=(low + high) / 2,
        apart=high - low,
        moved=np.array(field.integers(field.sub(encoded[1], encoded[0])), np.float64),
    )
    scores = [_scores(held, worlds, report, own) for report in reports]
    rules = scores[0].keys()
    error = (1.0 - confidence) / (2 * len(rules))
    found = {}
    for rule in rules:
        given = np.array([score[rule] for score in scores])
        guesses = np.where(given == 0, np.arange(len(given)) % 2 == 0, given > 0)  # undecided: not by the coins
        right = int((guesses == truth).sum())
        lower, _ = clopper_pearson(np.array([max(right, len(truth) - right)]), len(truth), error)
        p = float(lower[0])
        found[rule] = Look(right / len(truth), max(0.0, math.log(p / (1.0 - p))))
    return found


@dataclass(frozen=True, slots=True)
class _Worlds:
    """The two reports that there may be.

    Attributes:
        encoded: What is shared.
        middle: Of the two worlds' sums.
        apart: Their difference.
        moved: The difference of what is shared.
    """

    encoded: list[np.ndarray]
    middle: np.ndarray
    apart: np.ndarray
    moved: np.ndarray


def _scores(held: Held, worlds: _Worlds, report: HeldReport, own: HeldReport) -> dict[str, float]:
    field, moved, encoded = held.prio.field, worlds.moved, worlds.encoded
    share, output = _centred(report.input_share), _centred(field.encode(report.output))
    vector = share[: len(moved)]
    beside = np.array(field.integers(field.sub(report.output, own.output)), np.float64)
    found = {
        "mean of the share": float(share.mean()),
        "first element": float(share[0]),
        "last element": float(vector[-1]),
        "spread of the share": float((share**2).mean() - 1 / 12),
        "along the vector": float(vector @ moved[: len(vector)]),
        "along the sum": float(output @ worlds.apart),
        "public share": float(_centred(report.public_share).mean()),
        "the other's words": float(_centred(report.other).mean()),
        "beside an own report": float(np.sign(beside - worlds.middle) @ worlds.apart),
        "made again": _made_again(held, encoded, report),
    }
    if held.index == 1:  # the leader is told no more of the check than that a report is valid
        found["at the checked point"] = _at_the_point(held, encoded, report)
    return found


def _made_again(held: Held, encoded: list[np.ndarray], report: HeldReport) -> float:
    """Reports of both worlds from seeds of the attacker's: which has more bytes in common with the one that came?"""
    prio, alike = held.prio, []
    for vector in encoded:
        again = prio.shard(vector, report.nonce, FIXED[: prio.random_size])
        pairs = ((again.input_shares[held.index], report.input_share), (again.public_share, report.public_share))
        alike.append(sum(int((_bytes(ours) == _bytes(theirs)).sum()) for ours, theirs in pairs))
    return float(alike[1] - alike[0])


def _at_the_point(held: Held, encoded: list[np.ndarray], report: HeldReport) -> float:
    """The helper sees each wire at one point. Which world's wires, as they would be without masks, are there?"""
    prio, field = held.prio, held.prio.field

    def verifier(parts: list[bytes]) -> np.ndarray:
        first, second = (np.frombuffer(part[: -prio.seed_size], field.dtype) for part in parts)
        return field.add(first, second)

    shares, alike = (report.public_share, report.input_share), []
    seen = verifier([report.other, prio.prepare(held.key, 1, report.nonce, *shares)[1]])
    for vector in encoded:
        bare = FaultyPrio(prio, "masks").shard(vector, report.nonce)
        parts = [
            prio.prepare(held.key, server, report.nonce, bare.public_share, bare.input_shares[server])[1]
            for server in (0, 1)
        ]
        alike.append(int((verifier(parts) == seen).sum()))
    return float(alike[1] - alike[0])


def _bytes(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint8)


def _centred(data: bytes) -> np.ndarray:
    """Words of 64 bits, from -1/2 to 1/2."""
    return np.frombuffer(data, "<u8") / 2.0**64 - 0.5
