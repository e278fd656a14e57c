"""Who may call a server: recommenders that were admitted, the other server, the operator."""

from __future__ import annotations

from collections.abc import Mapping
from hmac import compare_digest
from pathlib import Path
from typing import TYPE_CHECKING

from hdpmf.common.aggregation.two_servers.dap.messages import Problem
from hdpmf.common.base.files import atomic_write
from hdpmf.common.protocol.servers import Collector, card_to_json, read_collector
from hdpmf.errors import ConfigError, DapError, StorageError

if TYPE_CHECKING:
    from hdpmf.untrusted.aggregator.folder import AggregatorFolder

Cards = dict[str, Collector]
"""Cards of recommenders by their identity."""


class AdmittedCards:
    """The cards of admitted recommenders: files of a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._cards: Cards = {}
        self._as_of = 0

    def read(self) -> Cards:
        """Return all cards; the same object if they are as they were."""
        try:
            changed = self._folder.stat().st_mtime_ns
            if changed != self._as_of:
                found = [_read_card(path) for path in sorted(self._folder.glob("*.json"))]
                self._cards = {card.identity: card for card in found}
                self._as_of = changed
        except OSError as error:
            raise StorageError(f"cannot read {self._folder}: {error.strerror}") from error
        return self._cards

    def put(self, card: Collector) -> None:
        """Add a card; it replaces an older one of the same identity."""
        atomic_write(self._path(card.identity), card_to_json(card))

    def remove(self, identity: str) -> None:
        """Remove a card."""
        path = self._path(identity)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise StorageError(f"could not remove {path}: {error.strerror}") from error

    def _path(self, identity: str) -> Path:
        return self._folder / f"{identity}.json"


def _read_card(path: Path) -> Collector:
    try:
        return read_collector(path.read_bytes())
    except ConfigError as error:
        raise ConfigError(
            f"{path}: {error}; remove the file, and admit the recommender again"
        ) from None


class BearerTokens:
    """Bearer tokens of the partner, the collectors and Prometheus.

    Recommenders that are admitted or dismissed while the server runs count at once.
    """

    def __init__(self, folder: AggregatorFolder) -> None:
        self._party = folder.party
        self._partner = self._token(folder.partner.identity)
        self._metrics = folder.metrics_token.encode()
        self._admitted = folder.admitted
        self._cards: Cards = {}
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
        cards = self._admitted.read()
        if cards is not self._cards:
            self._collectors = {identity: self._token(identity) for identity in cards}
            self._cards = cards
        credential = _bearer(headers)
        found = ""
        for identity, token in self._collectors.items():  # all of them, so that time tells nothing
            if compare_digest(credential, token):
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
