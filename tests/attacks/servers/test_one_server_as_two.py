"""One operator who shows two cards, and a recommender that asks for another one's sums."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from hdpmf.common.aggregation.two_servers.dap.messages import (
    COLLECTION_JOBS_PATH,
    MEDIA_TYPES,
    CollectionJobReq,
    id_to_text,
    job_id,
)
from hdpmf.common.protocol.documents import to_base64
from hdpmf.common.protocol.identity import Identity, PartyKey
from hdpmf.common.protocol.servers import Server, Servers, plain_host, require_two_hosts
from hdpmf.errors import ConfigError
from hdpmf.untrusted.aggregator.folder import AggregatorConfig, AggregatorFolder
from hdpmf.untrusted.aggregator.http import LeaderResources, Resources
from hdpmf.untrusted.aggregator.metrics import AggregatorMetrics
from hdpmf.untrusted.aggregator.serve import open_server
from hdpmf.untrusted.service.keys import pin_servers as pin_at_recommender
from tests.aggregator.server_processes import CollectorHere, make_task


def card(name: str, url: str, **changed: Any) -> Server:
    fields = {
        "organisation": name,
        "url": url,
        "identity": PartyKey.generate().public,
        "signing": to_base64(Identity.generate().public),
    }
    return Server(**(fields | changed))


def pair(first: str = "https://a.example:1", second: str = "https://b.example:2") -> Servers:
    return Servers(leader=card("North", first), helper=card("South", second))


SAME_NAMES = [
    ("Mozilla", "Mozilla "),
    ("Mozilla", "mozilla"),
    ("Mozilla", "Mozilla."),
    ("Mozilla", "MoziIIa"),
    ("Mozilla", "M0zilla"),
    ("Mozilla", "Ｍｏｚｉｌｌａ"),
    ("Mozilla", "Mózilla"),
    ("Barn", "Bam"),
    ("North-South", "North South"),
    ("ОРЕС", "OPEC"),  # Cyrillic all of it
    ("ΑΒΚ", "ABK"),  # Greek all of it
]


@pytest.mark.parametrize(("first", "second"), SAME_NAMES)
def test_names_that_look_the_same_are_one_organisation(first: str, second: str) -> None:
    assert first != second
    leader, helper = card(first, "https://a.example"), card(second, "https://b.example")
    with pytest.raises(ConfigError, match="two organisations are needed"):
        Servers(leader=leader, helper=helper)


def test_a_name_with_invisible_characters_is_none() -> None:
    with pytest.raises(ConfigError, match="printable"):
        card("Mozilla\u200b", "https://b.example")


SAME_HOSTS = [
    ("https://sums.example:1", "https://sums.example:2"),
    ("https://sums.example", "https://SUMS.example."),
    ("https://bücher.example", "https://xn--bcher-kva.example"),
    ("https://sums.example", "https://sums。example"),
    ("https://10.0.0.1", "https://[::ffff:10.0.0.1]:8"),
    ("https://10.0.0.1", "https://10.1"),
    ("https://[2001:db8::1]", "https://[2001:DB8:0:0::1]:9"),
    ("https://localhost:1", "https://127.0.0.1:2"),
    ("https://127.0.0.1", "https://127.0.0.2"),
    ("https://localhost:1", "https://[::1]:2"),
    ("https://a.localhost", "https://b.localhost"),
]


@pytest.mark.parametrize(("first", "second"), SAME_HOSTS)
def test_two_servers_on_one_host_are_pinned_by_nobody(
    tmp_path: Path, first: str, second: str
) -> None:
    assert plain_host(first) == plain_host(second)
    one = pair(first, second)
    with pytest.raises(ConfigError, match="both servers are on one host"):
        pin_at_recommender(tmp_path, "shop", one)
    require_two_hosts(one, same_host=True)


def test_one_key_is_one_server_whatever_else_is_on_the_cards() -> None:
    leader, helper = pair().leader, pair().helper
    for changed in (
        {"identity": leader.identity},
        {"signing": leader.signing},
        {"identity": leader.signing},
    ):
        with pytest.raises(ConfigError, match="same key"):
            Servers(leader=leader, helper=msgspec.structs.replace(helper, **changed))


def authority(key: ec.EllipticCurvePrivateKey, name: str) -> str:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.now(UTC))
        .not_valid_after(datetime.now(UTC) + timedelta(days=9))
        .sign(key, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM).decode()


def test_one_authority_is_one_server() -> None:
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]
    first = authority(keys[0], "north")
    for second in (first, f"\n{first}\n", authority(keys[0], "south")):
        leader = card("North", "https://a.example", authority=first)
        helper = card("South", "https://b.example", authority=second)
        with pytest.raises(ConfigError, match="same certificate authority"):
            Servers(leader=leader, helper=helper)
    helper = card("South", "https://b.example", authority=authority(keys[1], "north"))
    Servers(leader=leader, helper=helper)


# Sums of somebody else


@pytest.mark.slow
def test_an_admitted_recommender_does_not_get_anothers_sums(tmp_path: Path) -> None:
    folders = [
        AggregatorFolder.create(
            tmp_path / role,
            AggregatorConfig(role=role, organisation=role, name=f"{role}.example"),  # type: ignore[arg-type]
        )
        for role in ("leader", "helper")
    ]
    servers = folders[0].pair(folders[1].card)
    owner, other = CollectorHere("owner"), CollectorHere("other")
    for known in (owner, other):
        folders[0].admit(known.card)
    asked = make_task(servers, owner.card, minimum=10, begin=int(time.time()))
    with open_server(folders[0]) as leader:
        leader.add_task(asked.document)
        resources = LeaderResources(folders[0], leader, AggregatorMetrics())  # type: ignore[arg-type]
        path = COLLECTION_JOBS_PATH.format(task_id=id_to_text(asked.id))
        body = CollectionJobReq(asked.interval).encode()
        job = path + "/" + id_to_text(job_id(body))

        async def ask() -> list[httpx.Response]:
            answers = []
            transport = httpx.ASGITransport(resources.app())
            async with httpx.AsyncClient(transport=transport, base_url="https://leader") as client:
                for who in (other, owner, other):
                    headers = who.headers(servers.leader)
                    headers["content-type"] = MEDIA_TYPES[CollectionJobReq]
                    answers.append(await client.post(path, content=body, headers=headers))
                    answers.append(await client.get(job, headers=headers))
            await Resources.stop(resources)
            return answers

        answers = asyncio.run(ask())
    assert [answer.status_code for answer in answers] == [403, 403, 200, 200, 403, 403]
    assert answers[2].headers["location"] == job
    assert answers[2].content == answers[3].content == b""  # it is not over yet
