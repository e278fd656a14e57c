"""Who may call a server: recommenders that were admitted, the other server, the operator."""

from __future__ import annotations

from collections.abc import Mapping
from hmac import compare_digest
from typing import TYPE_CHECKING

from hdpmf.common.aggregation.two_servers.dap.messages import Problem
from hdpmf.errors import DapError

if TYPE_CHECKING:
    from hdpmf.untrusted.aggregator.folder import AggregatorFolder


class BearerTokens:
    """Bearer tokens of the partner, the collectors and Prometheus.

    Recommenders that are admitted or dismissed while the server runs count at once.
    """

    def __init__(self, folder: AggregatorFolder) -> None:
        self._folder = folder
        self._party = folder.party
        self._partner = self._token(folder.partner.identity)
        self._metrics = folder.metrics_token.encode()
        self._collectors: dict[str, bytes] = {}

    def check_partner(self, headers: Mapping[str, str]) -> None:
        """Raise DapError unless the other server asks."""
        if not compare_digest(_bearer(headers), self._partner):
            raise _refused("this is for the other server")

    def check_metrics(self, headers: Mapping[str, str]) -> None:
        """Raise DapError unless the operator's Prometheus asks."""
        if not compare_digest(_bearer(headers), self._metrics):
            raise _refused(
                "this is for the operator; the token is in keys/metrics.token of the server's "
                "folder"
            )

    def collector(self, headers: Mapping[str, str]) -> str:
        """Return the identity of the calling recommender; raise DapError unless it is admitted."""
        admitted = self._folder.collectors
        for identity in admitted.keys() - self._collectors.keys():
            self._collectors[identity] = self._token(identity)
        credential = _bearer(headers)
        found = ""
        for identity in admitted:  # all of them, so that time tells nothing
            if compare_digest(credential, self._collectors[identity]):
                found = identity
        if not found:
            raise _refused("this is for recommenders that were admitted here")
        return found

    def _token(self, other: str) -> bytes:
        return self._party.token(other, to=self._party.public).encode()


def _bearer(headers: Mapping[str, str]) -> bytes:
    kind, _, token = headers.get("authorization", "").partition(" ")
    return token.strip().encode("utf-8", "replace") if kind.lower() == "bearer" else b""


def _refused(why: str) -> DapError:
    return DapError(why, Problem.UNAUTHORIZED_REQUEST)
