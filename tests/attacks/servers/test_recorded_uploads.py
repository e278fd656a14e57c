"""A leader, or whoever is on the network, keeps what devices upload, and gets keys later."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hdpmf.common.aggregation.two_servers.dap.hpke import KeyPair, input_share_info
from hdpmf.common.aggregation.two_servers.dap.messages import (
    InputShareAad,
    PlaintextInputShare,
    Report,
)
from hdpmf.errors import DapError
from hdpmf.untrusted.aggregator.hpke_keys import HPKE_KEYS_FILE, HpkeKeyRing
from hdpmf.untrusted.aggregator.sealing import KeyFile
from hdpmf.untrusted.aggregator.tasks import Rules
from tests.unit.aggregator.server_pair import END, Pair, plain_sum

DAY = 86_400
ROLES = ("leader", "helper")
KEEP = Rules().keep


def on_disk(folder: Path) -> bytes:
    """All bytes of all files: databases, their logs and free pages, and whatever lies there."""
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def secrets_of(pair: Pair) -> dict[str, list[bytes]]:
    """The secret keys that each server has now."""
    return {
        role: list(KeyFile(pair.state(role) / HPKE_KEYS_FILE).keys().values()) for role in ROLES
    }


def days_pass(pair: Pair, until: float, step: float = DAY / 2) -> None:
    """Both servers do what they do every hour."""
    while pair.clock.now < until:  # type: ignore[attr-defined]
        pair.clock.now += step  # type: ignore[attr-defined]
        pair.leader.collect_garbage()
        pair.helper.collect_garbage()


def opened(secret: bytes, pair: Pair, task: bytes, report: bytes, server: int) -> bytes:
    """What somebody with a secret key reads of a recorded report."""
    read = Report.decode(report)
    sealed = (read.leader_encrypted_input_share, read.helper_encrypted_input_share)[server]
    aad = InputShareAad(
        task, pair.leader.task(task).configuration, read.report_metadata, read.public_share
    ).encode()
    info = input_share_info(pair.keys[server].dap_role)
    return PlaintextInputShare.decode(
        KeyPair(sealed.config_id, secret).open(sealed, info, aad)
    ).payload


# Recorded, and opened later


@pytest.mark.slow
def test_a_recorded_upload_stays_closed(tmp_path: Path) -> None:
    """It was open for as long as the pair lasted: the key was on the card, and on the disk."""
    pair = Pair(tmp_path)
    task = pair.add()
    recorded = [pair.report(task, seed) for seed in range(3)]
    for report in recorded:
        pair.leader.upload(task, report)
    stolen = secrets_of(pair)
    for server, role in enumerate(ROLES):  # these are the keys that matter
        assert opened(stolen[role][0], pair, task, recorded[0], server)
    pair.aggregate_all()
    assert pair.numbers(task, pair.collect(task)) == plain_sum([0, 1, 2])
    days_pass(pair, END + 16 * DAY)
    backup = tmp_path.with_name(f"{tmp_path.name}-backup")
    shutil.copytree(tmp_path, backup)
    for server, role in enumerate(ROLES):
        everything = on_disk(backup)
        for secret in stolen[role]:
            assert secret not in everything
            assert secret.hex().encode() not in everything
        ring = HpkeKeyRing(backup / role, pair.signing[server])
        assert len(ring.ages) >= 2  # there are newer ones, and one of them is in use
        for secret in KeyFile(backup / role / HPKE_KEYS_FILE).keys().values():
            with pytest.raises(DapError, match="could not be decrypted"):
                opened(secret, pair, task, recorded[0], server)


@pytest.mark.slow
def test_a_key_stays_while_reports_for_it_are_under_way_and_no_longer(tmp_path: Path) -> None:
    """The helper is away for weeks: what was confirmed counts. A task that nobody collects ends."""
    pair = Pair(tmp_path)
    task = pair.add()
    stolen = secrets_of(pair)
    pair.upload(task, [0, 1])
    days_pass(pair, END + 20 * DAY)
    assert set(stolen["helper"]) < set(secrets_of(pair)["helper"])
    pair.restart()
    assert pair.aggregate_all() == 2
    assert pair.numbers(task, pair.collect(task)) == plain_sum([0, 1])
    pair.leader.collect_garbage()
    pair.helper.collect_garbage()
    assert not set(stolen["helper"]) & set(secrets_of(pair)["helper"])
    late = pair.add(pair.a_task(begin=END + 24 * DAY, end=END + 24 * DAY + 14_400))
    stolen = secrets_of(pair)
    pair.clock.now = END + 24 * DAY + 1  # type: ignore[attr-defined]
    pair.leader.upload(late, pair.report(late, 3))
    days_pass(pair, END + 25 * DAY + KEEP)
    for role in ROLES:
        assert not set(stolen[role]) & set(secrets_of(pair)[role])


# Between the servers


def test_a_report_that_the_helper_cannot_open_is_not_confirmed(tmp_path: Path) -> None:
    """It was confirmed, paid for and lost: the helper alone knew that its key was gone."""
    pair = Pair(tmp_path)
    task = pair.add()
    report = pair.report(task, 0)
    pair.leader.follow_partner_keys()
    pair.rings[1].rotate(pair.clock(), erase=True)
    pair.leader.follow_partner_keys()
    with pytest.raises(DapError) as refused:
        pair.leader.upload(task, report)
    assert refused.value.kind == "outdated_config"
    assert pair.leader.lacks_partner_keys  # it may be a newer key, too
    pair.rings[1].rotate(pair.clock())
    newest = pair.report(task, 1)
    with pytest.raises(DapError):
        pair.leader.upload(task, newest)
    pair.leader.follow_partner_keys()
    assert not pair.leader.lacks_partner_keys
    pair.leader.upload(task, newest)
    pair.leader.upload(task, newest)  # the same bytes again are the same report
    pair.aggregate_all()
    assert pair.helper.counts(task).counted == 1
