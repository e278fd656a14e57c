"""Who is asking: tokens that parties show each other, looked at before anything else of a request."""

from __future__ import annotations

from collections.abc import Mapping
from hmac import compare_digest

from hdpmf.aggregator.folder import AggregatorFolder
from hdpmf.dap import Problem
from hdpmf.errors import DapError


class Tokens:
    """What a server knows its partner and its collectors by.

    Recommenders that are admitted or dismissed while the server runs count at once.
    """

    def __init__(self, folder: AggregatorFolder) -> None:
        self._folder, self._party = folder, folder.party
        self._partner = self._token(folder.partner.identity)
        self._metrics = folder.metrics_token.encode()
        self._collectors: dict[str, bytes] = {}
        self._as_of = 0

    def check_partner(self, headers: Mapping[str, str]) -> None:
        """DapError unless the other server asks."""
        if not compare_digest(_shown(headers), self._partner):
            raise _refused("this is for the other server")

    def check_metrics(self, headers: Mapping[str, str]) -> None:
        """DapError unless the operator's Prometheus asks."""
        if not compare_digest(_shown(headers), self._metrics):
            raise _refused("this is for the operator; the token is in keys/metrics.token of the server's folder")

    def collector(self, headers: Mapping[str, str]) -> str:
        """The identity of the recommender that asks; DapError unless it is admitted."""
        self._refresh()
        shown, found = _shown(headers), ""
        for identity, token in self._collectors.items():  # all of them, so that time tells nothing
            if compare_digest(shown, token):
                found = identity
        if not found:
            raise _refused("this is for recommenders that were admitted here")
        return found

    def _refresh(self) -> None:
        changed = (self._folder.path / "collectors").stat().st_mtime_ns
        if changed != self._as_of:
            self._collectors = {identity: self._token(identity) for identity in self._folder.collectors}
            self._as_of = changed

    def _token(self, other: str) -> bytes:
        return self._party.token(other, to=self._party.public).encode()


def _shown(headers: Mapping[str, str]) -> bytes:
    kind, _, token = headers.get("authorization", "").partition(" ")
    return token.strip().encode("utf-8", "replace") if kind.lower() == "bearer" else b""


def _refused(why: str) -> DapError:
    return DapError(why, Problem.UNAUTHORIZED_REQUEST)
