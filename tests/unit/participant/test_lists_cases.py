"""The vectors of lists are what this device makes of the models in them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.participant.lists_cases import FILE, made, people, well_known

WORLDS = json.loads(FILE.read_text())["worlds"]


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world["name"])
def test_the_vectors_of_lists_are_what_this_device_makes(world: dict[str, Any]) -> None:
    assert well_known(world) == world["well_known"]
    assert [{name: case[name] for name in asked} for case, asked in _asked(world)] == people(world)
    for case in world["people"]:
        found = made(world, case)
        for ours, theirs in zip(found["list"], case["list"], strict=True):
            assert ours[::3] == theirs[::3]  # the item and its reason
            assert ours[1:3] == pytest.approx(theirs[1:3], abs=1e-4)  # of single precision
        assert found["predicted"] == pytest.approx(case["predicted"], abs=1e-4)


def _asked(world: dict[str, Any]) -> Any:
    return zip(world["people"], people(world), strict=True)


def test_the_vectors_of_lists_are_of_all_kinds() -> None:
    every = [case for world in WORLDS for case in world["people"]]
    reasons = {str(reason).split()[0] for case in every for *_, reason in case["list"]}
    assert reasons == {"because", "your", "from", "many", "you", "None"}
    assert {len(case["rated"]) for case in every} >= {0, 1, 3, 20}
    assert any(world["well_known"] for world in WORLDS)
    assert any(not world["well_known"] for world in WORLDS)
