"""Blind tokens against the published vectors, and what their issuer can learn: nothing."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import gmpy2
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from hdpmf.common.aggregation.two_servers import tokens
from hdpmf.common.aggregation.two_servers.tokens import (
    REQUEST_SIZE,
    RESPONSE_SIZE,
    TOKEN_SIZE,
    IssuerKey,
    Token,
    TokenKey,
    blind,
    blind_sign,
    blind_token,
    challenge_digest,
    encode_pss,
)
from hdpmf.errors import ProtocolError
from tests.world import issuer

VECTORS = json.loads(Path(__file__).with_name("token_vectors.json").read_text())
CHALLENGE = challenge_digest("films", bytes(32), "leader")


@pytest.fixture(params=["GMP", "Python"])
def arithmetic(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both kinds of integers that an issuer computes with."""
    kind = (gmpy2.mpz, gmpy2.powmod_sec) if request.param == "GMP" else (int, pow)
    monkeypatch.setattr(tokens, "_arithmetic", lambda: kind)


def _bytes(vector: dict[str, Any], *names: str) -> list[bytes]:
    return [bytes.fromhex(vector[name]) for name in names]


def _numbers(p: int, q: int, e: int, d: int) -> rsa.RSAPrivateNumbers:
    return rsa.RSAPrivateNumbers(
        p, q, d, rsa.rsa_crt_dmp1(d, p), rsa.rsa_crt_dmq1(d, q), rsa.rsa_crt_iqmp(p, q),
        rsa.RSAPublicNumbers(e, p * q),
    )  # fmt: skip


@pytest.mark.usefixtures("arithmetic")
@pytest.mark.parametrize("vector", VECTORS["rfc9474"], ids=lambda vector: vector["name"])
def test_rfc_9474(vector: dict[str, Any]) -> None:
    p, q, e, d, inverse, blinded, signed, final = (
        int(vector[name], 16)
        for name in ("p", "q", "e", "d", "inv", "blinded_msg", "blind_sig", "sig")
    )
    message, salt, encoded = _bytes(vector, "prepared_msg", "salt", "encoded_msg")
    n = p * q
    assert encode_pss(message, n.bit_length() - 1, salt) == encoded
    assert blind(message, n, e, salt, pow(inverse, -1, n)) == blinded
    assert blind_sign(_numbers(p, q, e, d), blinded) == signed
    assert signed * inverse % n == final


@pytest.mark.usefixtures("arithmetic")
@pytest.mark.parametrize("vector", VECTORS["rfc9578"])
def test_rfc_9578(vector: dict[str, Any]) -> None:
    secret, public, challenge, nonce, salt, request, response, token = _bytes(
        vector, "skS", "pkS", "token_challenge", "nonce", "salt",
        "token_request", "token_response", "token",
    )  # fmt: skip
    private = load_pem_private_key(secret, None)
    assert isinstance(private, rsa.RSAPrivateKey)
    key, digest = IssuerKey(private), sha256(challenge).digest()
    assert key.public.encoded == public
    factor = int(vector["blind"], 16)
    blinded = blind_token(TokenKey(public), digest, nonce, salt=salt, factor=factor)
    assert blinded.request == request
    assert key.sign(request) == response
    assert blinded.finish(key.public, digest, response).encode() == token
    assert key.public.holds(Token.decode(token))


def test_gmp_is_used_where_it_is_installed_and_by_issuers_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert tokens._arithmetic() == (gmpy2.mpz, gmpy2.powmod_sec)
    monkeypatch.setitem(sys.modules, "gmpy2", None)
    assert tokens._arithmetic.__wrapped__() == (int, pow)
    code = "import sys, hdpmf.private.device.participant; sys.exit('gmpy2' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_a_challenge_is_that_of_rfc_9577() -> None:
    """The first vector of RFC 9578 has a context of 32 bytes, as ours."""
    (challenge,) = _bytes(VECTORS["rfc9578"][0], "token_challenge")
    context = challenge[challenge.index(b"issuer.example") + 15 :][:32]
    assert challenge_digest("issuer.example", context, "origin.example") == (
        sha256(challenge).digest()
    )


def a_token(key: IssuerKey) -> Token:
    blinded = blind_token(key.public, CHALLENGE, secrets.token_bytes(32))
    return blinded.finish(key.public, CHALLENGE, key.sign(blinded.request))


def test_a_token_travels_in_a_header_and_holds_for_nothing_else() -> None:
    key, token = issuer(), a_token(issuer())
    assert Token.from_header(token.to_header()) == token
    assert len(token.encode()) == TOKEN_SIZE == 354
    assert key.public.holds(token)
    assert not issuer(1).public.holds(token)
    for name in ("nonce", "challenge", "key_id", "authenticator"):
        before = getattr(token, name)
        for changed in (before[:-1] + bytes([before[-1] ^ 1]), bytes(len(before))):
            assert not key.public.holds(replace(token, **{name: changed}))
    for header in ("", "PrivateToken", 'PrivateToken token=""', "Bearer " + "A" * 472):
        with pytest.raises(ProtocolError):
            Token.from_header(header)
    for data in (b"", token.encode()[:-1], b"\x00\x01" + token.encode()[2:]):
        with pytest.raises(ProtocolError):
            Token.decode(data)


def test_the_same_request_gets_the_same_answer_and_malformed_ones_none() -> None:
    key = issuer()
    blinded = blind_token(key.public, CHALLENGE, bytes(32))
    assert key.sign(blinded.request) == key.sign(blinded.request)
    assert (len(blinded.request), len(key.sign(blinded.request))) == (REQUEST_SIZE, RESPONSE_SIZE)
    head, body = blinded.request[:3], blinded.request[3:]
    for request in (
        b"", blinded.request[:-1], blinded.request + b"x", b"\x00\x01" + blinded.request[2:],
        head[:2] + bytes([head[2] ^ 1]) + body, head + bytes(256), head + b"\xff" * 256,
    ):  # fmt: skip
        with pytest.raises(ProtocolError, match="no request"):
            key.sign(request)


def test_an_answer_that_is_no_signature_is_refused() -> None:
    key = issuer()
    blinded = blind_token(key.public, CHALLENGE, bytes(32))
    good = key.sign(blinded.request)
    other = blind_token(key.public, CHALLENGE, bytes(32))
    for answer in (b"", good[:-1], bytes(256), key.sign(other.request), b"\xff" * 256):
        with pytest.raises(ProtocolError):
            blinded.finish(key.public, CHALLENGE, answer)
    second = issuer(1)  # a key of this device's own would tell whose the token is
    tagged = second.sign(second.public.id[-1:].join((b"\x00\x02", b"\x00" + blinded.request[4:])))
    with pytest.raises(ProtocolError):
        blinded.finish(key.public, CHALLENGE, tagged)


@pytest.mark.usefixtures("arithmetic")
def test_a_wrong_computation_is_not_handed_out() -> None:
    """One signature with a fault in one half would give the factors away."""
    numbers = issuer()._private.private_numbers()
    faulty = rsa.RSAPrivateNumbers(
        numbers.p, numbers.q, numbers.d, numbers.dmp1 + 2, numbers.dmq1, numbers.iqmp,
        numbers.public_numbers,
    )  # fmt: skip
    with pytest.raises(ProtocolError, match="came out wrong"):
        blind_sign(faulty, 12345)


@pytest.mark.usefixtures("arithmetic")
def test_what_is_raised_to_the_secret_exponent_is_blinded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time would tell about the key if a device chose it."""
    seen: list[int] = []
    numbers = issuer()._private.private_numbers()
    number, power = tokens._arithmetic()

    def noted(base: int, exponent: int, modulus: int) -> Any:
        seen.append(int(base))
        return power(base, exponent, modulus)

    monkeypatch.setattr(tokens, "_arithmetic", lambda: (number, noted))
    assert blind_sign(numbers, 12345) == blind_sign(numbers, 12345)
    assert len(seen) == 4
    assert seen[0] == seen[1] != seen[2] == seen[3]
    assert 12345 not in seen


@pytest.mark.parametrize(
    "spoil",
    [
        lambda key: b"",
        lambda key: key[:-1],
        lambda key: key + b"x",
        lambda key: b"\x31" + key[1:],
        lambda key: key[:-1] + b"\x03",  # another exponent
        lambda key: key[:81] + b"\x00" + key[82:],  # a shorter modulus
        lambda key: key[:-6] + bytes([key[-6] & 0xFE]) + key[-5:],  # an even one
    ],
)
def test_a_key_has_one_encoding_of_2048_bits(spoil: Any) -> None:
    """Of several for one key a recommender could show each device another one."""
    with pytest.raises(ProtocolError, match="2,048 bits"):
        TokenKey(spoil(issuer().public.encoded))


def test_a_secret_key_is_read_as_it_was_written() -> None:
    key = issuer()
    again = IssuerKey.from_bytes(key.to_bytes())
    assert again.public.encoded == key.public.encoded
    assert key.to_bytes()[-32:].hex() not in repr(key) + repr(again)
    for data in (b"", b"x" * 1200, key.public.encoded):
        with pytest.raises(ProtocolError):
            IssuerKey.from_bytes(data)


def test_every_request_fits_every_token() -> None:
    """All that the issuer has seen, and all that the leader has, link nobody to a report.

    For each pair of a request and a token there is exactly one blinding factor that explains it,
    and factors are drawn uniformly: each of all assignments is as likely as the true one.
    """
    key = issuer()
    asked = [blind_token(key.public, CHALLENGE, secrets.token_bytes(32)) for _ in range(4)]
    answers = [key.sign(blinded.request) for blinded in asked]
    shown = [
        blinded.finish(key.public, CHALLENGE, answer)
        for blinded, answer in zip(asked, answers, strict=True)
    ]
    n = key.public.modulus
    for blinded, answer in zip(asked, answers, strict=True):
        request, signed = (int.from_bytes(data, "big") for data in (blinded.request[3:], answer))
        for token in shown:
            final = int.from_bytes(token.authenticator, "big")
            factor = signed * pow(final, -1, n) % n
            # By this factor the token's own message is the request, and its signature the answer.
            assert pow(final, 65_537, n) * pow(factor, 65_537, n) % n == request
            assert final * factor % n == signed
    seen = b"".join(blinded.request for blinded in asked) + b"".join(answers)
    for token in shown:
        for part in (token.nonce, token.nonce[:16], token.nonce[16:], token.authenticator[:16]):
            assert part not in seen


def test_factors_are_uniform() -> None:
    """The leading byte of requests for one nonce: chi-square at the level 10^-6, 16 classes."""
    key = issuer().public
    n, counts = 640, [0] * 16
    for _ in range(n):
        blinded = blind_token(key, CHALLENGE, bytes(32), salt=bytes(48))  # one message
        request = int.from_bytes(blinded.request[3:], "big")
        counts[min(16 * request // key.modulus, 15)] += 1
    assert sum((count - n / 16) ** 2 / (n / 16) for count in counts) < 57.0
