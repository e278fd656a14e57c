"""Honest sums: exact for the survivors, whoever drops out when, or broken off with nothing
revealed.
"""

import contextlib
import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hdpmf.common.aggregation.masks import DeviceIdentity, IntegerCoding
from hdpmf.common.aggregation.masks.messages import Confirmations, Inbox, PartnerKeys, Survivors
from hdpmf.errors import SecureSumError
from tests.unit.masks.in_process import STEPS, run_in_process

pytestmark = pytest.mark.slow

IN_THE_SUM = {"vector", "confirmation"}
IDENTITIES = [DeviceIdentity.generate() for _ in range(30)]


def words(n, length, seed=0):
    return np.random.default_rng(seed).integers(0, 2**32, (n, length), dtype=np.uint32)


def check(vectors, drops, **options):
    done = run_in_process(
        vectors, drop_after=drops, identities=IDENTITIES[: len(vectors)], **options
    )
    expected = [n for n in range(len(vectors)) if drops.get(n, "vector") in IN_THE_SUM]
    assert list(done.survivors) == expected
    assert np.array_equal(done.total, vectors[expected].sum(axis=0, dtype=np.uint32))
    return done


@pytest.mark.parametrize("n", [3, 4, 5, 8])
def test_everyone_stays(n):
    check(words(n, 17), {})


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("lost", [1, 2])
def test_drop_outs_at_each_step_up_to_the_threshold(step, lost):
    # 8 devices, 7 neighbours each, threshold 5: two may go.
    check(words(8, 9), dict.fromkeys(range(lost), step))


@pytest.mark.parametrize("step", STEPS)
def test_one_drop_out_too_many_breaks_the_sum_off(step):
    with pytest.raises(SecureSumError, match="broken off"):
        run_in_process(
            words(8, 9), drop_after=dict.fromkeys(range(3), step), identities=IDENTITIES[:8]
        )


@pytest.mark.parametrize(("first", "second"), list(itertools.permutations(STEPS, 2)))
def test_two_drop_outs_at_different_steps(first, second):
    check(words(8, 3), {1: first, 6: second})


@pytest.mark.parametrize("step", STEPS)
def test_drop_outs_in_a_sparse_graph(step):
    check(words(30, 5), {4: step, 17: step}, neighbours=8, threshold=6)


@settings(max_examples=25, deadline=None)
@given(
    st.dictionaries(st.integers(0, 19), st.sampled_from(STEPS), max_size=6), st.integers(0, 2**32)
)
def test_a_sum_is_exact_or_there_is_none(drops, seed):
    vectors = words(20, 4, seed)
    if len(drops) <= 3:  # 10 neighbours, 7 must stay: three may always go
        check(vectors, drops, neighbours=10, threshold=7)
        return
    with contextlib.suppress(SecureSumError):
        check(vectors, drops, neighbours=10, threshold=7)


def test_lengths_beyond_a_block_of_masks():
    check(words(4, 2 * (1 << 14) + 3), {})


def test_integers_through_the_sum():
    rng = np.random.default_rng(1)
    for wide, bound in ((False, 10**6), (True, 10**12)):
        coding = IntegerCoding(bound, 6, wide=wide)
        values = rng.integers(-bound, bound + 1, (6, 50))
        done = run_in_process([coding.encode(row) for row in values], identities=IDENTITIES[:6])
        assert np.array_equal(coding.decode(done.total), values.sum(axis=0))


def test_the_bytes_are_counted():
    done = check(words(6, 1000), {})
    assert (done.bytes_up > 4000).all()
    assert (done.bytes_up < 4000 + 2000).all()
    assert (done.bytes_down > 0).all()
    assert done.server_seconds > 0


@pytest.mark.parametrize("kind", [PartnerKeys, Inbox, Survivors, Confirmations])
def test_nothing_is_revealed_by_a_sum_that_was_broken_off(make_session, kind):
    session = make_session().until(kind)
    with pytest.raises(SecureSumError):
        session.step(silent=range(3))
    with pytest.raises(SecureSumError, match="no sum"):
        _ = session.server.result
    with pytest.raises(SecureSumError, match="over"):
        session.server.advance()
    with pytest.raises(SecureSumError, match="takes no messages"):
        session.server.receive(0, session.clients[0])
    # What the recommender has is still under masks that nobody's shares have taken off.
    for chosen in itertools.chain.from_iterable(
        itertools.combinations(range(7), size) for size in range(1, 8)
    ):
        assert not np.array_equal(session.server._total, session.plain_sum(chosen))


def test_unknown_steps_are_refused():
    with pytest.raises(SecureSumError, match="unknown steps"):
        run_in_process(words(3, 2), drop_after={0: "lunch"})


def test_a_result_cannot_be_changed(make_session):
    result = make_session().start().finish()
    with pytest.raises(ValueError, match="read-only"):
        result.total[0] = 1


def test_waiting_says_whom_the_sum_is_waiting_for(make_session):
    session = make_session().start()
    assert session.server.waiting == frozenset(range(7))
    session.server.receive(2, session.clients[2].answer(session.outgoing[2]))
    assert session.server.waiting == frozenset(range(7)) - {2}
    assert "Advertisement" in repr(session.server)


def test_the_example_of_the_page_runs(capsys):
    page = Path(__file__).parents[3] / "docs" / "secure-sums.md"
    code = page.read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    exec(code, {})
    assert capsys.readouterr().out.startswith("[20 40 60] (0, 1, 2,")
