"""What devices send in a run of pairs: a report of one person's row; simulated, all rows' sums.

Between machines each device sends its own row, as two shares, and each server adds its noise. To
see what leaves a device, read ``device.seal``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hdpmf.common.data import Ratings
from hdpmf.common.model.device_fit import to_stars
from hdpmf.common.privacy.pairs import (
    Heads,
    Histories,
    PairsPlan,
    linear_rows,
    pair_rows,
    value_rows,
)
from hdpmf.common.privacy.sampling import Noise
from hdpmf.common.privacy.weights import PrivacyWeights
from hdpmf.common.protocol.task import Linear, Pairs, Task, configuration_of, prio_of

if TYPE_CHECKING:
    from hdpmf.common.aggregation.two_servers.dap.messages import HpkeConfig

SERVERS = 2
"""Each adds the whole noise: one honest server is enough for the claim."""

_BLOCK = 1 << 14  # people whose pairs are summed at a time: bounds the memory


def histories(ratings: Ratings, weights: PrivacyWeights) -> Histories:
    """Return what people rated, by item for each; a weight per rating is its item's alone."""
    order = np.lexsort((ratings.item_codes, ratings.user_codes))
    items = ratings.item_codes[order].astype(np.int64)
    own = weights.rating_weights
    if own is None:
        beta = weights.for_users(ratings.users)
        gamma = weights.for_items(ratings.items)[items]
    else:
        beta, gamma = np.ones(ratings.n_users), weights.for_ratings(ratings)[order]
    stars = np.full(len(items), 5.0)
    if not ratings.implicit:
        stars = to_stars(ratings.values[order], ratings.scale).astype(np.float64)
    start = np.concatenate(([0], np.cumsum(ratings.user_counts())))
    return Histories(start, items, stars, beta, gamma)


def row_of(sums: Linear | Pairs, own: Histories, items: int) -> np.ndarray:
    """Return the row that one person answers a task with, as its circuit takes it.

    Args:
        items: How many the catalogue has.
    """
    plan = PairsPlan(
        people=1,
        items=items,
        heads=len(sums.heads) if isinstance(sums, Pairs) else 0,
        stars=False,
        rho=float(sums.rho),
        kappa=1 / sums.cap,
        linear=0,
        values=0,
        pairs=0,
    )
    if isinstance(sums, Pairs):
        row = np.zeros(len(sums.heads), np.int64)
        rated, entries = pair_rows(plan, Heads(np.array(sums.heads), np.array(sums.weights)), own)
        row[rated.items] = entries
        return row
    presence = linear_rows(plan, own)
    row = np.zeros(sums.entries, np.int64)
    row[own.items] = presence
    if sums.values:
        values, means = value_rows(plan, own)
        row[sums.items + own.items] = values
        row[-1] = means[0]
    return row


def sealed_report(
    task: Task,
    task_id: bytes,
    row: np.ndarray,
    report_id: bytes,
    *,
    at: int,
    configs: tuple[HpkeConfig, HpkeConfig],
) -> bytes:
    """Return a report as it is uploaded: a row in two shares, each encrypted to its server.

    Neither share alone tells anything. The size, and the work to make it, depend on the task only.
    What is encrypted is bound to the task's configuration, to the report's id and to its time.

    Args:
        row: The person's whole numbers, or zeros.
        report_id: Random. Servers count an id once, however often it is encrypted anew.
        at: The time that the report says, a multiple of the task's precision.
        configs: The keys of leader and helper.
    """
    from hdpmf.common.aggregation.two_servers.dap.hpke import input_share_info, seal
    from hdpmf.common.aggregation.two_servers.dap.messages import (
        InputShareAad,
        PlaintextInputShare,
        Report,
        ReportMetadata,
        Role,
    )

    prio = prio_of(task, task_id)
    circuit: Any = prio.circuit
    shares = prio.shard(circuit.encode(row), report_id)
    metadata = ReportMetadata(report_id, at // task.precision)
    configuration = configuration_of(task, task_id)
    aad = InputShareAad(task_id, configuration, metadata, shares.public_share).encode()
    leader, helper = (
        seal(config, input_share_info(role), aad, PlaintextInputShare(share).encode())
        for config, role, share in zip(
            configs, (Role.LEADER, Role.HELPER), shares.input_shares, strict=True
        )
    )
    return Report(metadata, shares.public_share, leader, helper).encode()


def linear_sums(plan: PairsPlan, own: Histories, noise: Noise) -> tuple[np.ndarray, np.ndarray]:
    """Return the sums of presence and of values over items; the latter are empty without stars."""
    rows = linear_rows(plan, own)
    presence = _summed(own.items, rows, plan.items)
    values = np.zeros(0, np.int64)
    if plan.stars:
        entries, means = value_rows(plan, own)
        values = np.append(_summed(own.items, entries, plan.items), means.sum())
    return (
        _noised(presence, plan.linear_noise, noise),
        _noised(values, plan.value_noise, noise),
    )


def pair_sums(plan: PairsPlan, heads: Heads, own: Histories, noise: Noise) -> np.ndarray:
    """Return the sums of pairs: the upper triangle of their matrix, row after row."""
    from scipy.sparse import csr_matrix

    rated, entries = pair_rows(plan, heads, own)
    total = np.zeros((plan.heads, plan.heads))
    for begin in range(0, len(own.beta), _BLOCK):
        start = rated.start[begin : begin + _BLOCK + 1]
        here = slice(start[0], start[-1])
        rows = csr_matrix(
            (entries[here].astype(np.float64), rated.items[here], start - start[0]),
            shape=(len(start) - 1, plan.heads),
        )
        total += (rows.T @ rows).toarray()  # whole numbers far below 2^53: exact
    sums = total[np.triu_indices(plan.heads)].astype(np.int64)
    return _noised(sums, plan.pair_noise, noise)


def _summed(items: np.ndarray, entries: np.ndarray, n_items: int) -> np.ndarray:
    return np.bincount(items, entries, n_items).astype(np.int64)


def _noised(sums: np.ndarray, deviations: np.ndarray, noise: Noise) -> np.ndarray:
    for _ in range(SERVERS):
        sums = sums + noise.discrete_gaussian(deviations)
    return sums
