"""A used store whose file, schema, journals or counter are changed at random (`fuzz`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from hdpmf.private.device.store import encryption

from .fuzz import CHANGES, fuzz


@pytest.mark.parametrize("files", [64, pytest.param(1000, marks=pytest.mark.slow)])
def test_no_changed_store_has_more_to_spend_or_a_looser_policy(
    tmp_path: Path, files: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encryption, "SCRYPT_COST", 16)
    found = fuzz(tmp_path, files, seed=files)
    assert found.total() == files
    for name in CHANGES:  # each kind does something
        assert found[name, "refused"] > 0
    assert sum(count for (_, end), count in found.items() if end == "as before") > 0
