"""Attack 21: a device joins with another authority or another roster, and nobody says a word."""

from __future__ import annotations

from pathlib import Path

import pytest

from hdpmf.cli.device.join import PinOptions, pin_by_roster
from hdpmf.common.aggregation.masks import DeviceIdentity
from hdpmf.common.net.certificates import ensure_certificates
from hdpmf.common.net.keys import NodeKey
from hdpmf.common.protocol import DeviceCard
from hdpmf.common.protocol.enrolled import Enrolled
from hdpmf.errors import ConfigError
from hdpmf.private.device.store.device_store import DeviceStore


def _pin(
    store: DeviceStore, address: str, ca: Path | None, roster: Path | None, **more: bool
) -> str:
    return pin_by_roster(store, PinOptions(address, ca, roster, **more), None)[1]


def test_another_authority_is_not_pinned_silently(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever could give a device another file for --ca spoke as its recommender from then on."""
    first, second = (
        ensure_certificates(tmp_path / name, ["films.example"]).authority
        for name in ("own", "hostile")
    )
    where = "films.example:9443"
    with DeviceStore.create(tmp_path / "me.hdpmf") as store:
        store.put("address", where.encode())
        store.pin_roster(
            [store.identity.public, *(DeviceIdentity.generate().public for _ in range(2))], [1] * 3
        )
        assert _pin(store, where, first, None) == where
        assert _pin(store, where, first, None) == where  # the same one may come again
        pinned = store.get("authority")
        with pytest.raises(
            ConfigError,
            match=r"another authority is pinned here .* add --new-authority; if this is one more",
        ):
            _pin(store, "hostile.example:9443", second, None)
        assert (store.get("authority"), store.get("address")) == (pinned, where.encode())
        with pytest.raises(ConfigError, match="belongs to --ca"):
            _pin(store, where, None, None, new_authority=True)
        capsys.readouterr()
        _pin(store, where, second, None, new_authority=True)
        assert store.get("authority") == Path(second).read_bytes() != pinned
        assert "another one than before" in capsys.readouterr().err


def test_another_roster_is_not_pinned_silently(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A roster of one person and many false devices hides nobody."""
    authority = ensure_certificates(tmp_path / "own", ["films.example"]).authority
    where = "films.example:9443"
    with DeviceStore.create(tmp_path / "me.hdpmf") as store:
        first, second = (
            _roster(tmp_path / f"{name}.json", store) for name in ("honest", "hostile")
        )
        _pin(store, where, authority, first)
        _pin(store, where, authority, first)  # the same one may come again
        digest, pinned = store.get("roster-digest"), store.roster
        assert digest is not None
        with pytest.raises(
            ConfigError,
            match=rf"another roster is pinned here \(digest {digest.decode()}.*--new-roster",
        ):
            _pin(store, where, authority, second)
        assert (store.get("roster-digest"), store.roster) == (digest, pinned)
        with pytest.raises(ConfigError, match="belongs to --roster"):
            _pin(store, where, authority, None, new_roster=True)
        capsys.readouterr()
        _pin(store, where, authority, second, new_roster=True)
        assert (
            store.get("roster-digest")
            == Enrolled.from_json(second.read_bytes()).digest.encode()
            != digest
        )
        assert f"its digest was {digest.decode()}" in capsys.readouterr().err


def _roster(path: Path, store: DeviceStore) -> Path:
    names = [store.identity.public, *(DeviceIdentity.generate().public for _ in range(2))]
    cards = [
        DeviceCard(name=key.hex()[:8], identity=key.hex(), node=NodeKey.generate().public)
        for key in names
    ]
    path.write_bytes(Enrolled(cards).to_json())
    return path
