"""Somebody gets the disks of both servers, or brings old copies of them back."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sa

from hdpmf.common.aggregation.two_servers.dap.hpke import input_share_info
from hdpmf.common.aggregation.two_servers.dap.messages import (
    CollectionJobResp,
    InputShareAad,
    Interval,
    PlaintextInputShare,
    Report,
)
from hdpmf.errors import DapError, PrivacyError, StorageError
from hdpmf.untrusted.aggregator.datastore import payloads
from hdpmf.untrusted.aggregator.tasks import Rules
from tests.unit.aggregator.server_pair import BEGIN, END, HOUR, Pair, plain_sum
from tests.world import make_report

ROLES = ("leader", "helper")
KEEP = Rules().keep


def output_shares(pair: Pair, task: bytes, report: bytes) -> list[np.ndarray]:
    """What each server adds to its sum for a report; whoever has both has the report."""
    read, shares = Report.decode(report), []
    sealed = (read.leader_encrypted_input_share, read.helper_encrypted_input_share)
    opened = pair.leader.task(task)
    aad = InputShareAad(
        task, opened.configuration, read.report_metadata, read.public_share
    ).encode()
    for keys, ciphertext in zip(pair.keys, sealed, strict=True):
        plain = keys.hpke.open(ciphertext, input_share_info(keys.dap_role), aad)
        state, _ = opened.prio.prepare(
            opened.key,
            keys.index,
            read.report_metadata.report_id,
            read.public_share,
            PlaintextInputShare.decode(plain).payload,
        )
        shares.append(state.output)
    return shares


def on_disk(folder: Path) -> bytes:
    """All bytes of all files: databases, their logs and free pages, and whatever lies there."""
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


class Played:
    """A task from reports to its sum, and what nobody may find on a disk afterwards."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.pair = Pair(folder)
        self.task = self.pair.add()
        self.reports = [self.pair.report(self.task, seed) for seed in range(4)]
        bad = self.pair.report(self.task, 9, spoil=lambda server, share: share[:-1] + b"\0")
        for report in (*self.reports, bad):
            self.pair.leader.upload(self.task, report)
        self.copies = folder.with_name(f"{folder.name}-copies")
        shutil.copytree(folder, self.copies / "uploaded")
        self.pair.aggregate_all(limit=2)
        shutil.copytree(folder, self.copies / "counted")
        field = self.pair.leader.task(self.task).prio.field
        each = [output_shares(self.pair, self.task, report) for report in self.reports]
        totals = [each[0][server] for server in (0, 1)]
        for shares in each[1:]:
            totals = [field.add(totals[server], shares[server]) for server in (0, 1)]
        self.sums = [field.encode(total) for total in totals]
        self.bodies = [Report.decode(report) for report in (*self.reports, bad)]
        exact = field.integers(field.add(totals[0], totals[1]))
        assert list(exact) == plain_sum([0, 1, 2, 3])

    def forbidden(self) -> list[bytes]:
        """Sums without noise, and reports that a key of today or tomorrow opens."""
        ciphertexts = [report.leader_encrypted_input_share.payload for report in self.bodies]
        ciphertexts += [report.helper_encrypted_input_share.payload for report in self.bodies]
        return [*self.sums, *ciphertexts]

    def finish(self) -> bytes:
        """Collect, purge, restart."""
        collected = self.pair.collect(self.task)
        self.pair.clock.now = END + KEEP + 1
        for server in (self.pair.leader, self.pair.helper):
            server.collect_garbage()
        self.pair.restart()
        for database in self.pair.databases:
            database.close()
        return collected


@pytest.mark.slow
def test_no_report_and_no_exact_sum_is_on_a_disk_at_any_time(tmp_path: Path) -> None:
    played = Played(tmp_path / "servers")
    played.finish()
    for place in (tmp_path / "servers", *played.copies.iterdir()):
        found = on_disk(place)
        assert len(found) > 10_000
        assert not [secret for secret in played.forbidden() if secret in found]


def test_who_reported_and_report_ids_are_deleted_with_the_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hdpmf.untrusted.aggregator.server._DELETED_AT_ONCE", 2)
    pair = Pair(tmp_path)
    task = pair.add(pair.a_task_with_tokens())
    sent = [pair.admitted(task, seed) for seed in range(5)]
    for report, token in sent:
        pair.leader.upload(task, report, token)
    pair.aggregate_all(limit=3)
    assert pair.ask(task) is not None
    personal = [Report.decode(report).report_metadata.report_id for report, _ in sent]
    found = on_disk(tmp_path)  # of a token nothing but that is ever there
    assert not [token for _, token in sent if token.nonce in found or token.nonce[16:] in found]
    assert not [token for _, token in sent if token.authenticator in found]
    pair.clock.now = END + KEEP - 1
    for server in (pair.leader, pair.helper):
        assert server.collect_garbage() == 0
    assert [known for known in personal if known in on_disk(tmp_path)] == personal
    pair.clock.now = END + KEEP
    for server in (pair.leader, pair.helper):
        assert server.collect_garbage() == 1
        counts = server.counts(task)
        assert (counts.counted, counts.waiting, counts.batches) == (5, 0, 1)
    for database in pair.databases:
        database.close()
    assert [known for known in personal if known in on_disk(tmp_path)] == []
    pair.restart()
    # Nothing is taken again whatever the clock says: what would notice it is deleted.
    pair.clock.now = BEGIN + 10
    with pytest.raises(DapError, match="the task is over"):
        pair.leader.upload(task, *sent[0])
    with pytest.raises(DapError, match="the task is over"):
        pair.helper.aggregation_job(task, b"")
    with pytest.raises(DapError, match="the task is over"):
        pair.leader.collection(task, bytes(16))
    with pytest.raises(DapError, match="the task is over"):
        pair.ask(task)


@pytest.mark.parametrize("moment", ["uploaded", "counted"])
def test_copies_of_databases_cannot_be_opened_once_the_batch_is_closed(
    tmp_path: Path, moment: str
) -> None:
    """The thief has a backup of the database from before, and the servers' folders of today."""
    played = Played(tmp_path / "servers")
    played.pair.collect(played.task)
    for database in played.pair.databases:
        database.close()
    for role in ROLES:
        for file in (played.copies / moment).glob(f"{role}.sqlite*"):
            shutil.copy(file, tmp_path / "servers")
        # No obstacle to somebody who reads the files by himself.
        (tmp_path / "servers" / role / "released-head").unlink(missing_ok=True)
    played.pair.clock.now = BEGIN + 10
    played.pair.reopen()
    if moment == "counted":
        with pytest.raises(StorageError, match="their key is erased"):
            played.pair.ask(played.task)
    else:
        assert played.pair.aggregate_all() == len(played.bodies)
        assert played.pair.leader.counts(played.task).counted == 0


def test_keys_of_a_killed_server_are_erased_when_it_starts(tmp_path: Path) -> None:
    played = Played(tmp_path / "servers")
    kept = {role: (tmp_path / "servers" / role / "batch-keys").read_bytes() for role in ROLES}
    played.pair.collect(played.task)
    for role in ROLES:  # as if they had died before they could
        (tmp_path / "servers" / role / "batch-keys").write_bytes(kept[role])
    played.pair.restart()
    for role in ROLES:
        left = (tmp_path / "servers" / role / "batch-keys").read_bytes()
        assert len(left) == len(kept[role])
        assert not any(left[24:])


def test_what_is_sealed_is_bound_to_its_row(tmp_path: Path) -> None:
    """Whoever can write the database cannot pass one report off as another."""
    pair = Pair(tmp_path)
    task = pair.add()
    pair.upload(task, [0, 1])
    with pair.databases[0].write() as connection:
        first, second = connection.execute(sa.select(payloads)).all()
        for row, other in ((first, second), (second, first)):
            connection.execute(
                sa.update(payloads).where(payloads.c.report == row.report), {"body": other.body}
            )
    pair.aggregate_all()
    counts = pair.leader.counts(task)
    assert (counts.counted, sum(counts.rejected.values())) == (0, 2)


# Noise again


def brought_back(tmp_path: Path, drop: bool = False) -> tuple[list[int], list[int]]:
    """What the helper adds, and adds again after all its files were brought back.

    Args:
        drop: The second time one report is left out.
    """
    folder = tmp_path / "servers"
    pair = Pair(folder_of(folder), rules=Rules(minimum=2), noises=(None, None))
    task = pair.add()
    reports = [pair.report(task, seed) for seed in range(4)]
    for database in pair.databases:
        database.close()
    shutil.copytree(folder, tmp_path / "older")
    found = []
    for given in (reports, reports[1:] if drop else reports):
        pair.clock.now = BEGIN + 10
        for report in given:
            pair.leader.upload(task, report)
        pair.aggregate_all()
        share = CollectionJobResp.decode(pair.collect(task))
        found.append(noise_in(pair, task, share, given))
        for database in pair.databases:
            database.close()
        shutil.rmtree(folder)
        shutil.copytree(tmp_path / "older", folder)
        pair.reopen()
    return found[0], found[1]


def folder_of(path: Path) -> Path:
    path.mkdir()
    return path


def noise_in(
    pair: Pair, task: bytes, collected: CollectionJobResp, reports: list[bytes]
) -> list[int]:
    """The noise of both servers in a sum, which a test can subtract from."""
    numbers = pair.numbers(task, collected.encode())
    prio = pair.leader.task(task).prio
    total = None
    for report in reports:
        for share in output_shares(pair, task, report):
            total = share if total is None else prio.field.add(total, share)
    assert total is not None
    return [a - b for a, b in zip(numbers, prio.field.integers(total), strict=True)]


@pytest.mark.slow
def test_a_server_that_is_brought_back_with_all_its_files_adds_the_same_noise(
    tmp_path: Path,
) -> None:
    first, again = brought_back(tmp_path)
    assert any(first)
    assert first == again


@pytest.mark.slow
def test_the_same_reports_under_another_interval_get_the_same_noise(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "servers")
    pair = Pair(folder, rules=Rules(minimum=2), noises=(None, None))
    task = pair.add()
    reports = [pair.report(task, seed) for seed in range(3)]
    for database in pair.databases:
        database.close()
    shutil.copytree(folder, tmp_path / "older")
    seen = []
    for hours in (1, 2, 3, 4):
        pair.clock.now = BEGIN + 10
        for report in reports:
            pair.leader.upload(task, report)
        pair.aggregate_all()
        interval = Interval(BEGIN, hours * HOUR)
        seen.append(pair.numbers(task, pair.collect(task, interval), interval))
        for database in pair.databases:
            database.close()
        shutil.rmtree(folder)
        shutil.copytree(tmp_path / "older", folder)
        pair.reopen()
    assert all(numbers == seen[0] for numbers in seen)


def test_two_servers_and_two_tasks_have_noise_of_their_own(tmp_path: Path) -> None:
    """The same reports, so that nothing but the key and the task differ."""
    pair = Pair(rules=Rules(minimum=2), noises=(None, None))
    seen = []
    for minimum in (2, 3):
        task = pair.add(pair.a_task(minimum=minimum))
        document = pair.leader.task(task).document
        for seed in range(3):
            row = np.random.default_rng(seed).integers(0, 65, 13)
            pair.leader.upload(task, make_report(document, task, row))
        pair.aggregate_all()
        pair.clock.now = BEGIN + 10
        seen.append(pair.numbers(task, pair.collect(task)))
        pair.clock.now = BEGIN + 10
    assert sum(a == b for a, b in zip(*seen, strict=True)) <= 4


def test_the_noise_key_of_old_tasks_is_erased(tmp_path: Path) -> None:
    """Whoever steals the key later cannot subtract the noise of sums that were released before."""
    folder = folder_of(tmp_path / "servers")
    pair = Pair(folder, rules=Rules(minimum=2), noises=(None, None))
    task = pair.add()
    before = (folder / "helper" / "noise-key").read_bytes()
    key = pair.helper._batches._noise_key
    first = key.noise(task, END, b"total").discrete_laplace(50, 20)
    assert (key.noise(task, END, b"total").discrete_laplace(50, 20) == first).all()
    later = key.noise(task, END + 90 * 86_400, b"total").discrete_laplace(50, 20)
    assert (first != later).any()
    pair.clock.now = END + KEEP + 2 * 86_400
    pair.helper.collect_garbage()
    with pytest.raises(PrivacyError, match="erased"):
        key.noise(task, END, b"total")
    assert (key.noise(task, END + 90 * 86_400, b"total").discrete_laplace(50, 20) == later).all()
    after = (folder / "helper" / "noise-key").read_bytes()
    assert before[24 + 40 : 24 + 72] not in after
