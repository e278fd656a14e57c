"""Who gets in, and how often: attacks on the enrolment of participants."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from hdpmf.common.protocol.documents import canonical
from hdpmf.common.protocol.enrolment import MAX_ENROLMENT, PARTICIPANTS_PATH, SignedEnrolment
from hdpmf.common.protocol.identity import Identity
from hdpmf.errors import ConfigError
from hdpmf.untrusted.service.participants import (
    FILE,
    KEY,
    EnrolmentDesk,
    EnrolmentRules,
    Invitations,
    Participants,
)
from hdpmf.untrusted.service.token_issuer import TokenIssuer
from hdpmf.untrusted.service.website import Website

SHOP, OTHER = "https://shop.example", "https://other.example"
LOGIN = "https://login.shop.example"
ANA, BEN, THIEF = (Identity.generate() for _ in range(3))
ISSUER = ed25519.Ed25519PrivateKey.generate()


class Shop:
    """A recommender's way in, with a clock that the test moves."""

    def __init__(self, folder: Path, key: Any = ISSUER, **rules: Any) -> None:
        self.now = 1_800_000_000.0
        self.folder = folder
        self.participants = Participants(folder / FILE)
        (folder / "login.pem").write_bytes(public_pem(key))
        desk = EnrolmentDesk(folder, EnrolmentRules(**rules), SHOP, lambda: self.now)
        self.app = Website(folder, TokenIssuer(self.participants), desk=desk).app

    def invite(self) -> str:
        return Invitations(self.folder / KEY).make()

    def post(self, *bodies: bytes) -> list[int]:
        """The answers to requests that come at once."""

        async def answers() -> list[httpx.Response]:
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url=SHOP) as client:
                posted = (client.post(PARTICIPANTS_PATH, content=body) for body in bodies)
                return list(await asyncio.gather(*posted))

        found = asyncio.run(answers())
        assert all(answer.content == b"" for answer in found)  # a refusal has no words
        return [answer.status_code for answer in found]

    def enrol(self, who: Identity, address: str = SHOP, **proof: str) -> int:
        return self.post(SignedEnrolment.make(who, address, **proof).to_bytes())[0]


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path, issuer=LOGIN)
    yield made
    made.participants.close()


def public_pem(key: Any) -> bytes:
    kind, form = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    return bytes(key.public_key().public_bytes(kind, form))


def part(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def jwt(now: float, key: Any = ISSUER, head: Any = None, **claims: Any) -> str:
    """A token of a login."""
    given = {"iss": LOGIN, "aud": SHOP, "sub": "ana", "exp": now + 60} | claims
    given = {name: value for name, value in given.items() if value is not None}
    alg = "EdDSA"
    if isinstance(key, (ec.EllipticCurvePrivateKey, rsa.RSAPrivateKey)):
        alg = "RS256" if isinstance(key, rsa.RSAPrivateKey) else "ES256"
    text = f"{part(json.dumps(head or {'alg': alg}).encode())}.{part(json.dumps(given).encode())}"
    data = text.encode()
    if isinstance(key, bytes):
        signature = hmac.digest(key, data, "sha256")
    elif isinstance(key, ed25519.Ed25519PrivateKey):
        signature = key.sign(data)
    elif isinstance(key, rsa.RSAPrivateKey):
        signature = key.sign(data, padding.PKCS1v15(), hashes.SHA256())
    else:
        r, s = decode_dss_signature(key.sign(data, ec.ECDSA(hashes.SHA256())))
        signature = r.to_bytes(32, "big") + s.to_bytes(32, "big")
    return f"{text}.{part(signature)}"


def test_a_secret_lets_one_participant_in_once(shop: Shop) -> None:
    secret = shop.invite()
    assert shop.enrol(ANA, secret=secret) == 201
    assert shop.enrol(ANA, secret=secret) == 200  # its first answer was lost
    assert shop.enrol(BEN, secret=secret) == 403
    assert shop.enrol(BEN, secret=shop.invite()) == 201
    assert len(shop.participants) == 2


def test_of_many_who_show_one_secret_at_once_one_gets_in(shop: Shop) -> None:
    secret = shop.invite()
    everybody = [Identity.generate() for _ in range(20)]
    made = [SignedEnrolment.make(who, SHOP, secret=secret).to_bytes() for who in everybody]
    assert sorted(shop.post(*made)) == [201, *[403] * 19]


def test_a_stolen_invitation_is_noticed_by_its_owner_and_worth_one_participant(shop: Shop) -> None:
    secret = shop.invite()
    assert shop.enrol(THIEF, secret=secret) == 201
    assert shop.enrol(ANA, secret=secret) == 403
    assert [shop.enrol(Identity.generate(), secret=secret) for _ in range(3)] == [403] * 3
    assert len(shop.participants) == 1


def test_nobody_is_enrolled_by_what_they_signed_for_another_recommender(shop: Shop) -> None:
    assert shop.enrol(ANA, OTHER, secret=shop.invite()) == 403
    signed = SignedEnrolment.make(ANA, SHOP, secret=shop.invite())
    for change in ({"secret": shop.invite()}, {"identity": part(THIEF.public)}):
        forged = msgspec.structs.replace(signed.enrolment, **change)
        body = canonical(msgspec.structs.replace(signed, enrolment=forged))
        assert shop.post(body) == [422]
    assert shop.participants.find(ANA.public) is None


def test_made_up_secrets_and_used_ones_are_refused_alike(shop: Shop, tmp_path: Path) -> None:
    """So nobody learns which secrets there are, or who is enrolled."""
    used = shop.invite()
    shop.enrol(ANA, secret=used)
    data = base64.urlsafe_b64decode(used)
    near = part(data[:-1] + bytes([data[-1] ^ 1]))
    foreign = Invitations(tmp_path / "of another recommender").make()
    for secret in (used, near, foreign, "", "x", "A" * 32):
        assert shop.enrol(BEN, secret=secret) == 403
    assert shop.enrol(BEN, login="a.b.c") == 403
    assert shop.enrol(BEN, login=jwt(shop.now, sub="ben"), secret="x") == 403
    assert len(shop.participants) == 1


def test_a_login_lets_in_and_a_new_device_takes_the_old_ones_place(shop: Shop) -> None:
    assert shop.enrol(ANA, login=jwt(shop.now)) == 201
    number = shop.participants.find(ANA.public)
    assert shop.enrol(BEN, login=jwt(shop.now, sub="ben", aud=[OTHER, SHOP])) == 201
    assert shop.enrol(THIEF, login=jwt(shop.now)) == 200
    assert shop.participants.find(THIEF.public) == number  # the same tokens, not more
    assert shop.participants.find(ANA.public) is None
    assert shop.enrol(BEN, login=jwt(shop.now)) == 403  # nobody is two people
    assert len(shop.participants) == 2


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": 1_800_000_000.0},
        {"exp": 1},
        {"exp": None},
        {"exp": "9999999999"},
        {"nbf": 1_800_000_100.0},
        {"iss": "https://evil.example"},
        {"aud": OTHER},
        {"aud": None},
        {"aud": "xhttps://shop.example"},
        {"sub": ""},
        {"sub": None},
        {"sub": 7},
    ],
)
def test_logins_that_are_over_or_for_somebody_else_are_refused(
    shop: Shop, claims: dict[str, Any]
) -> None:
    assert shop.enrol(ANA, login=jwt(shop.now, **claims)) == 403
    assert len(shop.participants) == 0


def test_the_key_says_which_algorithm_a_login_has(shop: Shop) -> None:
    good = jwt(shop.now)
    stripped = good[: good.rindex(".") + 1]
    public = (shop.folder / "login.pem").read_bytes()
    unsigned = part(json.dumps({"alg": "none"}).encode())
    for login in (
        jwt(shop.now, head={"alg": "none"}),
        stripped,
        f"{unsigned}.{good.split('.')[1]}.",
        jwt(shop.now, public, head={"alg": "HS256"}),
        jwt(shop.now, ISSUER, head={"alg": "HS256"}),
        jwt(shop.now, ISSUER, head={"alg": "EdDSA", "crit": ["x"]}),
        jwt(shop.now, ed25519.Ed25519PrivateKey.generate()),
        f"{good}=",
        f"{good}.{good}",
        "." * 2000,
    ):
        assert shop.enrol(ANA, login=login) == 403
    assert shop.enrol(ANA, login=good) == 201


@pytest.mark.parametrize(
    "key",
    [ec.generate_private_key(ec.SECP256R1()), rsa.generate_private_key(65_537, 2048)],
    ids=["ES256", "RS256"],
)
def test_other_kinds_of_keys(tmp_path: Path, key: Any) -> None:
    shop = Shop(tmp_path, key, issuer=LOGIN)
    assert shop.enrol(ANA, login=jwt(shop.now, ISSUER)) == 403
    good = jwt(shop.now, key)
    assert shop.enrol(ANA, login=good[:-4] + "AAAA") == 403
    assert shop.enrol(ANA, login=good) == 201


def test_weak_keys_of_a_login_are_refused_at_the_start(tmp_path: Path) -> None:
    for key in (rsa.generate_private_key(65_537, 1024), ec.generate_private_key(ec.SECP384R1())):
        (tmp_path / "login.pem").write_bytes(public_pem(key))
        with pytest.raises(ConfigError, match="must be Ed25519"):
            EnrolmentDesk(tmp_path, EnrolmentRules(issuer=LOGIN), SHOP)


def test_open_enrolment_is_so_many_a_minute(tmp_path: Path) -> None:
    shop = Shop(tmp_path, open=3)
    made = [SignedEnrolment.make(Identity.generate(), SHOP).to_bytes() for _ in range(8)]
    assert sorted(shop.post(*made)) == [201] * 3 + [429] * 5
    shop.now += 20
    assert sorted(shop.post(*made[3:])) == [201] + [429] * 4
    shop.now -= 1e6  # a clock that is put back gives nothing away
    assert shop.post(made[7]) == [429]
    assert len(shop.participants) == 4
    assert shop.enrol(ANA, secret=shop.invite()) == 201  # who is invited does not wait


def test_who_was_not_let_in_is_nobody(shop: Shop) -> None:
    assert shop.enrol(ANA) == 403
    assert shop.post(b"", b"{}", b"x" * MAX_ENROLMENT) == [422] * 3
    assert shop.post(b"x" * (MAX_ENROLMENT + 1)) == [413]
    assert len(shop.participants) == 0


def test_what_is_on_the_disk_outlives_a_kill_and_names_nobody(shop: Shop) -> None:
    shop.enrol(ANA, login=jwt(shop.now, sub="ana@shop.example"))
    again = Participants(shop.folder / FILE)
    assert again.find(ANA.public) == 1
    again.close()
    assert (shop.folder / FILE).stat().st_mode & 0o777 == 0o600
    kept = b"".join(path.read_bytes() for path in shop.folder.glob(f"{FILE}*"))
    assert b"ana@shop.example" not in kept
