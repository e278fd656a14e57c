"""A report to two servers: a row in two shares, each encrypted to its server.

To see what leaves a device, read ``device.seal``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    import numpy as np

    from hdpmf.common.aggregation.two_servers.dap.messages import HpkeConfig
    from hdpmf.common.aggregation.two_servers.prio import Prio3
    from hdpmf.common.protocol.task import Task


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
    shares: SplitReport, task: Task, task_id: bytes, configs: tuple[HpkeConfig, HpkeConfig]
) -> bytes:
    """Return a report as it is uploaded: each share encrypted to its server.

    What is encrypted is bound to the task's configuration, to the report's id and to its time.

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
    from hdpmf.common.protocol.task import configuration_of

    metadata = ReportMetadata(shares.report_id, shares.time // task.precision)
    configuration = configuration_of(task, task_id)
    aad = InputShareAad(task_id, configuration, metadata, shares.public_share).encode()
    leader, helper = (
        seal(config, input_share_info(role), aad, PlaintextInputShare(share).encode())
        for config, role, share in zip(
            configs, (Role.LEADER, Role.HELPER), shares.input_shares, strict=True
        )
    )
    return Report(metadata, shares.public_share, leader, helper).encode()
