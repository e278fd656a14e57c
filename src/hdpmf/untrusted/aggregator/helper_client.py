"""The leader's HTTPS client for the helper, pinned to the helper's card."""

from __future__ import annotations

from hdpmf.common.aggregation.two_servers.dap import (
    AGGREGATE_SHARES_PATH,
    AGGREGATION_JOB_PATH,
    MEDIA_TYPES,
    AggregateShare,
    AggregateShareReq,
    AggregationJobInitReq,
    AggregationJobResp,
    Message,
    id_to_text,
)
from hdpmf.common.net.sum_servers import ServerClient
from hdpmf.errors import TransportError
from hdpmf.untrusted.aggregator.tasks import ServerKeys

ANSWER_SECONDS = 120.0
"""The helper checks all reports of a job before it answers."""


class HelperClient(ServerClient):
    """A ``HelperApi`` over HTTPS. It tries once: the caller knows when to try again."""

    def __init__(self, keys: ServerKeys, timeout: float = ANSWER_SECONDS) -> None:
        super().__init__(keys.partner, keys.party, timeout)

    def aggregation_job(self, task_id: bytes, job_id: bytes, body: bytes) -> bytes:
        """As in ``HelperDoor``; errors as in ``ask``."""
        path = AGGREGATION_JOB_PATH.format(
            task_id=id_to_text(task_id), aggregation_job_id=id_to_text(job_id)
        )
        return self._message("PUT", path, AggregationJobInitReq, body, AggregationJobResp)

    def aggregate_share(self, task_id: bytes, body: bytes) -> bytes:
        """As in ``HelperDoor``; errors as in ``ask``."""
        path = AGGREGATE_SHARES_PATH.format(task_id=id_to_text(task_id))
        return self._message("POST", path, AggregateShareReq, body, AggregateShare)

    def _message(
        self, method: str, path: str, sent: type[Message], body: bytes, wanted: type[Message]
    ) -> bytes:
        _, media_type, answer = self.ask(method, path, body, MEDIA_TYPES[sent])
        if media_type != MEDIA_TYPES[wanted]:
            raise TransportError(
                "the helper's address answers something that is no answer of a helper"
            )
        return answer
