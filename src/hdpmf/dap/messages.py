"""The messages of DAP (draft-ietf-ppm-dap-09): uploads, aggregation and collection.

Names and fields are the draft's. Which of the optional fields of a message are there says which case it is; its ``tag``
is that case. Shares are opaque bytes here: a VDAF reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Annotated, ClassVar

from hdpmf.dap.basics import (
    CHECKSUM_SIZE,
    BatchSelector,
    HpkeCiphertext,
    Interval,
    PartialBatchSelector,
    Query,
    ReportID,
    TaskID,
)
from hdpmf.dap.codec import U16, U64, Fixed, Items, Message, Opaque16, Opaque32, message


class PrepareRespState(IntEnum):
    """What became of a report at the helper."""

    CONTINUE = 0
    FINISHED = 1
    REJECT = 2


class PrepareError(IntEnum):
    """Why a report does not count."""

    BATCH_COLLECTED = 0
    REPORT_REPLAYED = 1
    REPORT_DROPPED = 2
    HPKE_UNKNOWN_CONFIG_ID = 3
    HPKE_DECRYPT_ERROR = 4
    VDAF_PREP_ERROR = 5
    BATCH_SATURATED = 6
    TASK_EXPIRED = 7
    INVALID_MESSAGE = 8
    REPORT_TOO_EARLY = 9


class PingPongType(IntEnum):
    """What a message between the servers does (``MessageType`` in VDAF's section 5.8)."""

    INITIALIZE = 0
    CONTINUE = 1
    FINISH = 2


# Upload


@message
class Extension(Message):
    """Something more that a client tells a server.

    Attributes:
        extension_type: Which.
        extension_data: What.
    """

    extension_type: U16
    extension_data: Opaque16


@message
class ReportMetadata(Message):
    """What both servers see of a report.

    Attributes:
        report_id: Random; also the VDAF's nonce.
        time: Seconds since 1970, rounded down to the task's precision.
    """

    report_id: ReportID
    time: U64


@message
class PlaintextInputShare(Message):
    """What a client encrypts to one server.

    Attributes:
        extensions: For this server.
        payload: The input share.
    """

    extensions: Annotated[tuple[Extension, ...], Items(2)]
    payload: Opaque32


@message
class InputShareAad(Message):
    """What an encrypted input share is bound to.

    Attributes:
        task_id: Of the task.
        report_metadata: Of the report.
        public_share: Of the report.
    """

    task_id: TaskID
    report_metadata: ReportMetadata
    public_share: Opaque32


@message
class Report(Message):
    """What a client uploads to the leader.

    Attributes:
        report_metadata: What both servers see.
        public_share: For both servers.
        leader_encrypted_input_share: A ``PlaintextInputShare`` for the leader.
        helper_encrypted_input_share: Another for the helper.
    """

    report_metadata: ReportMetadata
    public_share: Opaque32
    leader_encrypted_input_share: HpkeCiphertext
    helper_encrypted_input_share: HpkeCiphertext


# Aggregation


@message
class PingPongMessage(Message):
    """What the servers tell each other of one report, as a VDAF's two servers take turns.

    A share alone initializes, a message alone finishes, both together continue. Prio3 has one round: the leader
    initializes, and the helper finishes.

    Attributes:
        prep_msg: The message of this round, for both.
        prep_share: The sender's share for the next message.
    """

    prep_msg: Opaque32 | None = None
    prep_share: Opaque32 | None = None

    cases: ClassVar[Mapping[IntEnum, tuple[str, ...]]] = {
        PingPongType.INITIALIZE: ("prep_share",),
        PingPongType.CONTINUE: ("prep_msg", "prep_share"),
        PingPongType.FINISH: ("prep_msg",),
    }


@message
class ReportShare(Message):
    """The helper's part of a report.

    Attributes:
        report_metadata: As uploaded.
        public_share: As uploaded.
        encrypted_input_share: The helper's.
    """

    report_metadata: ReportMetadata
    public_share: Opaque32
    encrypted_input_share: HpkeCiphertext


@message
class PrepareInit(Message):
    """A report, and the leader's first word on it.

    Attributes:
        report_share: The helper's part.
        payload: A ``PingPongMessage``.
    """

    report_share: ReportShare
    payload: Opaque32


@message
class AggregationJobInitReq(Message):
    """The leader asks the helper to check reports.

    Attributes:
        agg_param: Of the VDAF; Prio3 has none.
        part_batch_selector: What is known of their batch.
        prepare_inits: At least one.
    """

    agg_param: Opaque32
    part_batch_selector: PartialBatchSelector
    prepare_inits: Annotated[tuple[PrepareInit, ...], Items(4, 1)]


@message
class PrepareResp(Message):
    """The helper's word on a report: a payload continues, an error rejects, neither has finished.

    Attributes:
        report_id: Of the report.
        payload: A ``PingPongMessage``.
        prepare_error: Why it does not count.
    """

    report_id: ReportID
    payload: Opaque32 | None = None
    prepare_error: PrepareError | None = None

    cases: ClassVar[Mapping[IntEnum, tuple[str, ...]]] = {
        PrepareRespState.CONTINUE: ("payload",),
        PrepareRespState.FINISHED: (),
        PrepareRespState.REJECT: ("prepare_error",),
    }


@message
class AggregationJobResp(Message):
    """The helper's answer, in the order of the question.

    Attributes:
        prepare_resps: One for each report.
    """

    prepare_resps: Annotated[tuple[PrepareResp, ...], Items(4, 1)]


@message
class PrepareContinue(Message):
    """The leader's next word on a report. Prio3 does not need it.

    Attributes:
        report_id: Of the report.
        payload: A ``PingPongMessage``.
    """

    report_id: ReportID
    payload: Opaque32


@message
class AggregationJobContinueReq(Message):
    """The leader goes on with a job. Prio3 does not need it.

    Attributes:
        step: Which.
        prepare_continues: At least one.
    """

    step: U16
    prepare_continues: Annotated[tuple[PrepareContinue, ...], Items(4, 1)]


# Collection


@message
class CollectionReq(Message):
    """The collector asks the leader for a sum.

    Attributes:
        query: Of which batch.
        agg_param: Of the VDAF; Prio3 has none.
    """

    query: Query
    agg_param: Opaque32


@message
class Collection(Message):
    """The sum, as two shares that the collector opens.

    Attributes:
        part_batch_selector: Which batch it is.
        report_count: How many reports are in it.
        interval: The smallest that has their times.
        leader_encrypted_agg_share: The leader's share.
        helper_encrypted_agg_share: The helper's share.
    """

    part_batch_selector: PartialBatchSelector
    report_count: U64
    interval: Interval
    leader_encrypted_agg_share: HpkeCiphertext
    helper_encrypted_agg_share: HpkeCiphertext


@message
class AggregateShareReq(Message):
    """The leader asks the helper for its share of a sum.

    Attributes:
        batch_selector: Of which batch.
        agg_param: Of the VDAF; Prio3 has none.
        report_count: How many reports the leader has counted.
        checksum: Exclusive or of the SHA-256 of their ids (``report_checksum``).
    """

    batch_selector: BatchSelector
    agg_param: Opaque32
    report_count: U64
    checksum: Annotated[bytes, Fixed(CHECKSUM_SIZE)]


@message
class AggregateShare(Message):
    """A server's share of a sum.

    Attributes:
        encrypted_aggregate_share: For the collector.
    """

    encrypted_aggregate_share: HpkeCiphertext


@message
class AggregateShareAad(Message):
    """What an encrypted share of a sum is bound to.

    Attributes:
        task_id: Of the task.
        agg_param: Of the VDAF; Prio3 has none.
        batch_selector: Of which batch.
    """

    task_id: TaskID
    agg_param: Opaque32
    batch_selector: BatchSelector
