import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdpmf.common.aggregation.masks.shamir import PRIME, SHARE_BYTES, correct, join, split
from hdpmf.errors import SecureSumError

SECRETS = st.binary(min_size=32, max_size=32)


@st.composite
def sizes(draw):
    n = draw(st.integers(1, 40))
    return draw(st.integers(1, n)), n


@given(SECRETS, sizes(), st.data())
def test_any_threshold_of_shares_gives_the_secret(secret, size, data):
    threshold, n = size
    shares = split(secret, threshold, n)
    assert [len(share) for share in shares] == [SHARE_BYTES] * n
    points = data.draw(st.sets(st.integers(1, n), min_size=threshold))
    assert join({point: shares[point - 1] for point in points}, n) == secret


@given(SECRETS, st.integers(2, 20), st.data())
def test_fewer_shares_fit_every_secret(secret, threshold, data):
    # Perfect secrecy, shown: with one share missing, some value of it leads to any other secret.
    n = threshold + 3
    shares = {
        point: share
        for point, share in enumerate(split(secret, threshold, n), 1)
        if point < threshold
    }
    other = data.draw(SECRETS)
    zero = {**shares, threshold: bytes(SHARE_BYTES)}
    unit = {**shares, threshold: (1).to_bytes(SHARE_BYTES, "little")}
    at_zero, at_one = (_value(candidate, n) for candidate in (zero, unit))
    missing = (int.from_bytes(other, "little") - at_zero) * pow(at_one - at_zero, -1, PRIME) % PRIME
    assert join({**shares, threshold: missing.to_bytes(SHARE_BYTES, "little")}, n) == other


def _value(shares, n):
    """Lagrange's formula as in the textbook, for elements that are not secrets too; an oracle
    for ``join``.
    """
    total = 0
    for point, share in shares.items():
        top = bottom = 1
        for other in shares:
            if other != point:
                top, bottom = top * other % PRIME, bottom * (other - point) % PRIME
        total += int.from_bytes(share, "little") * top * pow(bottom, -1, PRIME)
    return total % PRIME


@given(SECRETS, sizes())
def test_joining_is_lagrange_interpolation(secret, size):
    threshold, n = size
    shares = dict(enumerate(split(secret, threshold, n), 1))
    assert _value(shares, n).to_bytes(32, "little") == secret


def test_the_prime_is_prime_and_the_smallest_above_two_to_the_256():
    def probably_prime(n, rounds=20):
        d, s = n - 1, 0
        while d % 2 == 0:
            d, s = d // 2, s + 1
        for base in random.Random(0).sample(range(2, 1 << 60), rounds):
            x = pow(base, d, n)
            if x in (1, n - 1):
                continue
            if not any((x := x * x % n) == n - 1 for _ in range(s - 1)):
                return False
        return True

    assert probably_prime(PRIME)
    assert not any(probably_prime(2**256 + n) for n in range(1, PRIME - 2**256, 2))


def test_the_same_secret_never_gets_the_same_shares():
    assert split(bytes(32), 2, 3) != split(bytes(32), 2, 3)


@pytest.mark.usefixtures("fixed_secrets")
def test_shares_of_two_secrets_look_alike():
    """The low byte of one share, over 25,600 sharings of each of two secrets: chi-square, level
    0.1 %.
    """
    for secret in (bytes(32), b"\xff" * 32):
        counts = [0] * 256
        for _ in range(25_600):
            counts[split(secret, 2, 2)[0][0]] += 1
        # 330.5 is the 99.9 % quantile of chi-square with 255 degrees of freedom.
        assert sum((count - 100) ** 2 / 100 for count in counts) < 330.5


@pytest.mark.parametrize(
    "make",
    [
        lambda: split(b"short", 2, 3),
        lambda: split(bytes(32), 4, 3),
        lambda: split(bytes(32), 0, 3),
        lambda: join({}, 3),
        lambda: join({4: bytes(SHARE_BYTES)}, 3),
        lambda: join({0: bytes(SHARE_BYTES)}, 3),
        lambda: join({1: bytes(5)}, 3),
        lambda: join({1: b"\xff" * SHARE_BYTES}, 3),
    ],
)
def test_what_cannot_be_shared_or_joined_is_refused(make):
    with pytest.raises(SecureSumError):
        make()


def test_a_value_that_is_no_secret_is_none():
    assert join({1: (1 << 256).to_bytes(SHARE_BYTES, "little")}, 1) is None


def test_the_largest_secret_and_the_first_number_beyond():
    assert join({1: (1 << 256).to_bytes(SHARE_BYTES, "little")[:-1] + b"\0"}, 1) == bytes(32)
    assert join({1: b"\xff" * 32 + b"\0"}, 1) == b"\xff" * 32
    assert join({1: (PRIME - 1).to_bytes(SHARE_BYTES, "little")}, 1) is None
    with pytest.raises(SecureSumError):
        join({1: PRIME.to_bytes(SHARE_BYTES, "little")}, 1)


@pytest.mark.parametrize("size", [31, 33])
def test_a_secret_has_32_bytes(size):
    with pytest.raises(SecureSumError):
        split(bytes(size), 2, 3)


def test_every_coefficient_is_drawn_from_all_of_its_own_bytes(monkeypatch):
    """49 bytes each, none of them twice: what the shares of a threshold of 3 are, worked out by
    hand.
    """
    draws = bytes(range(1, 99))
    monkeypatch.setattr(
        "hdpmf.common.aggregation.masks.shamir.secrets.token_bytes", lambda n: draws[:n]
    )
    first, second = (int.from_bytes(draws[k : k + 49], "little") % PRIME for k in (0, 49))
    secret = int.from_bytes(b"s" * 32, "little")
    expected = [(secret + first * x + second * x * x) % PRIME for x in (1, 2, 3, 4)]
    assert [int.from_bytes(share, "little") for share in split(b"s" * 32, 3, 4)] == expected


@given(st.integers(1, 6), st.integers(0, 7), st.data())
def test_wrong_shares_are_left_out_up_to_half_of_those_beyond_the_threshold(threshold, more, data):
    n = threshold + more
    points = data.draw(st.lists(st.integers(1, n + 3), min_size=n, max_size=n, unique=True))
    dealt = split(b"x" * 32, threshold, n + 3)
    shares = {point: dealt[point - 1] for point in points}
    wrong = data.draw(st.sets(st.sampled_from(points), max_size=more // 2))
    for point in wrong:
        value = (int.from_bytes(shares[point], "little") + 1 + point) % PRIME
        shares[point] = value.to_bytes(SHARE_BYTES, "little")
    assert correct(shares, threshold) == {
        point: shares[point] for point in points if point not in wrong
    }


def test_more_wrong_shares_are_not_corrected():
    good = dict(enumerate(split(b"x" * 32, 3, 7), 1))
    for many in (3, 4):
        shares = {
            point: bytes([share[0] ^ point, *share[1:]]) if point <= many else share
            for point, share in good.items()
        }
        assert correct(shares, 3) is None
    assert correct({1: good[1], 2: good[2]}, 3) is None  # fewer than the threshold


def test_all_shares_on_another_line_are_as_good():
    """Nothing tells a wrong dealer from a right one: the caller compares with what was committed
    to.
    """
    good = dict(enumerate(split(bytes(32), 2, 6), 1))
    assert correct(good, 2) == good
    assert correct({point: bytes(SHARE_BYTES) for point in range(1, 7)}, 2) == dict.fromkeys(
        range(1, 7), bytes(SHARE_BYTES)
    )
