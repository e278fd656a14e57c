"""What all tests share: where real data is, and a cache of their own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# The same examples every time: a test that fails only sometimes tells nobody anything.
settings.register_profile("hdpmf", derandomize=True, deadline=None)
settings.load_profile("hdpmf")

HERE = Path(__file__).resolve().parent
# Federations of real processes and the browser want the machine to themselves: one worker does each, in order.
_GROUPS = {"aggregator": "federation", "federation": "federation", "e2e": "browser"}
# What these modules prepare for all of their tests takes longer than the tests: one worker does each module.
_TOGETHER = ("paper", "unit/paper", "unit/models/test_labels.py", "unit/audit/test_game.py")
SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that need a whole machine go to one worker each, and are slow whatever they do."""
    # Once per function: the cases of a parametrized test share one, and forty times forty would never end.
    for test in {id(item.obj): item.obj for item in items if isinstance(item, pytest.Function)}.values():
        _longer(test)
    for item in items:
        place = item.path.relative_to(HERE)
        group = _GROUPS.get(place.parts[0])
        if group is not None:
            item.add_marker(pytest.mark.xdist_group(group))
            item.add_marker(pytest.mark.slow)
        elif str(place).startswith(tuple(f"{name}/" for name in _TOGETHER)) or str(place) in _TOGETHER:
            item.add_marker(pytest.mark.xdist_group(str(place)))
        elif place.parts[:2] in (("unit", "aggregator"), ("unit", "prio")):  # compiling kernels takes seconds: once
            item.add_marker(pytest.mark.xdist_group("prio"))


def _longer(test: Any) -> None:
    """HDPMF_FUZZ=40 tries forty times as many examples, and other ones each time."""
    times = int(os.environ.get("HDPMF_FUZZ", "1"))
    given = getattr(test, "_hypothesis_internal_use_settings", None)
    if times > 1 and given is not None:
        more = settings(given, max_examples=times * given.max_examples, derandomize=False, deadline=None)
        test._hypothesis_internal_use_settings = more


def _data_folder() -> Path | None:
    named = os.environ.get("HDPMF_DATA")
    if named:
        return Path(named)
    return SHARED_DATA if SHARED_DATA.is_dir() else None


@pytest.fixture(scope="session", autouse=True)
def _surroundings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Point HDPMF_DATA at the shared data if it is there, and keep the user's own cache out of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        folder = _data_folder()
        if folder is not None:
            patch.setenv("HDPMF_DATA", str(folder))
        patch.setenv("HDPMF_CACHE", str(tmp_path_factory.mktemp("hdpmf-cache")))
        yield


@pytest.fixture(scope="session")
def data_folder(_surroundings: None) -> Path:
    """The folder with real data sets; without it a test is skipped, but on CI it fails instead."""
    folder = _data_folder()
    if folder is None or not folder.is_dir():
        reason = "needs real data: set HDPMF_DATA to the folder that has ml-100k.zip and the others"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return folder
