"""Numbers that proofs, promises to owners and limits against attacks stand on: changes are decided
here, too.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import msgspec
import pytest

NUMBERS: dict[str, dict[str, object]] = {
    "common.privacy.accounting.costs": {"DELTA": 1e-5},
    "common.privacy.coding": {
        "WEIGHT_UNITS, WEIGHT_SCALE": (64, 4),
        "CURVES['soft']": ((0.0, 0.0, 0.3, 0.8, 1.0), 0.326, 0.107, False),
        "CURVES['threshold']": ((0.0, 0.0, 0.0, 1.0, 1.0), 0.399, 0.211, True),
        "CURVES['linear']": ((0.0, 0.25, 0.5, 0.75, 1.0), 0.25, 0.061, False),
    },
    "common.privacy.mechanisms": {"H_FLOOR": 2.0**-23},
    "common.privacy.sampling.exact": {"BAND, MAX_SIGMA": (2.0**-38, 2**50)},
    "common.privacy.spec": {
        "[(g.ratio, g.low, g.high) for g in PrivacySpec().user_groups[:2]]": [
            (0.54, 0.1, 0.5),
            (0.37, 0.5, 1.0),
        ],
        "[(g.ratio, g.low, g.high) for g in PrivacySpec().item_groups[:2]]": [
            (0.33, 0.1, 0.5),
            (0.33, 0.5, 1.0),
        ],
    },
    "private.client.h_plausibility": {"FALSE_ALARM": 1e-9},
    "private.device.ledger": {
        "UNIT, GRAIN_UNIT, WHOLE, MONTH": (10**9, 10**15, 1000, 2_592_000),
        "LEVELS['middle'].life, LEVELS['middle'].month": (855_497_163, 213_874_290),
    },
    "private.device.decide": {"EVERYBODY.rho, EVERYBODY.cap": (1.5, 16)},
    "private.device.public": {"BYTES_PER_DAY, MOST_TASKS": (2**29, 8)},
    "private.device.state_file": {"_COST, _PAD": (2**17, 4096)},
    "untrusted.aggregator.tasks": {
        "(r := Rules()).minimum, r.most_items, MOST_HEADS": (10, 200_000, 300),
        "(r := Rules()).skew, r.keep, r.lease": (300.0, 2_592_000.0, 60.0),
    },
    "untrusted.aggregator.hpke_keys": {"ROTATE_SECONDS": 604_800.0},
    "common.aggregation.two_servers.prio.arithmetic": {
        "MODULUS": 2**64 - 2**32 + 1,
    },
    "common.aggregation.two_servers.prio.prio3": {
        "NONCE_SIZE, SEED_SIZE, _VERSION, _LEADER, _VECTOR": (16, 32, 18, 0, 1),
        "_PROOF, _JOINT, _MASKS, _QUERY, _JOINT_SEED, _JOINT_PART": (2, 3, 4, 5, 6, 7),
    },
}


@pytest.mark.parametrize("module", NUMBERS)
def test_numbers_are_what_they_were_decided_to_be(module: str) -> None:
    known = vars(import_module(f"hdpmf.{module}"))
    for expression, value in NUMBERS[module].items():
        found = eval(expression, dict(known))
        if hasattr(found, "heights"):  # a curve
            found = (found.heights, found.slope, found.within, found.jumps)
        assert found == value, expression


def test_messages_are_frozen_and_have_no_unknown_fields() -> None:
    messages = [one for one in _structs() if one.__struct_config__.tag is not None]
    assert messages
    for one in messages:
        config = one.__struct_config__
        assert config.frozen
        assert config.forbid_unknown_fields


def _structs() -> Iterator[type[Any]]:
    for package in ("common.protocol", "common.privacy", "private.client", "private.device"):
        folder = import_module(f"hdpmf.{package}")
        for module in pkgutil.walk_packages(folder.__path__, f"{folder.__name__}."):
            for value in vars(import_module(module.name)).values():
                if isinstance(value, type) and issubclass(value, msgspec.Struct):
                    yield value
