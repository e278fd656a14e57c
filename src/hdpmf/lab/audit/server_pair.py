"""Two real servers in one process, one of which colludes with the recommender.

`CorruptView` is all that these two have of a task.

Reports are made by what devices make them with (``hdpmf.private.client``); checks, batches, noise
and encryption are those of ``hdpmf.untrusted.aggregator``. Nothing is read from inside of the
honest server: what the other one holds came as a message.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from hdpmf.common.aggregation.two_servers.dap.hpke import (
    KeyPair,
    aggregate_share_info,
    input_share_info,
)
from hdpmf.common.aggregation.two_servers.dap.messages import (
    JOB_ID_SIZE,
    REPORT_ID_SIZE,
    AggregateShareAad,
    AggregationJobInitReq,
    AggregationJobResp,
    BatchSelector,
    Collection,
    CollectionReq,
    InputShareAad,
    Interval,
    PingPongMessage,
    PlaintextInputShare,
    Query,
    Report,
    Role,
)
from hdpmf.common.aggregation.two_servers.prio import Prio3, ReportShares
from hdpmf.common.aggregation.two_servers.prio.prio3 import MASKS
from hdpmf.common.net.parties import PartyKey
from hdpmf.common.protocol import Grouping, Survey, Task, encode
from hdpmf.common.protocol.layout import survey_circuit
from hdpmf.common.protocol.servers import Collector, Server
from hdpmf.common.protocol.task import Part
from hdpmf.errors import ProtocolError
from hdpmf.lab.audit.scores import clopper_pearson
from hdpmf.private.client.outgoing import sealed_report, split_report
from hdpmf.untrusted.aggregator.datastore import ServerDatabase
from hdpmf.untrusted.aggregator.helper import Helper
from hdpmf.untrusted.aggregator.leader import Leader
from hdpmf.untrusted.aggregator.tasks import Rules, ServerKeys, SimulationRules

ServerName = Literal["leader", "helper"]

Fault = Literal["seeds", "masks"]
"""Faults of devices: shares from constant seeds, or proofs whose wires have no random mask."""

Entries = tuple[np.ndarray, np.ndarray]
"""One user's weights and levels."""

_HOUR = 3600

_BEGIN = 500_000 * _HOUR

_PERIOD = Interval(_BEGIN, _HOUR)

FIXED = bytes(range(256))
"""Bytes that devices with a planted fault use as random ones."""


class FaultyPrio(Prio3):
    """A device's cryptography with a planted fault."""

    def __init__(self, prio: Prio3, fault: Fault) -> None:
        self.__dict__.update(prio.__dict__)
        self._fault = fault

    def shard(
        self, vector: np.ndarray, nonce: bytes, randomness: bytes | None = None
    ) -> ReportShares:
        """Shard with too little randomness."""
        return super().shard(
            vector, nonce, FIXED[: self.random_size] if self._fault == "seeds" else randomness
        )

    def _expand(self, usage: int, seed: bytes, binder: bytes, count: int) -> np.ndarray:
        found = super()._expand(usage, seed, binder, count)
        return np.zeros_like(found) if self._fault == "masks" and usage == MASKS else found


class _Recorder:
    """A recorder of the messages between the two servers."""

    def __init__(self, helper: Helper) -> None:
        self._helper = helper
        self.messages: list[tuple[bytes, bytes]] = []

    def aggregation_job(self, task_id: bytes, job_id: bytes, body: bytes) -> bytes:
        """Forward reports to check; record the answer."""
        answer = self._helper.aggregation_job(task_id, job_id, body)
        self.messages.append((body, answer))
        return answer

    def aggregate_share(self, task_id: bytes, body: bytes) -> bytes:
        """Return the helper's sum."""
        return self._helper.aggregate_share(task_id, body)

    def signed_keys(self) -> bytes:
        """Return the helper's list of keys."""
        return self._helper.signed_keys()

    def now(self) -> float:
        """Return the helper's time."""
        return self._helper.now()

    def exchange_logs(self, body: bytes) -> bytes:
        """Return what the helper knows of both logs of releases."""
        return self._helper.exchange_logs(body)


@dataclass(frozen=True, slots=True)
class ReportView:
    """The part of a report that one server has.

    Attributes:
        input_share: This server's share, decrypted.
        other: The other server's message in the check.
        output: This server's share of what is summed.
    """

    nonce: bytes
    public_share: bytes = field(repr=False)
    input_share: bytes = field(repr=False)
    other: bytes = field(repr=False)
    output: np.ndarray = field(repr=False)


@dataclass(frozen=True, slots=True)
class CorruptView:
    """All that the recommender and the corrupt server have of a task.

    Attributes:
        key: The verification key, which both servers have.
        index: 0 for the leader, 1 for the helper.
        reports: In the order of reporting.
        numbers: The sum of all reports, with the honest server's noise only.
    """

    prio: Prio3 = field(repr=False)
    key: bytes = field(repr=False)
    index: int
    reports: list[ReportView] = field(repr=False)
    numbers: np.ndarray = field(repr=False)


class AuditedServers:
    """A leader and a helper, one of them honest.

    ``corrupt`` works with the recommender; ``noise`` is the honest server's, if a fault is planted.
    """

    def __init__(self, corrupt: ServerName, noise: Any = None) -> None:
        self._keys = _keys()
        self._collector = KeyPair.generate(9)
        self._index = 0 if corrupt == "leader" else 1
        kind = Rules if noise is None else SimulationRules
        rules = kind(minimum=2)
        noises = [None if server == self._index else noise for server in (0, 1)]
        self._now = float(_BEGIN)
        common: dict[str, Any] = {"clock": lambda: self._now, "rules": rules}
        self._helper = Helper(self._keys[1], ServerDatabase("sqlite://"), noise=noises[1], **common)
        self._between = _Recorder(self._helper)
        self._leader = Leader(
            self._keys[0], ServerDatabase("sqlite://"), self._between, noise=noises[0], **common
        )
        config = self._collector.config.encode().hex()
        self._card = Collector(
            organisation="shop", hpke=config, identity=PartyKey.generate().public
        )

    def sum(
        self,
        survey: Survey,
        part: Part,
        entries: Iterable[Entries],
        *,
        grouping: Grouping | None = None,
        fault: Fault | None = None,
    ) -> CorruptView:
        """Publish a task, let devices report, and collect; return what is held then."""
        task_id = self._add(survey, part, grouping)
        opened = self._leader.task(task_id)
        self._now = _BEGIN + 1.0
        prio = opened.prio if fault is None else FaultyPrio(opened.prio, fault)
        configs = self._keys[0].hpke.config, self._keys[1].hpke.config
        sent = []
        for user in entries:
            shares = split_report(prio, user, secrets.token_bytes(REPORT_ID_SIZE), at=_BEGIN)
            sent.append(sealed_report(shares, task_id, configs))
            self._leader.upload(task_id, sent[-1])
        while self._leader.aggregate():
            pass
        self._now = _PERIOD.end + 1.0
        reports = self._opened(task_id, [Report.decode(report) for report in sent])
        total = prio.field.decode(
            self._collect(task_id)[1 - self._index], prio.circuit.output_length
        )
        for report in reports:
            total = prio.field.add(total, report.output)
        return CorruptView(
            opened.prio,
            opened.key,
            self._index,
            reports,
            np.array(prio.field.integers(total), np.int64),
        )

    def _add(self, survey: Survey, part: Part, grouping: Grouping | None) -> bytes:
        circuit, noise = survey_circuit(survey, part, grouping)
        document = encode(
            Task(
                servers=self._keys[0].servers,
                collector=self._card,
                circuit=circuit,
                noise=noise,
                begin=_BEGIN,
                end=_PERIOD.end,
                precision=_HOUR,
                minimum=2,
                enrolled=False,
                survey=survey,
                part=part,
                grouping=grouping,
            )
        )
        self._now = float(_BEGIN)
        self._helper.add_task(document)
        return self._leader.add_task(document)

    def _opened(self, task_id: bytes, sent: list[Report]) -> list[ReportView]:
        keys = self._keys[self._index]
        opened = self._leader.task(task_id)
        words = self._words()
        view = []
        for report in sent:
            metadata = report.report_metadata
            public = report.public_share
            aad = InputShareAad(task_id, metadata, public).encode()
            sealed = (report.leader_encrypted_input_share, report.helper_encrypted_input_share)[
                self._index
            ]
            share = PlaintextInputShare.decode(
                keys.hpke.open(sealed, input_share_info(keys.dap_role), aad)
            ).payload
            prepared, _ = opened.prio.prepare(
                opened.key, self._index, metadata.report_id, public, share
            )
            other = words[metadata.report_id]
            view.append(ReportView(metadata.report_id, public, share, other, prepared.output))
        return view

    def _words(self) -> dict[bytes, bytes]:
        """Return the other server's messages in the checks, by report."""
        found = {}
        for asked, answered in self._between.messages:
            inits = AggregationJobInitReq.decode(asked).prepare_inits
            answers = AggregationJobResp.decode(answered).prepare_resps
            for init, answer in zip(inits, answers, strict=True):
                payload = answer.payload if self._index == 0 else init.payload
                if payload is None:
                    raise ProtocolError("an audited report was refused")
                word = PingPongMessage.decode(payload)
                found[answer.report_id] = (
                    word.prep_msg if self._index == 0 else word.prep_share
                ) or b""
        return found

    def _collect(self, task_id: bytes) -> list[bytes]:
        """Return both servers' sums, as the recommender decrypts them."""
        job = secrets.token_bytes(JOB_ID_SIZE)
        self._leader.begin_collection(
            task_id, job, CollectionReq(Query(batch_interval=_PERIOD), b"").encode()
        )
        body = self._leader.collection(task_id, job)
        if body is None:
            raise ProtocolError("the sum of an audited task came to nothing")
        found = Collection.decode(body)
        aad = AggregateShareAad(task_id, b"", BatchSelector(batch_interval=_PERIOD)).encode()
        shares = (found.leader_encrypted_agg_share, found.helper_encrypted_agg_share)
        return [
            self._collector.open(share, aggregate_share_info(role), aad)
            for share, role in zip(shares, (Role.LEADER, Role.HELPER), strict=True)
        ]


def _keys() -> tuple[ServerKeys, ServerKeys]:
    parties = [PartyKey.generate() for _ in range(2)]
    pairs = [KeyPair.generate(1) for _ in range(2)]
    leader, helper = (
        Server(
            organisation=name,
            url=f"https://{name}.example",
            hpke=pair.config.encode().hex(),
            identity=party.public,
        )
        for name, party, pair in zip(("library", "university"), parties, pairs, strict=True)
    )
    return (
        ServerKeys(role="leader", party=parties[0], hpke=pairs[0], own=leader, partner=helper),
        ServerKeys(role="helper", party=parties[1], hpke=pairs[1], own=helper, partner=leader),
    )


@dataclass(frozen=True, slots=True)
class RuleOutcome:
    """The outcome of one rule.

    Attributes:
        right: Share of right guesses; about one half if nothing is revealed.
        epsilon: Epsilon that this proves, also for the opposite of the rule.
    """

    right: float
    epsilon: float


def look_at_shares(
    view: CorruptView, users: tuple[Entries, Entries], truth: np.ndarray, confidence: float
) -> dict[str, RuleOutcome]:
    """Guess one rating of each report.

    Args:
        view: The corrupt server's view; the last report is the attacker's own, with zeros.
        users: The entries of a report if the rating is low (or absent), and if it is high.
        truth: The coins of all reports but the last.
        confidence: Confidence that no rule proves anything by chance.
    """
    *reports, own = view.reports
    circuit = view.prio.circuit
    field = view.prio.field
    encoded = [circuit.encode(*user) for user in users]  # type: ignore[attr-defined]  # a circuit of ratings
    low, high = (
        np.array(field.integers(circuit.truncate(vector)), np.float64) for vector in encoded
    )
    worlds = _Worlds(
        encoded=encoded,
        middle=(low + high) / 2,
        apart=high - low,
        moved=np.array(field.integers(field.sub(encoded[1], encoded[0])), np.float64),
    )
    scores = [_scores(view, worlds, report, own) for report in reports]
    rules = scores[0].keys()
    error = (1.0 - confidence) / (2 * len(rules))
    found = {}
    for rule in rules:
        given = np.array([score[rule] for score in scores])
        # Undecided guesses alternate, independently of the coins.
        guesses = np.where(given == 0, np.arange(len(given)) % 2 == 0, given > 0)
        right = int((guesses == truth).sum())
        lower, _ = clopper_pearson(np.array([max(right, len(truth) - right)]), len(truth), error)
        p = float(lower[0])
        found[rule] = RuleOutcome(right / len(truth), max(0.0, math.log(p / (1.0 - p))))
    return found


@dataclass(frozen=True, slots=True)
class _Worlds:
    """The two reports that there may be.

    Attributes:
        middle: Middle of the two worlds' sums.
        apart: Difference of the two worlds' sums.
        moved: The difference of what is shared.
    """

    encoded: list[np.ndarray]
    middle: np.ndarray
    apart: np.ndarray
    moved: np.ndarray


def _scores(
    view: CorruptView, worlds: _Worlds, report: ReportView, own: ReportView
) -> dict[str, float]:
    field = view.prio.field
    moved = worlds.moved
    encoded = worlds.encoded
    share = _centred(report.input_share)
    output = _centred(field.encode(report.output))
    vector = share[: len(moved)]
    beside = np.array(field.integers(field.sub(report.output, own.output)), np.float64)
    found = {
        "mean of the share": float(share.mean()),
        "first element": float(share[0]),
        "last element": float(vector[-1]),
        "spread of the share": float((share**2).mean() - 1 / 12),
        "along the vector": float(vector @ moved[: len(vector)]),
        "along the sum": float(output @ worlds.apart),
        "public share": float(_centred(report.public_share).mean()),
        "the other's words": float(_centred(report.other).mean()),
        "beside an own report": float(np.sign(beside - worlds.middle) @ worlds.apart),
        "made again": _made_again(view, encoded, report),
    }
    if view.index == 1:  # the leader is told no more of the check than that a report is valid
        found["at the checked point"] = _at_the_point(view, encoded, report)
    return found


def _made_again(view: CorruptView, encoded: list[np.ndarray], report: ReportView) -> float:
    """Compare a report, byte by byte, with reports of both worlds from known seeds."""
    prio = view.prio
    alike = []
    for vector in encoded:
        again = prio.shard(vector, report.nonce, FIXED[: prio.random_size])
        pairs = (
            (again.input_shares[view.index], report.input_share),
            (again.public_share, report.public_share),
        )
        alike.append(sum(int((_bytes(ours) == _bytes(theirs)).sum()) for ours, theirs in pairs))
    return float(alike[1] - alike[0])


def _at_the_point(view: CorruptView, encoded: list[np.ndarray], report: ReportView) -> float:
    """Compare the wires that the helper sees at one point with each world's unmasked wires."""
    prio = view.prio
    field = view.prio.field

    def verifier(parts: list[bytes]) -> np.ndarray:
        first, second = (np.frombuffer(part[: -prio.seed_size], field.dtype) for part in parts)
        return field.add(first, second)

    shares = (report.public_share, report.input_share)
    alike = []
    seen = verifier([report.other, prio.prepare(view.key, 1, report.nonce, *shares)[1]])
    for vector in encoded:
        bare = FaultyPrio(prio, "masks").shard(vector, report.nonce)
        parts = [
            prio.prepare(
                view.key, server, report.nonce, bare.public_share, bare.input_shares[server]
            )[1]
            for server in (0, 1)
        ]
        alike.append(int((verifier(parts) == seen).sum()))
    return float(alike[1] - alike[0])


def _bytes(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint8)


def _centred(data: bytes) -> np.ndarray:
    """Return words of 64 bits, scaled to -1/2 to 1/2."""
    return np.frombuffer(data, "<u8") / 2.0**64 - 0.5
