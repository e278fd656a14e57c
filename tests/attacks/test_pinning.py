"""Attack 21: a device joins with another authority, and nobody says a word."""

from __future__ import annotations

from pathlib import Path

import pytest

from hdpmf.cli.device.join import _pin
from hdpmf.device.store import DeviceStore
from hdpmf.errors import ConfigError
from hdpmf.secure_sum import DeviceIdentity
from hdpmf.transport.certificates import ensure_certificates


def test_another_authority_is_not_pinned_silently(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever could give a device another file for --ca spoke as its recommender from then on."""
    first, second = (ensure_certificates(tmp_path / name, ["films.example"]).authority for name in ("own", "hostile"))
    where = "films.example:9443"
    with DeviceStore.create(tmp_path / "me.hdpmf") as store:
        store.put("address", where.encode())
        store.pin_roster([store.identity.public, *(DeviceIdentity.generate().public for _ in range(2))], [1] * 3)
        assert _pin(store, where, first, None, False) == where
        assert _pin(store, where, first, None, False) == where  # the same one may come again
        pinned = store.get("authority")
        with pytest.raises(ConfigError, match=r"another authority is pinned here .* add --new-authority"):
            _pin(store, "hostile.example:9443", second, None, False)
        assert (store.get("authority"), store.get("address")) == (pinned, where.encode())
        with pytest.raises(ConfigError, match="belongs to --ca"):
            _pin(store, where, None, None, True)
        capsys.readouterr()
        _pin(store, where, second, None, True)
        assert store.get("authority") == Path(second).read_bytes() != pinned
        assert "another one than before" in capsys.readouterr().err
