"""What a hostile device, or a damaged file, does to the recommender: an error in words, and in time."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from typer.testing import CliRunner

from hdpmf.cli.main import app
from hdpmf.errors import ConfigError, StorageError
from hdpmf.secure_sum import DeviceIdentity
from hdpmf.secure_sum.primitives import is_identity_key, verifies
from hdpmf.service.enrolment import read_card
from hdpmf.service.settings import RunSettings
from hdpmf.transport.keys import NodeKey

from .test_hostile_device import town, wrong_shares

# 20. A card with a bad key is enrolled, and then the service cannot start.


def _card(name: str = "d", identity: str | None = None, node: str | None = None) -> bytes:
    identity = DeviceIdentity.generate().public.hex() if identity is None else identity
    node = NodeKey.generate().public if node is None else node
    return json.dumps({"name": name, "identity": identity, "node": node, "users": 1}).encode()


def _public(curve: ec.EllipticCurve) -> str:
    key = ec.generate_private_key(curve).public_key()
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_bytes(serialization.Encoding.PEM, form).decode()


def test_honest_cards_are_taken() -> None:
    for _ in range(20):
        assert read_card(_card()).name == "d"
    assert read_card(_card(node=_public(ec.SECP384R1())))


@pytest.mark.parametrize(
    "node",
    ["", "no key", "Schlüssel", ec.SECP256K1(), ec.BrainpoolP256R1()],
    ids=lambda node: getattr(node, "name", node),
)
def test_a_card_without_a_node_key_is_refused_at_once(node: str | ec.EllipticCurve) -> None:
    with pytest.raises(ConfigError, match=r"'d'.*node key"):
        read_card(_card(node=node if isinstance(node, str) else _public(node)))


SMALL = [
    bytes([1, *bytes(31)]),
    bytes(32),
    (2**255 - 20).to_bytes(32, "little"),
    bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"),
    bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"),
]
"""Points of orders 1, 4, 2, 8 and 8."""


@pytest.mark.parametrize("key", [*SMALL, bytes([2, *bytes(31)]), b"\xff" * 32, (2**255 - 18).to_bytes(32, "little")])
def test_an_identity_under_which_anybody_can_sign_is_refused(key: bytes) -> None:
    with pytest.raises(ConfigError, match="identity key"):
        read_card(_card(identity=key.hex()))


def test_why_small_points_are_no_identities() -> None:
    """A signature that nobody made, R neutral and s 0, is good for everything under the neutral point as a key."""
    neutral = SMALL[0]
    assert verifies(neutral, neutral + bytes(32), b"whatever")
    assert not is_identity_key(neutral)


def test_one_node_key_on_two_cards_is_seen_in_any_form(tmp_path: Path) -> None:
    key = NodeKey.generate().public
    assert read_card(_card("a", node=key)).node == read_card(_card("b", node=key.replace("\n", "\r\n"))).node


def test_a_bad_card_changes_nothing_on_the_roster(tmp_path: Path) -> None:
    def call(*arguments: object) -> tuple[int, str]:
        done = CliRunner().invoke(app, [str(each) for each in arguments])
        return done.exit_code, str(done.exception or "") + done.output

    folder, good, bad = tmp_path / "r", tmp_path / "good.json", tmp_path / "bad.json"
    good.write_bytes(_card("good"))
    bad.write_bytes(_card("bad", node="none"))
    call("recommender", "init", folder, "--data", "synthetic")
    assert call("recommender", "enroll", folder, good)[0] == 0
    code, said = call("recommender", "enroll", folder, bad, "--remove", "good")
    assert code != 0
    assert "'bad'" in said
    assert [card["name"] for card in json.loads((folder / "roster.json").read_bytes())["devices"]] == ["good"]


# 21. A truncated state.json gives a traceback. 15. Who gave wrong shares stays named.


def test_who_gave_wrong_shares_stays_named_and_a_damaged_state_is_an_error_of_ours(tmp_path: Path) -> None:
    with ExitStack() as stack:
        service, names, _ = town(tmp_path, stack, {4: wrong_shares})
        run = service.begin(RunSettings(method="hdp-sum", view="sums", minimum=9, rounds=1))
        outcome = service.conduct(run)
    assert outcome.summary["wrong_shares"] == [names[4]]
    folder = service.folder
    assert folder.run_files(run).load().barred == (names[4],)  # a recommender that is killed knows it, too
    shown = CliRunner().invoke(app, ["recommender", "status", str(folder.path)])
    assert shown.exit_code == 0
    assert f"device {names[4][:8]} gave or dealt wrong shares in run {run.hex()[:12]}" in shown.output
    state = folder.path / "state.json"
    whole = state.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", b"{}", b"[]", b"\xff\xfe", whole.replace(b'"refusals":{', b'"x":{')):
        state.write_bytes(damaged)
        with pytest.raises(StorageError, match="delete it"):
            folder.state()
    state.write_bytes(whole)
    assert folder.state() == json.loads(whole)
