"""The one place where something is made that leaves a device. PRIVATE side's last line.

To see what can leave, read ``seal``: an enrolment, a request for a blind token, or a report to two
servers. They are made of a committed state only, so that the ledger has a report before it exists.
A report is a row, or zeros, in two shares, each encrypted to its server. Its size, and the work to
make it, depend on the task only. Shares are drawn anew each time; the id of a report follows from
its token, and servers count an id once.
"""

from __future__ import annotations

from hashlib import sha256, shake_256
from http import HTTPStatus
from math import gcd
from typing import TYPE_CHECKING

import numpy as np

from hdpmf.common.aggregation.two_servers.dap.messages import (
    MEDIA_TYPES,
    REPORTS_PATH,
    ReportError,
    UploadErrors,
    UploadRequest,
    id_to_text,
)
from hdpmf.common.aggregation.two_servers.tokens import (
    REQUEST_MEDIA_TYPE,
    TOKEN_HEADER,
    TOKENS_PATH,
    BlindedToken,
    Token,
    TokenKey,
    blind_token,
)
from hdpmf.common.data.checks import IMPLICIT_SCALE
from hdpmf.common.model.device_fit import to_stars
from hdpmf.common.privacy.pairs import Histories
from hdpmf.common.protocol.documents import from_base64, to_base64
from hdpmf.common.protocol.enrolment import (
    ENROLMENT_MEDIA_TYPE,
    PARTICIPANTS_PATH,
    SignedEnrolment,
)
from hdpmf.common.protocol.key_list import config_of
from hdpmf.common.protocol.task import (
    DEVICE_HEADER,
    SIGNATURE_HEADER,
    Pairs,
    Task,
    read_task,
    signed_token_request,
    token_challenge,
)
from hdpmf.errors import PrivacyError, ProtocolError
from hdpmf.private.client.pairs import row_of, sealed_report
from hdpmf.private.device.decide import Sending, is_zeros
from hdpmf.private.device.ledger import WHOLE
from hdpmf.private.device.public import Items, items_of
from hdpmf.private.device.state import changed

if TYPE_CHECKING:
    from hdpmf.private.device.state import Answer, Joined, State
    from hdpmf.private.device.state_file import Committed

_MADE_HERE = object()


class Sealed:
    """Something that may leave this device. Only `seal` makes it.

    Attributes:
        url: Where to, on the recommender's or the leader's origin.
    """

    __slots__ = ("body", "headers", "method", "url")

    def __init__(
        self, made: object, method: str, url: str, headers: dict[str, str], body: bytes
    ) -> None:
        if made is not _MADE_HERE:
            raise PrivacyError("what leaves a device is made by seal, after the ledger's commit")
        self.method, self.url, self.headers, self.body = method, url, headers, body

    def __repr__(self) -> str:
        return f"Sealed({self.method}, {len(self.body):,} bytes)"


def seal(committed: Committed, sending: Sending, now: int) -> Sealed:
    """Return what is to be sent, of a state that is on disk.

    Raises:
        TransportError: The list of a server's keys has not come, or is over.
        PrivacyError: The state has no promise of this report.
    """
    state = committed.state
    joined = state.of(sending.address)
    if sending.what == "enrolment":
        return _enrolment(state, joined)
    answer = joined.answer
    if answer is None or answer.task != sending.task or answer.done:
        raise PrivacyError("nothing was promised for this task")
    task = read_task(answer.document)
    if sending.what == "token":
        return _token_request(state, joined, answer, task)
    if not answer.promised:
        raise PrivacyError("the ledger does not have this report; nothing is made of it")
    return _report(state, joined, answer, task, now)


def _enrolment(state: State, joined: Joined) -> Sealed:
    """Return the request to be enrolled: the device's key, and its proof."""
    proof = {"login" if "." in joined.proof else "secret": joined.proof}
    body = SignedEnrolment.make(state.signer, joined.address, **proof).to_bytes()
    headers = {"content-type": ENROLMENT_MEDIA_TYPE}
    return Sealed(_MADE_HERE, "POST", joined.address + PARTICIPANTS_PATH, headers, body)


def _token_request(state: State, joined: Joined, answer: Answer, task: Task) -> Sealed:
    """Return the request for a token, signed: the issuer counts devices, and cannot read it."""
    request = _blinded(answer, task).request
    signer = state.signer
    signature = signer.sign(signed_token_request(answer.task, sha256(request).digest()))
    headers = {
        "content-type": REQUEST_MEDIA_TYPE,
        DEVICE_HEADER: to_base64(signer.public),
        SIGNATURE_HEADER: to_base64(signature),
    }
    path = TOKENS_PATH.format(task_id=id_to_text(answer.task))
    return Sealed(_MADE_HERE, "POST", joined.address + path, headers, request)


def _blinded(answer: Answer, task: Task) -> BlindedToken:
    """Return the blinded token of an answer: the same each time, from the answer's secret."""
    key = TokenKey(from_base64(task.token_key))
    nonce, salt = (_drawn(answer, what, size) for what, size in ((b"nonce", 32), (b"salt", 48)))
    for attempt in range(1 << 16):
        factor = int.from_bytes(_drawn(answer, b"factor%d" % attempt, 256), "big")
        if 0 < factor < key.modulus and gcd(factor, key.modulus) == 1:
            return blind_token(
                key, token_challenge(task, answer.task), nonce, salt=salt, factor=factor
            )
    raise ProtocolError("refused: the task's key for tokens is none")


def _drawn(answer: Answer, what: bytes, size: int) -> bytes:
    return shake_256(b"hdpmf token " + what + answer.secret).digest(size)


def token_in(answer: Answer, body: bytes) -> bytes:
    """Return the token that the issuer's answer brings.

    Raises:
        ProtocolError: The issuer has not signed it.
    """
    task = read_task(answer.document)
    challenge = token_challenge(task, answer.task)
    return (
        _blinded(answer, task)
        .finish(TokenKey(from_base64(task.token_key)), challenge, body)
        .encode()
    )


def status_in(body: bytes) -> int:
    """Return the status that a leader's answer to a report amounts to; it has a body if it refuses.

    Raises:
        DapError: It is no answer of a leader's.
    """
    if not body:
        return HTTPStatus.OK
    error = UploadErrors.decode(body).status[0].error
    if error in (ReportError.OUTDATED_CONFIG, ReportError.REPORT_TOO_EARLY):
        return HTTPStatus.SERVICE_UNAVAILABLE
    # Another encryption of the report came before: its answer was lost.
    return HTTPStatus.OK if error == ReportError.REPORT_REPLAYED else HTTPStatus.GONE


def _report(state: State, joined: Joined, answer: Answer, task: Task, now: int) -> Sealed:
    token, servers = Token.decode(answer.token), task.servers
    row = zero_row(task)
    if not is_zeros(state, answer.task):  # not more than was promised
        paid = next(line for line in state.ledger if line.task == answer.task.hex())
        row = own_row(changed(state, wish=min(state.wish, paid.wish)), joined, task)
    at = task.begin + (now - task.begin) // task.precision * task.precision
    configs = (
        config_of(servers.leader, joined.keys[0], now),
        config_of(servers.helper, joined.keys[1], now),
    )
    body = sealed_report(task, answer.task, row, token.report_id, at=at, configs=configs)
    # Nothing here names the device.
    headers = {"content-type": MEDIA_TYPES[UploadRequest], TOKEN_HEADER: token.to_header()}
    url = servers.leader.endpoint(REPORTS_PATH.format(task_id=id_to_text(answer.task)))
    return Sealed(_MADE_HERE, "POST", url, headers, body)


def zero_row(task: Task) -> np.ndarray:
    """Return the row of somebody who has nothing to say, or whose limits are reached."""
    sums = task.sums
    if isinstance(sums, Pairs):
        return np.zeros(len(sums.heads), np.int64)
    return np.zeros(sums.entries, np.int64)


def own_row(state: State, joined: Joined, task: Task) -> np.ndarray:
    """Return the owner's row: of presence and, where asked for, of values; or of heads."""
    items = items_of(state, joined)
    return row_of(task.sums, history_of(state, joined, items), len(items.table.ids))


def history_of(state: State, joined: Joined, items: Items) -> Histories:
    """Return what the owner has rated of a recommender's items, and lets be used."""
    retired = set(items.known.retired.tolist())
    rated = [
        (items.positions[item], each)
        for item, each in state.ratings_of(joined.address).items()
        if each.weight and item in items.positions and items.positions[item] not in retired
    ]
    rated.sort(key=lambda pair: pair[0])
    values, scale = np.array([each.value for _, each in rated], np.float64), items.known.scale
    return Histories(
        start=np.array([0, len(rated)]),
        items=np.array([position for position, _ in rated], np.int64),
        stars=np.full(len(rated), 5.0) if scale == IMPLICIT_SCALE else to_stars(values, scale),
        beta=np.array([state.wish / WHOLE]),
        gamma=np.array([each.weight / WHOLE for _, each in rated], np.float64),
    )
