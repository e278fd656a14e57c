"""All that a participant can reach, in the test's hands: public files, an issuer, a leader."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Any

from hdpmf.common.aggregation.two_servers.dap.hpke import KeyPair, input_share_info
from hdpmf.common.aggregation.two_servers.dap.messages import (
    InputShareAad,
    PlaintextInputShare,
    Report,
    ReportError,
    ReportUploadStatus,
    Role,
    UploadErrors,
    id_from_text,
)
from hdpmf.common.aggregation.two_servers.tokens import Token
from hdpmf.common.protocol.documents import from_base64
from hdpmf.common.protocol.enrolment import Enrolment, read_enrolment
from hdpmf.common.protocol.identity import Invitation, verifies
from hdpmf.common.protocol.published import file_name
from hdpmf.common.protocol.task import configuration_of, prio_of, read_task, signed_token_request
from hdpmf.errors import TooLongError, TransportError
from hdpmf.private.device import seal
from hdpmf.private.device.carrier import Told, WebCarrier
from hdpmf.private.device.participant import Participant
from hdpmf.private.device.public import Published
from hdpmf.private.device.seal import Sealed
from hdpmf.private.device.state import changed
from hdpmf.private.device.state_file import StateFile
from tests.unit.participant.publishing import FILMS, HPKE, SERVERS, START, issuer, published

Answer = int | str | bytes


def is_report(sealed: Sealed) -> bool:
    """True of what goes to the leader."""
    return sealed.url.endswith("/reports")


class Outside:
    """A carrier into the test. It keeps every request, in its order.

    Attributes:
        now: The time.
        files: What is served, by its address.
        issues: What the issuer says to the next requests: a status, "unreachable", or bytes that
            are no signature; then it signs.
        answers: What the leader says to the next reports: a status, an error of
            the report, or "unreachable"; then 200.
        requests: When, what, and how many bytes were sent.
        reports: The bodies that reached the leader, with their task and token.
        keys: The servers' secret keys.
    """

    def __init__(self, seen: Published | None = None, *, now: int = START) -> None:
        self.now = float(now)
        self.files: dict[str, bytes] = {}
        self.issues: list[Answer] = []
        self.answers: list[Answer] = []
        self.requests: list[tuple[float, str, int]] = []
        self.reports: list[tuple[bytes, Token, bytes]] = []
        self.logged: list[str] = []
        self.enrolments: list[Enrolment] = []
        self.keys: tuple[KeyPair, KeyPair] = (HPKE[0], HPKE[1])
        self.before_sending: Callable[[Sealed], None] = lambda sealed: None
        if seen is not None:
            self.publish(seen)

    def publish(self, seen: Published, address: str = FILMS) -> None:
        """Serve what is published, with an index that names it."""
        index = seen.index
        kinds: dict[str, Any] = {
            index.catalogue: "catalogue",
            index.keys: "keys",
            index.task: "task",
            index.model: "model",
        }
        for digest, data in seen.files.items():
            self.files[f"{address}/{file_name(kinds.get(digest, 'array'), digest)}"] = data
        self.files[f"{address}/index.json"] = index.to_bytes()

    def clock(self) -> float:
        """The time."""
        return self.now

    def read(self, url: str, most: int) -> bytes:
        self.requests.append((self.now, f"GET {url}", 0))
        if url not in self.files:
            raise TransportError("not there")
        if len(self.files[url]) > most:
            failed = TooLongError("too long")
            failed.received = most
            raise failed
        return self.files[url]

    def send(self, sealed: Sealed) -> Told:
        assert type(sealed) is Sealed
        self.before_sending(sealed)
        shown = f"{sealed.method} {sealed.url} {sorted(sealed.headers)}"
        self.requests.append((self.now, shown, len(sealed.body)))
        return self._count(sealed) if is_report(sealed) else self._sign(sealed)

    def _sign(self, sealed: Sealed) -> Told:
        answer = self.issues.pop(0) if self.issues else 200
        if answer == "unreachable":
            raise TransportError("unreachable")
        if sealed.url == f"{FILMS}/participants":
            self.enrolments.append(read_enrolment(sealed.body))
            return Told(int(answer), b"")
        assert sealed.url.startswith(f"{FILMS}/tokens/")
        task, headers = id_from_text(sealed.url.split("/")[-1], 32), sealed.headers
        said = signed_token_request(task, sha256(sealed.body).digest())
        device, signature = (
            from_base64(headers[name]) for name in ("hdpmf-device", "hdpmf-signature")
        )
        assert verifies(device, signature, said)
        if isinstance(answer, bytes):
            return Told(200, answer)
        return Told(int(answer), issuer().sign(sealed.body) if answer == 200 else b"")

    def _count(self, sealed: Sealed) -> Told:
        answer = self.answers.pop(0) if self.answers else 200
        assert sealed.url.startswith(SERVERS.leader.url)
        if answer == "unreachable":
            raise TransportError("unreachable")
        task = id_from_text(sealed.url.split("/")[-2], 32)
        token = Token.from_header(sealed.headers["authorization"])
        assert Report.decode(sealed.body).report_metadata.report_id == token.report_id
        self.reports.append((task, token, sealed.body))
        if isinstance(answer, ReportError):
            return Told(200, UploadErrors((ReportUploadStatus(token.report_id, answer),)).encode())
        return Told(int(answer), b"")

    def sums(self, document: bytes, task: bytes) -> list[int]:
        """The two servers' sum over the different reports of a task."""
        prio, verify = prio_of(read_task(document), task), bytes(32)
        bodies = {token.report_id: body for name, token, body in self.reports if name == task}
        totals: list[Any] = [None, None]
        for body in bodies.values():
            shares = self.opened(document, task, body)
            report = Report.decode(body)
            nonce = report.report_metadata.report_id
            ready = [
                prio.prepare(verify, place, nonce, report.public_share, share)
                for place, share in enumerate(shares)
            ]
            message = prio.verify([said for _, said in ready])
            for place, (kept, _) in enumerate(ready):
                out = prio.finish(kept, message)
                totals[place] = out if totals[place] is None else prio.field.add(totals[place], out)
        return [int(one) for one in prio.unshard([prio.field.encode(total) for total in totals])]

    def opened(self, document: bytes, task: bytes, body: bytes) -> list[bytes]:
        """What the servers read of a report."""
        report = Report.decode(body)
        configuration = configuration_of(read_task(document), task)
        aad = InputShareAad(
            task, configuration, report.report_metadata, report.public_share
        ).encode()
        sealed = (report.leader_encrypted_input_share, report.helper_encrypted_input_share)
        return [
            PlaintextInputShare.decode(pair.open(share, input_share_info(role), aad)).payload
            for pair, share, role in zip(self.keys, sealed, (Role.LEADER, Role.HELPER), strict=True)
        ]


def participant(file: StateFile, outside: Outside, **options: Any) -> Participant:
    """A participant in this world."""
    settings: dict[str, Any] = {"every": 60.0, "log": outside.logged.append}
    return Participant(file, outside, clock=outside.clock, **(settings | options))


def live(device: Participant, outside: Outside, seconds: float) -> None:
    """Let time pass, a step at a time."""
    end = outside.now + seconds
    while outside.now < end:
        outside.now = min(outside.now + device.step(), end)
    device.step()


def published_in(**documents: Any) -> Outside:
    """A world in which these documents are published."""
    return Outside(published(**documents))


def sealed(method: str, url: str, headers: dict[str, str], body: bytes) -> Sealed:
    """Something to send, as only ``seal`` makes it."""
    return Sealed(seal._MADE_HERE, method, url, headers, body)


def carrier_to(
    address: str, authority: str | bytes = b"", leader: str = "", **options: Any
) -> WebCarrier:
    """The carrier of a device that has joined a recommender at this address.

    Args:
        leader: Address of the leader; the same where not given.
    """
    text = authority if isinstance(authority, str) else authority.decode()
    servers = changed(
        SERVERS, leader=changed(SERVERS.leader, url=leader or address, authority=text)
    )
    invited = Invitation(address=address, servers=servers, authority=text)
    return WebCarrier([invited], **options)
