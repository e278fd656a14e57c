"""Bytes that others publish: the encoding tests of divviup's janus at 4ab28a36 (DAP 18).

What it does not have yet (jobs without a partial batch selector, uploads without extensions) is by
the draft.
"""

from __future__ import annotations

import pytest

from hdpmf.common.aggregation.two_servers.dap.codec import Message
from hdpmf.common.aggregation.two_servers.dap.messages import (
    AggregateShare,
    AggregateShareAad,
    AggregateShareReq,
    AggregationJobInitReq,
    CollectionJobReq,
    CollectionJobResp,
    HpkeCiphertext,
    HpkeConfig,
    InputShareAad,
    Interval,
    PingPongEnd,
    PingPongShare,
    PlaintextInputShare,
    Report,
    ReportError,
    ReportMetadata,
    ReportShare,
    ReportUploadStatus,
    TaskConfiguration,
    UploadErrors,
    UploadRequest,
    VerifyInit,
    VerifyResp,
)

UP, DOWN = bytes(range(1, 17)), bytes(range(16, 0, -1))  # report ids
UP_HEX, DOWN_HEX = "0102030405060708090A0B0C0D0E0F10", "100F0E0D0C0B0A090807060504030201"
SIX = HpkeCiphertext(42, b"012345", b"543210")
FOUR = HpkeCiphertext(13, b"abce", b"abfd")
SIX_HEX = "2A 0006 303132333435 00000006 353433323130"
FOUR_HEX = "0D 0004 61626365 00000004 61626664"
LEADERS, HELPERS = HpkeCiphertext(10, b"0123", b"4567"), HpkeCiphertext(12, b"01234", b"567")
SHARES_HEX = "0A 0004 30313233 00000004 34353637 0C 0005 3031323334 00000003 353637"
TIMES, TIMES_HEX = Interval(54321, 12345), "000000000000D431 0000000000003039"
INITIALIZE, FINISH = PingPongShare(b"012345"), PingPongEnd(b"")
FIRST = VerifyInit(ReportShare(ReportMetadata(UP, 54321), b"", SIX), INITIALIZE.encode())
SECOND = VerifyInit(ReportShare(ReportMetadata(DOWN, 73542), b"0123", FOUR), FINISH.encode())
FIRST_HEX = f"{UP_HEX} 000000000000D431 0000 00000000 {SIX_HEX} 0000000B 00 00000006 303132333435"
SECOND_HEX = f"{DOWN_HEX} 0000000000011F46 0000 00000004 30313233 {FOUR_HEX} 00000005 02 00000000"

CONFIGURATION = TaskConfiguration(
    task_info=b"foobar",
    leader_aggregator_endpoint=b"https://example.com/",
    helper_aggregator_endpoint=b"https://another.example.com/",
    time_precision=3600,
    min_batch_size=10000,
    vdaf_type=1,
    vdaf_configuration=b"",
    task_interval=Interval(277, 28),
)
CONFIGURATION_HEX = (
    "06 666F6F626172 0014 68747470733A2F2F6578616D706C652E636F6D2F "
    "001C 68747470733A2F2F616E6F746865722E6578616D706C652E636F6D2F 0000000000000E10 "
    "0000000000002710 01 0000 00000001 0000 0014 0001 0010 0000000000000115 000000000000001C"
)
REQUEST, REQUEST_HEX = CollectionJobReq(TIMES), f"01 0010 {TIMES_HEX} 00000000 0000"
UPLOADED = Report(ReportMetadata(UP, 12345), b"", SIX, FOUR)
UPLOADED_HEX = f"{UP_HEX} 0000000000003039 0000 00000000 {SIX_HEX} {FOUR_HEX}"

VECTORS: list[tuple[Message, str]] = [
    (CONFIGURATION, CONFIGURATION_HEX),
    # upload
    (ReportMetadata(UP, 12345), f"{UP_HEX} 0000000000003039 0000"),
    (PlaintextInputShare(b"0123"), "0000 00000004 30313233"),
    (UPLOADED, UPLOADED_HEX),
    (UploadRequest((UPLOADED, UPLOADED)), UPLOADED_HEX * 2),
    (
        UploadErrors((ReportUploadStatus(UP, 2), ReportUploadStatus(DOWN, 11))),
        f"{UP_HEX} 02 {DOWN_HEX} 0B",
    ),
    (
        InputShareAad(b"\x0c" * 32, CONFIGURATION, ReportMetadata(UP, 54321), b"0123"),
        f"{'0C' * 32} {CONFIGURATION_HEX} {UP_HEX} 000000000000D431 0000 00000004 30313233",
    ),
    # between servers
    (PingPongShare(b"prepare share"), "00 0000000d 70726570617265207368617265"),
    (PingPongEnd(b"prepare message"), "02 0000000f 70726570617265206d657373616765"),
    (FIRST.report_share, f"{UP_HEX} 000000000000D431 0000 00000000 {SIX_HEX}"),
    (FIRST, FIRST_HEX),
    (SECOND, SECOND_HEX),
    (
        VerifyResp(UP, bytes.fromhex("01 00000006 303132333435 00000004 36373839")),
        f"{UP_HEX} 00 00000013 01 00000006 303132333435 00000004 36373839",
    ),
    (VerifyResp(b"\xff" * 16, ReportError.VDAF_VERIFY_ERROR), f"{'FF' * 16} 02 06"),
    (AggregationJobInitReq((FIRST, SECOND)), f"00 00000000 0000 {FIRST_HEX} {SECOND_HEX}"),
    # collection
    (REQUEST, REQUEST_HEX),
    (CollectionJobResp(23, TIMES, LEADERS, HELPERS), f"0000000000000017 {TIMES_HEX} {SHARES_HEX}"),
    (
        AggregateShareReq(REQUEST, TIMES, 439, bytes(32)),
        f"{REQUEST_HEX} 01 0010 {TIMES_HEX} 00000000000001B7 {'00' * 32}",
    ),
    (AggregateShare(LEADERS), "0A 0004 30313233 00000004 34353637"),
    (
        AggregateShareAad(b"\x0c" * 32, CONFIGURATION, REQUEST),
        f"{'0C' * 32} {CONFIGURATION_HEX} {REQUEST_HEX}",
    ),
    # keys
    (
        HpkeConfig(23, 0x0020, 0x0001, 0x0003, b"0123456789abcdef"),
        "17 0020 0001 0003 0010 30313233343536373839616263646566",
    ),
]


@pytest.mark.parametrize(("message", "text"), VECTORS, ids=lambda value: type(value).__name__)
def test_bytes_are_the_published_ones(message: Message, text: str):
    assert message.encode() == bytes.fromhex(text)
    assert type(message).decode(bytes.fromhex(text)) == message


def test_errors_have_the_published_numbers():
    names = [
        "batch_collected",
        "report_replayed",
        "report_dropped",
        "hpke_unknown_config_id",
        "hpke_decrypt_error",
        "vdaf_verify_error",
        "task_expired",
        "invalid_message",
        "report_too_early",
        "task_not_started",
        "outdated_config",
    ]
    assert [error.name.lower() for error in sorted(ReportError)] == names
    assert [int(error) for error in sorted(ReportError)] == list(range(1, 12))
