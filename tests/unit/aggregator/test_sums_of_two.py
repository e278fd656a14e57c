"""Reports in, sums out: exact, whatever the order and however often anything is repeated."""

from __future__ import annotations

from server_pair import Pair, plain_sum


def test_the_sum_is_that_of_numpy() -> None:
    pair = Pair()
    task = pair.add()
    pair.upload(task, [0, 1, 2, 3, 4])
    assert pair.aggregate_all(limit=2) == 5
    assert pair.numbers(task, pair.collect(task)) == plain_sum([0, 1, 2, 3, 4])
