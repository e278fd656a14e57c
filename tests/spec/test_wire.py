"""``spec/vectors/wire`` holds for hdpmf and for a client that knows ``spec/wire.md`` alone, and
real servers count that client's reports.
"""

from __future__ import annotations

import ast
import json
import re
import secrets
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from hdpmf.common.aggregation.two_servers.dap.hpke import KeyPair, input_share_info
from hdpmf.common.aggregation.two_servers.dap.messages import (
    HpkeConfig,
    InputShareAad,
    PlaintextInputShare,
    ReportError,
    ReportRefusedError,
    Role,
    UploadRequest,
)
from hdpmf.common.aggregation.two_servers.tokens import IssuerKey, Token, TokenKey, blind_token
from hdpmf.common.protocol.documents import from_base64, to_base64
from hdpmf.common.protocol.enrolment import read_enrolment
from hdpmf.common.protocol.identity import verifies
from hdpmf.common.protocol.key_list import config_of, follow_key_list
from hdpmf.common.protocol.refusal import RULES, Known, Limits, why_refused
from hdpmf.common.protocol.servers import Collector, Server
from hdpmf.common.protocol.task import (
    Linear,
    Pairs,
    configuration_of,
    is_asked,
    prio_of,
    read_task,
    signed_token_request,
    task_id,
    token_challenge,
)
from hdpmf.errors import DapError, HdpmfError, ProtocolError
from hdpmf.untrusted.aggregator.tasks import AggregatorTask
from tests.aggregator.server_processes import HELPER, LEADER, Asked, Pair, make_task, near, taken
from tests.spec import client, vectors
from tests.world import issuer

SPEC = Path(__file__).parents[2] / "spec"
DOCUMENTS, REPORTS, TOKENS = (
    json.loads((vectors.FOLDER / f"{name}.json").read_text())
    for name in ("documents", "reports", "tokens")
)
BAD = DOCUMENTS["bad_tasks"]
ELSEWHERE = {
    "D4": (
        "unit/participant/test_decide.py",
        "test_a_file_that_is_not_what_its_name_says_is_refused",
    ),
    "C1": (
        "unit/participant/test_decide.py",
        "test_another_catalogue_for_one_person_is_refused",
    ),
    "K2": ("spec/test_wire.py", "test_an_older_list_and_a_second_one_are_refused"),
    "R3": (
        "attacks/servers/test_tokens.py",
        "test_no_device_gets_two_tokens_and_no_token_counts_twice",
    ),
}
"""Rules that need a history: tests of them, by file."""


def test_the_vectors_are_what_the_module_makes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in vectors.FOLDER.iterdir():
        (tmp_path / path.name).write_text(path.read_text() if path.name == "tokens.json" else "")
    before, folder = {}, vectors.FOLDER
    monkeypatch.setattr(vectors, "FOLDER", tmp_path)
    vectors.main()
    for path in folder.iterdir():
        before[path.name] = path.read_text() == (tmp_path / path.name).read_text()
    assert before == dict.fromkeys(("documents.json", "reports.json", "tokens.json"), True)


def test_the_client_knows_nothing_of_hdpmf() -> None:
    tree = ast.parse(Path(client.__file__).read_text())
    names = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    names += [
        each.name for node in ast.walk(tree) if isinstance(node, ast.Import) for each in node.names
    ]
    assert not [name for name in names if name.startswith(("hdpmf", "tests", "numpy", "msgspec"))]


def test_every_rule_of_the_specification_is_shown_and_those_of_tasks_are_pythons() -> None:
    text = (SPEC / "wire.md").read_text()
    used = {bad["rule"] for bad in BAD} | {each["rule"] for each in DOCUMENTS["key_lists"]}
    used |= {bad["rule"] for each in (*REPORTS, TOKENS) for bad in each["bad"]}
    used.add(DOCUMENTS["values_without_stars"]["rule"])
    stated = set(re.findall(r"^\| \*\*(\w+)\*\* \|", text, re.MULTILINE))
    assert {str(number) for number in RULES} <= stated
    for rule, (file, name) in ELSEWHERE.items():
        assert f"def {name}(" in (SPEC.parent / "tests" / file).read_text(), rule
    assert used - {""} | set(ELSEWHERE) == stated


# Documents


@pytest.mark.parametrize("place", [0, 1])
def test_good_tasks_are_read(place: int) -> None:
    vector = DOCUMENTS["tasks"][place]
    data = vector["document"].encode()
    name = task_id(data)
    assert to_base64(name) == client.b64(client.digest("task", data)) == vector["id"]
    task, plain = read_task(data), client.read_task(data)
    configuration = configuration_of(task, name).encode()
    assert (
        configuration == client.configuration(plain, name) == bytes.fromhex(vector["configuration"])
    )
    assert why_refused(task, *known(), DOCUMENTS["now"]) is None
    client.check_task(plain, DOCUMENTS["known"], DOCUMENTS["now"])
    assert Fraction(*client.rho(plain["sums"])) == task.sums.rho
    assert task.servers.digest.replace(" ", "") == DOCUMENTS["servers_digest"]
    for secret in (bytes(32), b"x" * 32):
        assert is_asked(task, name, secret) == client.is_asked(plain, name, secret)


def known(**other: Any) -> tuple[Known, Limits]:
    stated, task = DOCUMENTS["known"] | other, read_task(DOCUMENTS["tasks"][0]["document"].encode())
    pinned = Known(
        task.servers, task.collector, stated["catalogue"], stated["items"], stated["stars"]
    )
    return pinned, Limits(rho=Fraction(*stated["rho"]))


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: f"{bad['rule']}: {bad['what']}")
def test_bad_tasks_are_refused_by_their_rule(bad: dict[str, str]) -> None:
    data, now = bad["document"].encode(), DOCUMENTS["now"]
    with pytest.raises(client.RefusedError) as refused:
        client.check_task(client.read_task(data), DOCUMENTS["known"], now)
    assert refused.value.rule == bad["rule"]
    if bad["rule"].isdigit():
        found = why_refused(read_task(data), *known(), now)
        assert found is not None
        assert str(found.rule) == bad["rule"]
    else:
        with pytest.raises(ProtocolError):
            read_task(data)


def test_values_are_refused_where_there_are_no_stars() -> None:
    data, now = DOCUMENTS["values_without_stars"]["document"].encode(), DOCUMENTS["now"]
    with pytest.raises(client.RefusedError, match="4"):
        client.check_task(client.read_task(data), DOCUMENTS["known"] | {"stars": False}, now)
    found = why_refused(read_task(data), *known(stars=False), now)
    assert found is not None
    assert found.rule == 4


@pytest.mark.parametrize("vector", DOCUMENTS["key_lists"], ids=lambda each: each["what"])
def test_lists_of_keys_are_taken_or_refused(vector: dict[str, str]) -> None:
    data, now = vector["document"].encode(), DOCUMENTS["now"]
    plain = client.read(data, "key list", {"keys", "signature"})
    card = DOCUMENTS["known"]["servers"]["leader"]
    if not vector["rule"]:
        found = config_of(Server(**card), data, now)
        assert (found.id, found.public_key) == client.hpke_key(plain, card, now)
        return
    with pytest.raises(client.RefusedError) as refused:
        client.hpke_key(plain, card, now)
    assert refused.value.rule == vector["rule"]
    with pytest.raises(HdpmfError):
        config_of(Server(**card), data, now)


def test_an_older_list_and_a_second_one_are_refused() -> None:
    card = Server(**DOCUMENTS["known"]["servers"]["leader"])
    lists = [
        client.canonical(vectors.key_list("north", 1, **how)) for how in ({}, {"serial": 2})
    ] + [client.canonical(vectors.key_list("north", 9))]
    for other in lists[1:]:
        with pytest.raises(ProtocolError):
            follow_key_list(other, lists[0], card)


# Reports


@pytest.mark.parametrize("vector", REPORTS, ids=["linear", "pairs"])
def test_reports_are_the_same_bytes_and_open(vector: dict[str, Any]) -> None:
    data, body = vector["task"].encode(), bytes.fromhex(vector["body"])
    task, name = read_task(data), task_id(data)
    prio, nonce = prio_of(task, name), bytes.fromhex(vector["report_id"])
    sharded = prio.shard(prio.circuit.encode(vector["row"]), nonce, bytes.fromhex(vector["rand"]))  # type: ignore[attr-defined]
    (found,) = UploadRequest.decode(body).reports
    assert found.public_share == sharded.public_share
    assert shares_in(vector, found) == sharded.input_shares
    for each in vector["bad"]:
        assert server_refuses(vector, bytes.fromhex(each["body"])) == each["rule"], each["what"]


def shares_in(vector: dict[str, Any], found: Any) -> list[bytes]:
    data = vector["task"].encode()
    task, name = read_task(data), task_id(data)
    aad = InputShareAad(
        name, configuration_of(task, name), found.report_metadata, found.public_share
    )
    sealed = found.leader_encrypted_input_share, found.helper_encrypted_input_share
    parts = zip(vector["hpke_ids"], vector["hpke_secrets"], sealed, strict=True)
    return [
        PlaintextInputShare.decode(
            KeyPair(number, bytes.fromhex(secret)).open(share, input_share_info(role), aad.encode())
        ).payload
        for role, (number, secret, share) in zip((Role.LEADER, Role.HELPER), parts, strict=True)
    ]


def server_refuses(vector: dict[str, Any], body: bytes) -> str:
    """The rule by which a server refuses a report."""
    data = vector["task"].encode()
    document, name = read_task(data), task_id(data)
    config = HpkeConfig.decode(from_base64(document.collector.hpke))
    task = AggregatorTask(1, name, document, prio_of(document, name), bytes(32), config)
    if len(body) != task.report_size:
        return "R1"
    try:
        (found,) = UploadRequest.decode(body).reports
    except DapError:
        return "R5"
    at = found.report_metadata.time * document.precision
    if not document.begin <= at < document.end:
        return "R2"
    with pytest.raises(ReportRefusedError) as refused:
        shares_in(vector, found)
    assert refused.value.reason == ReportError.HPKE_DECRYPT_ERROR
    return "R4"


# Tokens


def test_tokens_are_the_same_bytes() -> None:
    data = TOKENS["task"].encode()
    task, name = read_task(data), task_id(data)
    nonce, salt, factor, answer = (
        bytes.fromhex(TOKENS[each]) for each in ("nonce", "salt", "factor", "answer")
    )
    key, challenge = TokenKey(from_base64(task.token_key)), token_challenge(task, name)
    number = int.from_bytes(factor, "big")
    blinded = blind_token(key, challenge, nonce, salt=salt, factor=number)
    request, finish = client.token_request(client.read_task(data), name, nonce, salt, number)
    assert blinded.request == request == bytes.fromhex(TOKENS["request"])
    signer = IssuerKey.from_bytes(bytes.fromhex(TOKENS["issuer"]))
    assert signer.sign(request) == answer
    token = blinded.finish(key, challenge, answer)
    assert token.encode() == finish(answer) == bytes.fromhex(TOKENS["token"])
    assert token.report_id == nonce[:16]
    assert Token.from_header(client.report_headers(token.encode())["authorization"]) == token
    for bad in TOKENS["bad"]:
        with pytest.raises(client.RefusedError, match=bad["rule"]):
            finish(bytes.fromhex(bad["answer"]))
        with pytest.raises(ProtocolError):
            blinded.finish(key, challenge, bytes.fromhex(bad["answer"]))


def test_requests_and_enrolments_are_signed_alike() -> None:
    device = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(TOKENS["device"]))
    request, name = bytes.fromhex(TOKENS["request"]), task_id(TOKENS["task"].encode())
    headers = client.token_headers(device, name, request)
    assert headers["hdpmf-signature"] == TOKENS["signature"]
    said = signed_token_request(name, client.sha256(request).digest())
    assert said == bytes.fromhex(TOKENS["signed"])
    public = device.public_key().public_bytes_raw()
    assert verifies(public, from_base64(TOKENS["signature"]), said)
    made = client.enrolment(device, "https://films.example", "secret")
    read = read_enrolment(made)
    assert (read.address, read.secret) == ("https://films.example", "secret")
    assert from_base64(read.identity) == public
    with pytest.raises(ProtocolError):
        read_enrolment(made.replace(b"films", b"filmz"))


# Real servers


@pytest.mark.slow
def test_real_servers_count_the_clients_reports(tmp_path: Path) -> None:
    linear = Linear(items=4, bits=8, bound=(1 << 20) - 1, cap=16, presence=1, values=1)
    pairs = Pairs(
        heads=(0, 2, 3), weights=(64, 64, 64), bits=10, bound=(1 << 24) - 1, cap=16, deviation=1
    )
    rows = {
        "linear": ([255, 0, 9, 1, -255, 0, 100, 7, 5], [255, 3, 0, 0, -255, 44, 0, 0, -9]),
        "pairs": ([1000, 0, 700], [1, 500, 900]),
    }
    with Pair(tmp_path) as pair:
        pair.start(HELPER, LEADER)
        for kind, sums in (("linear", linear), ("pairs", pairs)):
            asked = make_task(pair.servers, pair.collector.card, sums, enrolled=True, seconds=20)
            pair.give(asked)
            for row in rows[kind]:
                take_part(pair, asked, row)
            found, count = pair.collect(asked)
            assert count == 2
            adds = rows[kind] if kind == "linear" else [products(row) for row in rows[kind]]
            assert near(found, [sum(column) for column in zip(*adds, strict=True)])


def products(row: list[int]) -> list[int]:
    return [row[j] * row[k] for j in range(len(row)) for k in range(j, len(row))]


def take_part(pair: Pair, asked: Asked, row: list[int]) -> None:
    """All that a participant does with a task, by the client alone."""
    task, now = client.read_task(asked.document), int(time.time())
    name = client.digest("task", asked.document)
    cards = json.loads(pair.servers.to_json())
    pinned = {
        "servers": cards, "collector": plain(pair.collector.card), "catalogue": "items",
        "items": 4, "stars": True, "rho": (1 << 60, 1),
    }  # fmt: skip
    client.check_task(task, pinned, now)
    keys = []
    for role in (LEADER, HELPER):
        answer = pair.clients[role].get(cards[role]["url"] + "/hpke_config/signed")
        listed = client.read(answer.content, "key list", {"keys", "signature"})
        keys.append(client.hpke_key(listed, cards[role], now))
    nonce, factor = secrets.token_bytes(32), secrets.randbits(2000) | 1
    request, finish = client.token_request(task, name, nonce, secrets.token_bytes(48), factor)
    token = finish(issuer().sign(request))
    body = client.report(task, name, row, nonce[:16], now, tuple(keys))
    url = f"{cards[LEADER]['url']}/tasks/{client.b64(name)}/reports"
    end = time.monotonic() + 10  # the leader compares clocks with the helper first
    while not taken(
        answer := pair.clients[LEADER].post(url, content=body, headers=client.report_headers(token))
    ):
        assert answer.status_code == 503, answer.text
        assert time.monotonic() < end
        time.sleep(0.2)


def plain(card: Collector) -> dict[str, str]:
    return {name: getattr(card, name) for name in card.__struct_fields__}
