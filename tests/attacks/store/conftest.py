"""Stores that have spent, plain and encrypted, for attacks on their files."""

from __future__ import annotations

from pathlib import Path

import pytest

from hdpmf.private.device.store import encryption

from .used_store import PASSPHRASE, used_store


@pytest.fixture(autouse=True)
def _cheap_passphrases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encryption, "SCRYPT_COST", 16)


@pytest.fixture(params=[None, PASSPHRASE], ids=["plain", "encrypted"])
def passphrase(request: pytest.FixtureRequest) -> str | None:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def path(tmp_path: Path, passphrase: str | None) -> Path:
    """Make a store whose ratings have spent a quarter of their budget, twice."""
    return used_store(tmp_path / "me.hdpmf", passphrase)
