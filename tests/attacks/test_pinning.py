"""Attack 21: a device joins with another authority or another roster, and nobody says a word."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hdpmf.cli.device.join import PinOptions, pin
from hdpmf.common.aggregation.masks import DeviceIdentity
from hdpmf.common.net.certificates import ensure_certificates
from hdpmf.common.protocol import DeviceCard
from hdpmf.common.protocol.enrolment import Enrolled
from hdpmf.errors import ConfigError
from hdpmf.private.device.store.device_store import DeviceStore

WHERE = "https://films.example:9443"


def test_another_authority_is_not_pinned_silently(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever could give a device another file for --ca spoke as its recommender from then on."""
    first, second = (
        ensure_certificates(tmp_path / name, ["films.example"]).authority
        for name in ("own", "hostile")
    )
    with DeviceStore.create(tmp_path / "me.hdpmf") as store:
        assert pin(store, PinOptions(WHERE, ca=first))[1] == WHERE
        assert pin(store, PinOptions(WHERE, ca=first))[1] == WHERE  # the same one may come again
        pinned = store.recommender.authority
        with pytest.raises(
            ConfigError,
            match=r"another authority is pinned here .* add --new-authority; if this is one more",
        ):
            pin(store, PinOptions("https://hostile.example:9443", ca=second))
        assert (store.recommender.authority, store.device.last_recommender) == (pinned, WHERE)
        with pytest.raises(ConfigError, match="belongs to --ca"):
            pin(store, PinOptions(WHERE, new_authority=True))
        capsys.readouterr()
        pin(store, PinOptions(WHERE, ca=second, new_authority=True))
        assert store.recommender.authority == Path(second).read_bytes() != pinned
        assert "another one than before" in capsys.readouterr().err


def test_another_roster_is_not_pinned_silently(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A roster of one organisation and many false ones hides nobody."""
    authority = ensure_certificates(tmp_path / "own", ["films.example"]).authority
    with DeviceStore.create(tmp_path / "me.hdpmf") as store:
        first, second = (
            _roster(tmp_path / f"{name}.json", store) for name in ("honest", "hostile")
        )
        for _ in range(2):  # the same one may come again
            pin(
                store, PinOptions(WHERE, ca=authority, roster=first, roster_digest=digest_of(first))
            )
        pin(store, PinOptions(WHERE, ca=authority, roster=first))  # it was compared
        digest, pinned = store.recommender.roster_digest, store.roster
        assert digest
        with pytest.raises(
            ConfigError,
            match=rf"another roster is pinned here \(digest {digest}.*--new-roster",
        ):
            pin(store, PinOptions(WHERE, ca=authority, roster=second))
        assert (store.recommender.roster_digest, store.roster) == (digest, pinned)
        with pytest.raises(ConfigError, match="belongs to --roster"):
            pin(store, PinOptions(WHERE, ca=authority, new_roster=True))
        capsys.readouterr()
        new = PinOptions(WHERE, ca=authority, roster=second, new_roster=True)
        with pytest.raises(ConfigError, match="give it with --roster-digest"):
            pin(store, new)
        with pytest.raises(ConfigError, match="somebody was given another roster"):
            pin(store, replace(new, roster_digest=digest_of(first)))
        assert store.recommender.roster_digest == digest
        pin(store, replace(new, roster_digest=digest_of(second)))
        assert (
            store.recommender.roster_digest
            == Enrolled.from_json(second.read_bytes()).digest
            != digest
        )
        assert f"its digest was {digest}" in capsys.readouterr().err


def digest_of(roster: Path) -> str:
    return Enrolled.from_json(roster.read_bytes()).digest


def _roster(path: Path, store: DeviceStore) -> Path:
    names = [store.identity.public, *(DeviceIdentity.generate().public for _ in range(2))]
    path.write_bytes(
        Enrolled([DeviceCard(name=key.hex()[:8], identity=key.hex()) for key in names]).to_json()
    )
    return path
