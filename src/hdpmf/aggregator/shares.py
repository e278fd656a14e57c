"""A report's share, from its encryption to the share that is summed; whatever is wrong is a reason, never an error."""

from __future__ import annotations

from hdpmf.aggregator.keys import ServerKeys
from hdpmf.aggregator.tasks import OpenTask
from hdpmf.dap import (
    HpkeCiphertext,
    InputShareAad,
    PlaintextInputShare,
    PrepareError,
    Problem,
    ReportMetadata,
)
from hdpmf.dap.hpke import input_share_info
from hdpmf.errors import DapError, PrioError
from hdpmf.prio import Preparation


def prepare_share(
    keys: ServerKeys, opened: OpenTask, metadata: ReportMetadata, public_share: bytes, encrypted: HpkeCiphertext
) -> tuple[Preparation, bytes] | PrepareError:
    """A server's part of the check of one report, and what it keeps meanwhile."""
    aad = InputShareAad(opened.id, metadata, public_share).encode()
    try:
        plain = keys.hpke.open(encrypted, input_share_info(keys.dap_role), aad)
    except DapError as error:
        unknown = error.kind == Problem.OUTDATED_CONFIG
        return PrepareError.HPKE_UNKNOWN_CONFIG_ID if unknown else PrepareError.HPKE_DECRYPT_ERROR
    try:
        share = PlaintextInputShare.decode(plain)
    except DapError:
        return PrepareError.INVALID_MESSAGE
    if share.extensions:  # none is known
        return PrepareError.INVALID_MESSAGE
    try:
        return opened.prio.prepare(opened.key, keys.index, metadata.report_id, public_share, share.payload)
    except PrioError:
        return PrepareError.VDAF_PREP_ERROR
