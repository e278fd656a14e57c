"""Files are replaced, never written into: whoever reads at any moment has the old content or the
new.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from hdpmf.common.base.files import atomic_write
from hdpmf.errors import StorageError


def test_a_reader_of_the_old_file_keeps_all_of_it(tmp_path):
    path = tmp_path / "file"
    atomic_write(path, b"old" * 1000, mode=0o600)
    with path.open("rb") as reader:
        assert reader.read(3) == b"old"
        atomic_write(path, b"new", mode=0o600)
        assert reader.read() == b"old" * 999
    assert path.read_bytes() == b"new"


@pytest.mark.parametrize("step", ["write", "fsync", "replace"])
def test_what_fails_half_way_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, step):
    path = tmp_path / "file"
    atomic_write(path, b"old", mode=0o600)

    def fail(*_args, **_more):
        raise OSError(28, "No space left on device")

    class Full:
        def __init__(self, descriptor, _mode):
            self._descriptor = descriptor

        def __enter__(self):
            return self

        def __exit__(self, *_error):
            os.close(self._descriptor)

        write = fail

    with monkeypatch.context() as patch:
        if step == "write":
            patch.setattr(os, "fdopen", Full)
        else:
            patch.setattr(os, step, fail)
        with pytest.raises(StorageError, match="Nothing was changed there"):
            atomic_write(path, b"new", mode=0o600)
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("mode", [0o600, 0o644])
def test_the_content_is_never_there_with_another_mode(tmp_path, monkeypatch, mode):
    path, seen = tmp_path / "file", []
    replace = os.replace

    def watched(source, target):
        seen.append((stat.S_IMODE(os.stat(source).st_mode), Path(source).read_bytes()))
        replace(source, target)

    monkeypatch.setattr(os, "replace", watched)
    atomic_write(path, b"secret", mode=mode)
    assert seen == [(mode, b"secret")]
    assert stat.S_IMODE(path.stat().st_mode) == mode
