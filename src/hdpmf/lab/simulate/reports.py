"""Simulated devices for two servers: the real device code, without a network."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hdpmf.common.protocol.servers import Server, Servers
from hdpmf.errors import FederationError, TransportError

if TYPE_CHECKING:
    from hdpmf.common.privacy.sampling import SeededNoise
    from hdpmf.private.device.store.device_store import DeviceStore


@dataclass(frozen=True, slots=True)
class SentReport:
    """A report as it left a device, with the device's signature."""

    device: str
    signature: bytes = field(repr=False)
    body: bytes = field(repr=False)


class _RecordingCarrier:
    """Has the recommender's files, and keeps what is uploaded."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self._files = files
        self.sent: list[SentReport] = []

    def fetch(self, name: str, most: int, etag: str = "") -> tuple[bytes, str] | None:
        if name not in self._files or len(self._files[name]) > most:
            raise TransportError(f"there is no {name}")
        return self._files[name], ""

    def upload(
        self,
        leader: Server,
        path: str,
        headers: dict[str, str],
        body: bytes,
        leaving: Callable[[], None],
    ) -> int:
        leaving()
        self.sent.append(
            SentReport(headers["hdpmf-device"], bytes.fromhex(headers["hdpmf-signature"]), body)
        )
        return 201


def reports_of(
    stores: Sequence[DeviceStore],
    noises: Sequence[SeededNoise],
    servers: Servers,
    files: Mapping[str, bytes],
    now: float,
) -> Iterator[SentReport]:
    """Yield the reports of devices, one device after another, for the published files.

    Args:
        stores: Of the devices.
        noises: Draw each device's taste label.
        servers: The pair that their owners trust.
        files: Published by the recommender.
        now: The time; every device reports at once.

    Raises:
        FederationError: A device did not report.
    """
    from hdpmf.private.device.participant import Participant
    from hdpmf.private.device.pinned_servers import pin_servers

    for store, noise in zip(stores, noises, strict=True):
        pin_servers(store, servers)
        said: list[str] = []
        carrier = _RecordingCarrier(files)
        reporter = Participant(
            store,
            carrier,
            recommender="recommender",
            clock=lambda: now,
            uniform=lambda: 0.0,
            noise=noise,
            simulation=True,
            log=said.append,
        )
        reporter.step()
        if len(carrier.sent) != store.users:
            raise FederationError(
                f"a simulated device did not report: {said[-1] if said else 'no word'}"
            )
        yield from carrier.sent
