"""The one module where the private side composes messages.

To see what can leave a device, read the calls of its functions.

In the paper's rounds, in memory, messages are made by ``compose``.

From a device everything leaves in a report to two servers: its numbers in two shares
(``split_report``), each encrypted to its server (``sealed_report``). What goes beside it is in
``report_headers``: a token, which the recommender has signed blindly. The request for it
(``token_request``) goes to the recommender with ``token_headers``.
"""

from __future__ import annotations

import secrets
from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from hdpmf.common.protocol import (
    BitContribution,
    BudgetReport,
    Gradients,
    ItemCounts,
    SumContribution,
)
from hdpmf.common.protocol.documents import from_base64
from hdpmf.common.protocol.task import (
    DEVICE_HEADER,
    SIGNATURE_HEADER,
    Task,
    signed_token_request,
    token_challenge,
)
from hdpmf.errors import ProtocolError

if TYPE_CHECKING:
    import numpy as np

    from hdpmf.common.aggregation.two_servers.dap.messages import HpkeConfig
    from hdpmf.common.aggregation.two_servers.prio import Prio3
    from hdpmf.common.aggregation.two_servers.tokens import BlindedToken, Token
    from hdpmf.common.protocol.identity import Identity

Outgoing = TypeVar(
    "Outgoing",
    BudgetReport,
    ItemCounts,
    Gradients,
    SumContribution,
    BitContribution,
)

_ALLOWED = Outgoing.__constraints__


def compose(kind: type[Outgoing], **fields: Any) -> Outgoing:
    """Make an outgoing message of one of the kinds that a client may send."""
    if kind not in _ALLOWED:
        raise ProtocolError(f"a client never sends a {kind.__name__}")
    return kind(**fields)


class SplitReport(msgspec.Struct, frozen=True, array_like=True):
    """One user's report before it is encrypted. Both shares together are the ratings. PRIVATE.

    Attributes:
        report_id: Random. Servers count an id once, however often it is encrypted anew.
        public_share: What both servers see.
        input_shares: The leader's and the helper's.
    """

    report_id: bytes
    time: int
    public_share: bytes
    input_shares: tuple[bytes, bytes]

    def __repr__(self) -> str:
        return "SplitReport(...)"


def split_report(prio: Prio3, row: np.ndarray, report_id: bytes, *, at: int) -> SplitReport:
    """Return one user's report in two shares, of which neither alone tells anything.

    The size, and the work to make it, depend on the task only.

    Args:
        prio: The cryptography of the task.
        row: The user's whole numbers, or zeros.
        report_id: Random.
        at: The time that the report says, a multiple of the task's precision.
    """
    circuit: Any = prio.circuit
    shares = prio.shard(circuit.encode(row), report_id)
    leader, helper = shares.input_shares
    return SplitReport(report_id, at, shares.public_share, (leader, helper))


def sealed_report(
    shares: SplitReport, task_id: bytes, configs: tuple[HpkeConfig, HpkeConfig]
) -> bytes:
    """Return a report as it is uploaded: each share encrypted to its server.

    Args:
        configs: The keys of leader and helper.
    """
    from hdpmf.common.aggregation.two_servers.dap.hpke import input_share_info, seal
    from hdpmf.common.aggregation.two_servers.dap.messages import (
        InputShareAad,
        PlaintextInputShare,
        Report,
        ReportMetadata,
        Role,
    )

    metadata = ReportMetadata(shares.report_id, shares.time)
    aad = InputShareAad(task_id, metadata, shares.public_share).encode()
    leader, helper = (
        seal(config, input_share_info(role), aad, PlaintextInputShare(share).encode())
        for config, role, share in zip(
            configs, (Role.LEADER, Role.HELPER), shares.input_shares, strict=True
        )
    )
    return Report(metadata, shares.public_share, leader, helper).encode()


def token_request(task: Task, task_id: bytes) -> BlindedToken:
    """Return the request for a token for one report, and what takes the blinding off.

    The request is a uniform number for whoever does not have the latter, and depends on nothing
    but the task's key. The report's id is drawn with it.
    """
    from hdpmf.common.aggregation.two_servers.tokens import NONCE_SIZE, TokenKey, blind_token

    nonce = secrets.token_bytes(NONCE_SIZE)
    return blind_token(TokenKey(from_base64(task.token_key)), token_challenge(task, task_id), nonce)


def token_headers(identity: Identity, task_id: bytes, request: bytes) -> dict[str, str]:
    """Return the headers of a request for a token, signed by the device: the issuer counts them."""
    from hdpmf.common.aggregation.two_servers.tokens import REQUEST_MEDIA_TYPE

    signature = identity.sign(signed_token_request(task_id, sha256(request).digest()))
    return {
        "content-type": REQUEST_MEDIA_TYPE,
        DEVICE_HEADER: identity.public.hex(),
        SIGNATURE_HEADER: signature.hex(),
    }


def report_headers(token: Token | None) -> dict[str, str]:
    """Return the headers of a report: its media type and, of an enrolled device, its token.

    Nothing in them names the device.
    """
    from hdpmf.common.aggregation.two_servers.dap.messages import MEDIA_TYPES, Report
    from hdpmf.common.aggregation.two_servers.tokens import TOKEN_HEADER

    kind = {"content-type": MEDIA_TYPES[Report]}
    return kind if token is None else kind | {TOKEN_HEADER: token.to_header()}
