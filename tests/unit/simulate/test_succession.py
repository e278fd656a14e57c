"""A new authority reaches devices over real TLS, however they are asked; a forged one does not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

pytest.importorskip("pyhpke")

from hdpmf.common.data import IdIndex, RatingScale
from hdpmf.common.net import authority_rotation
from hdpmf.common.net.certificates import ensure_certificates
from hdpmf.common.net.polling import WebClient
from hdpmf.common.protocol.catalogue import catalogue_table
from hdpmf.lab.simulate.deploy import free_port
from hdpmf.private.device.device_identity import (
    authorities_of,
    digests,
    follow,
)
from hdpmf.private.device.participant import Participant
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.untrusted.service.folder import Config, ServiceFolder
from hdpmf.untrusted.service.publish import PublicFiles
from hdpmf.untrusted.service.website import serve_website

TABLE = catalogue_table(IdIndex(range(5)), RatingScale(1.0, 5.0, 1.0))
NAMES = ["localhost", "127.0.0.1"]


class WebDevice:
    """A device with a store and a real connection, that looks when it is told."""

    def __init__(self, store: DeviceStore, address: str, authority: bytes) -> None:
        store.change_recommender(authority=authority)
        self.store, self.said = store, list[str]()
        client = WebClient(address, authority)
        self._reporter = Participant(
            store,
            client,
            recommender=address,
            follow=lambda told: client.trust(follow(store, told, self.said.append)),
            log=self.said.append,
        )

    def look(self) -> str:
        """What it said about that."""
        self.said.clear()
        self._reporter.poll_soon()
        self._reporter.step()
        return "\n".join(self.said)


@pytest.mark.slow
def test_with_two_servers(tmp_path: Path) -> None:
    service = ServiceFolder.create(tmp_path / "shop", Config(name="shop", port=free_port()), TABLE)
    tls = service.tls_folder
    old = ensure_certificates(tls, service.config.names).authority.read_bytes()
    address = f"https://localhost:{service.config.port}"
    with DeviceStore.create(tmp_path / "ana") as ana, DeviceStore.create(tmp_path / "ben") as ben:
        there, away = WebDevice(ana, address, old), WebDevice(ben, address, old)

        def serve(*, sees: Callable[[], str]) -> str:
            PublicFiles(service).write()
            with serve_website(service):
                return sees()

        assert "authority" not in serve(sees=there.look)
        new = authority_rotation.announce(tls).read_bytes()
        assert "will be followed by another one" in serve(sees=there.look)
        assert ana.recommender.authority == old + new
        authority_rotation.change_over(tls, list(service.config.names))
        assert "is not trusted any more" in serve(sees=there.look)
        assert ana.recommender.authority == new
        assert serve(sees=there.look) == ""
        assert "not reached" in serve(sees=away.look)
        assert ben.recommender.authority == old
        told = authorities_of(ana)
        assert told is not None
        assert told["sha256"] == digests(new)
        assert told["changed"]


def test_a_forged_one_with_two_servers(tmp_path: Path) -> None:
    """Whoever has taken over the server and its certificate, but not the authority's key,
    introduces nobody.
    """
    service = ServiceFolder.create(tmp_path / "shop", Config(name="shop", port=free_port()), TABLE)
    old = ensure_certificates(service.tls_folder, service.config.names).authority.read_bytes()
    hostile = ensure_certificates(tmp_path / "hostile", NAMES).authority.read_text()
    lie = msgspec.msgpack.encode(
        authority_rotation.AuthorityMessage(old.decode(), hostile, b"\0" * 70)
    )
    with pytest.MonkeyPatch.context() as patched, DeviceStore.create(tmp_path / "ana") as store:
        patched.setattr("hdpmf.untrusted.service.publish.authority_message", lambda folder: lie)
        PublicFiles(service).write()
        with serve_website(service) as address:
            device = WebDevice(store, address, old)
            assert "the pinned one has not signed it" in device.look()
            assert device.look() == ""  # it is not asked for again
        assert store.recommender.authority == old
