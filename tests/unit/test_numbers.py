"""Numbers that proofs, messages, files and limits stand on, and how records are kept: changes
are decided here, too.
"""

from __future__ import annotations

import dataclasses
import datetime
import inspect
import math
import pkgutil
import re
from collections.abc import Callable, Iterator
from enum import Enum
from fractions import Fraction
from importlib import import_module
from types import ModuleType
from typing import Any

import msgspec
import numpy as np
import pytest

NUMBERS: dict[str, dict[str, object]] = {
    "common.privacy.accounting.costs": {
        "DELTA": 1e-5,
    },
    "common.privacy.accounting.setting": {
        "STARS": import_module("hdpmf.common.data").RatingScale(1.0, 5.0, 1.0),
        "(s := Setting('hdpmf')).epsilon, s.factors, s.rounds, s.u_norm, s.h_quantile": (
            1.0,
            10,
            100,
            1.0,
            0.5,
        ),
        "Setting('hdp-sum').labels": False,
    },
    "common.privacy.coding": {
        "WEIGHT_UNITS, SCORE_UNITS, UNSTATED_LEVELS": (64, 64, 1000),
        "MEAN_SHARE, LABEL_SHARE": (Fraction(1, 50), Fraction(1, 5)),
        "WEIGHT_SCALE, POPULARITY_SCALE, LABELLED_WEIGHT_SCALE, HEAD_WEIGHT": (4, 8, 6, 80),
        "LINEAR_FROM, _LABEL_MARGIN, _LONGEST_LOGIT, FEWEST_LABEL_EPSILON": (
            4.0,
            2.0**-10,
            16.0,
            1e-4,
        ),
        "_KNOTS": (0.0, 0.25, 0.5, 0.75, 1.0),
        "CURVES['soft']": ((0.0, 0.0, 0.3, 0.8, 1.0), 0.326, 0.107, False),
        "CURVES['threshold']": ((0.0, 0.0, 0.0, 1.0, 1.0), 0.399, 0.211, True),
        "CURVES['linear']": ((0.0, 0.25, 0.5, 0.75, 1.0), 0.25, 0.061, False),
    },
    "common.privacy.mechanisms": {
        "[m for m in MECHANISMS if MECHANISMS[m].needs_budgets]": ["uniform", "sample"],
        "[m for m in MECHANISMS if not MECHANISMS[m].bounds_users]": ["none"],
        "[m for m in MECHANISMS if not MECHANISMS[m].needs_h]": ["paid"],
        "[m for m in MECHANISMS if not MECHANISMS[m].sends_fitted_vectors]": ["paid"],
        "Stretch().rescale": True,
        "H_FLOOR": 2.0**-23,
    },
    "common.privacy.sampling.exact": {
        "BAND": 2.0**-38,
        "MAX_SIGMA": 2**50,
    },
    "common.privacy.sampling.shares": {
        "MAX_LENGTH, _GUARD": (2**14, 128),
        "SMALLEST_START, _WEIGHT_BITS": (16, 50),
        "_STIRLING": (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188),
    },
    "common.privacy.sampling.noise": {
        "_PRODUCT_LIMIT": 2**53,
        "HALF_WORD, _LIMIT": (63, 2**40),
        "_NOISE_KEY_BYTES": 32,
    },
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
    "private.client.device_gradients": {
        "LARGEST_FACTOR": 2.0**20,
    },
    "private.client.h_plausibility": {
        "FALSE_ALARM": 1e-9,
    },
    "private.client.devices": {
        "SPREAD, int(_GOLDEN)": (0.1, 0x9E3779B97F4A7C15),
    },
    "private.client.gradients": {
        "_WITHIN": np.float32(0.999999),
    },
    "common.aggregation.masks.messages": {
        "VERSION, SESSION_BYTES, MAX_LENGTH, MAX_NEIGHBOURS, MAX_PARTNERS": (
            2,
            16,
            2**24,
            1024,
            4096,
        ),
        "SEALED_BYTES, CHECK_BYTES": (82, 64),
        "MAX_BYTES": 2**26 + 1024,
    },
    "common.aggregation.masks.plan": {
        "MAX_COLLUDING, MIN_FRACTION": (Fraction(1, 20), Fraction(1, 10)),
        "SumPolicy().min_survivors, SumPolicy().min_neighbours": (16, 64),
        "TWO_THIRDS, NEGLIGIBLE": (Fraction(2, 3), 2.0**-40),
    },
    "common.aggregation.masks.primitives": {
        "KEY_BYTES, SIGNATURE_BYTES, TAG_BYTES, _NO_NONCE, _COUNTER_AND_NONCE": (
            32,
            64,
            16,
            bytes(12),
            bytes(16),
        ),
        "_PRIME": 2**255 - 19,
        "_D": 0x52036CEE2B6FFE738CC740797779E89800700A4D4141D8AB75EB4DCA135978A3,
    },
    "common.aggregation.masks.roster": {
        "MAX_DEVICES": 2**16,
        "MIN_DEVICES": 3,
    },
    "common.aggregation.masks.shamir": {
        "SECRET_BYTES, SHARE_BYTES, _DRAW_BYTES": (32, 33, 49),
        "PRIME": 2**256 + 297,
    },
    "private.device.store.database": {
        "_KIND.application.to_bytes(4, 'big'), _KIND.schema, FIRST_SCHEMA": (b"hdpv", 5, 4),
        "_SHORT_PATIENCE": 0.5,
    },
    "private.device.disclosures.limits": {
        "SLACK": 1e-9,
        "SHOWN_PART": 0.5,
    },
    "private.device.disclosures.journal": {
        "Entry.__struct_defaults__": (1, 10, False, "", 0, 0.0, 0.0, 0, 0),
        "_NOTHING": 1e-9,
    },
    "private.device.budget": {
        "TYPICAL_RATERS": 20,
    },
    "private.device.policy": {
        "(p := Policy()).allow_nominal, p.allow_unprotected, p.require_sums": (False, False, True),
        "(p := Policy()).epsilon, p.max_total, p.max_epsilon_per_run, p.max_ratings": (
            1.0,
            50.0,
            0.5,
            None,
        ),
        "Policy().min_epsilon_per_run": 0.001,
        "(p := Policy()).max_rounds, p.min_participants, p.min_devices, p.min_raters": (
            200,
            16,
            16,
            1,
        ),
        "(p := Policy()).min_neighbours, p.max_credit, p.max_plans_per_day": (64, 1, 64),
        "(p := Policy()).min_period, p.max_tasks_per_day": (3600, 4),
    },
    "private.device.session": {
        "DAY": 86_400.0,
        "_MAX_PLANS": 32,
    },
    "private.device.store.catalogues": {
        "_MOST_USERS": 2**31,
    },
    "private.device.store.ratings_table": {
        "_MAX_ID_LENGTH": 256,
    },
    "private.device.recommender_state": {
        "MAX_OPEN": 8,
        "(r := RunState(recommender='r', terms=None)).seed, r.charged, r.number": (0, False, 0),
        "(r := RunState(recommender='r', terms=None)).summed, r.over": (-1, False),
    },
    "private.device.messages": {
        "SLOT": 0.1,
        "_LONGEST_TERMS": 2**12,
    },
    "private.device.disclosures.bounds": {
        "_SLACK": 1e-9,
        "_LEAST": 1 / 64,
    },
    "private.device.store.integrity": {
        "_BYTES, _MODULUS": (32, 2**256),
    },
    "private.device.model_update": {
        "MAX_NUMBERS": 2**23,
    },
    "private.device.store.encryption": {
        "KEY_BYTES, TAG_BYTES, _NONCE_BYTES, _PAD_TO": (32, 16, 12, 64),
        "SCRYPT_COST, _MOST_COST, _BLOCK_SIZE": (2**17, 2**20, 8),
    },
    "untrusted.aggregator.tasks": {
        "(r := Rules()).minimum, r.most_items, r.allow_noiseless": (10, 200_000, False),
        "(r := Rules()).skew, r.keep, r.lease": (300.0, 2_592_000.0, 60.0),
        "Rules.simulation, SimulationRules.simulation": (False, True),
        "_LATE, _MOST_DOCUMENT, _MOST_USERS": (86_400, 2**26, 1_000_000),
        "_METADATA, _CIPHERTEXT, _PLAINTEXT": (28, 55, 6),
    },
    "untrusted.aggregator.folder": {
        "(l := Limits()).connections, l.per_address, l.job_reports": (4096, 256, 256),
        "(l := Limits()).header_seconds, l.body_seconds, l.retry_after": (10.0, 60.0, 30),
        "(l := Limits()).waiting_uploads, l.waiting_reports": (1024, 1_000_000),
        "Limits().task_bytes": 2**26,
        "_SHORTEST_ROTATION": 3600.0,
    },
    "untrusted.aggregator.hpke_keys": {
        "ROTATE_SECONDS, _IDS, _SLACK_SECONDS": (604_800.0, 256, 86_400),
    },
    "untrusted.aggregator.http": {
        "sorted(_STATUS.values())": [403, 404, 404],
        "_KEYS_SECONDS, _COLLECT_SECONDS, _QUERY_SIZE, _GARBAGE_SECONDS": (86_400, 5, 64, 3600.0),
        "_THREADS, _ROOM_SECONDS": (4, 0.05),
    },
    "untrusted.aggregator.aggregation_job_driver": {
        "_IDLE_SECONDS, _FIRST_PAUSE, _LONGEST_PAUSE": (5.0, 1.0, 60.0),
        "_COUNT_SECONDS, _GARBAGE_SECONDS, _KEYS_SECONDS, _SOON_SECONDS": (2.0, 3600.0, 600.0, 5.0),
        "_GATHER_SECONDS, _STOP_SECONDS, _LOOK_SECONDS, _CLOCK_SECONDS": (0.5, 10.0, 1.0, 30.0),
    },
    "untrusted.aggregator.report_writer": {
        "GROUP_REPORTS, GROUP_BYTES": (64, 2**24),
    },
    "untrusted.aggregator.key_file": {
        "KEY_SIZE, NAME_SIZE, _HEADER_SIZE, _RECORD_SIZE": (32, 40, 24, 80),
        "_COUNTER_SIZE, _CHECK_SIZE": (8, 8),
    },
    "untrusted.aggregator.sealing": {
        "_NONCE_SIZE, _BUCKET_SIZE": (12, 8),
    },
    "untrusted.aggregator.noise_key": {
        "_DAY": 86_400,
    },
    "common.aggregation.two_servers.dap.messages": {
        "REPORT_ID_SIZE, TASK_ID_SIZE, BATCH_ID_SIZE, JOB_ID_SIZE, CHECKSUM_SIZE": (
            16,
            32,
            32,
            16,
            32,
        ),
        "[int(role) for role in Role]": [0, 1, 2, 3],
    },
    "common.aggregation.two_servers.prio.one_rating": {
        "LARGEST_WEIGHT, _DIGITS, _MOST_LEVELS": (64, 9, 16),
    },
    "common.net.signing": {
        "TOLERANCE": 300.0,
    },
    "common.net.certificates": {
        "AUTHORITY_DAYS, SERVER_DAYS, RENEW_DAYS": (3650, 397, 30),
        "_HOUR": datetime.timedelta(seconds=3600),
    },
    "common.net.authority_rotation": {
        "MAX_AUTHORITY_MESSAGE": 2**14,
    },
    "common.net.carrier": {
        "Patience.MOST, Patience.TIMES, Patience.AT_LEAST, Patience.HALVINGS, Patience.MOMENT": (
            0.75,
            3.0,
            5.0,
            4,
            1.0,
        ),
        "MAX_BYTES": 2**29 + 2**20,
    },
    "common.net.https": {
        "TIMEOUT, DEADLINE, MAX_PROBLEM": (20.0, 300.0, 2**16),
        "_CONNECTING": 1.5,
    },
    "common.net.mailbox": {
        "SHORTEST_PAUSE, LONGEST_PAUSE, IDLE_PAUSE, BUSY_RATE, IDLE_RATE": (
            0.2,
            300.0,
            5.0,
            100.0,
            20.0,
        ),
        "PRESENT_SECONDS, PRESENT_PAUSES, PICK_UP_SECONDS, LINGER_SECONDS": (15.0, 3.0, 10.0, 10.0),
        "BODY_SECONDS, MAX_WAITING_BYTES, LAST_FETCHES, _QUIET_SECONDS": (120.0, 2**29, 60.0, 3.0),
        "_POLL_SECONDS, _PART, _JITTER, _COUNT_SECONDS": (0.25, 2**16, 1.5, 5.0),
    },
    "common.net.polling": {
        "SHORTEST_PAUSE, LONGEST_PAUSE, USUAL_PAUSE, REFUSED_PAUSE": (0.2, 600.0, 30.0, 30.0),
        "_FIRST_RETRY, _LONGEST_RETRY": (0.2, 5.0),
        "_KEEP, _LEAVING, _LAST_REPLY, _LOOK": (20.0, 1.0, 5.0, 0.1),
    },
    "common.net.server": {
        "MAX_HEADERS, GIVE_WAY_SECONDS, _HANDSHAKE_SECONDS": (2**14, 2.0, 10.0),
        "BACKLOG, _GRACE_SECONDS, _START_SECONDS, _GOODBYE_SECONDS": (2048, 2, 20.0, 1.0),
    },
    "common.net.server_tls": {
        "CHECK_SECONDS": 3600.0,
    },
    "common.net.sum_servers": {
        "ANSWER_SECONDS, KEEP_SECONDS": (60.0, 10.0),
        "sorted(_LATER)": [408, 425, 429, 500, 502, 503, 504],
        "MAX_ANSWER": 130 * 2**20,
    },
    "common.web.local_server": {
        "TOKEN_SECONDS, IDLE_SECONDS, BODY_SECONDS, _MOST_FIELDS": (600.0, 900.0, 60.0, 50),
        "_FREE_TRIES, _LONGEST_WAIT, _MOST_SESSIONS": (3, 300.0, 4),
        "_LONGEST_TOKEN, _TRIES, _PORTS, _BACKLOG": (1000, 20, range(10240, 32768), 128),
        "_IDLE_SECONDS, _GRACE_SECONDS": (15, 3),
    },
    "private.page.http": {
        "MOST_BYTES": 2**26,
        "_WATCH_SECONDS, _BROWSER_SECONDS": (5.0, 400 * 86_400),
    },
    "private.page.items": {
        "MOST_SHOWN, _FOUND": (200, 20),
        "ENOUGH, _WALL, _MOST_OF_WALL": (10, 24, 2000),
    },
    "private.page.disclosures": {
        "_RUNS_SHOWN, _REFUSALS_SHOWN": (50, 50),
    },
    "private.page.consent": {
        "_NUMBERS_SHOWN": 100,
    },
    "private.page.pictures": {
        "STRIPS_SHOWN": 8,
    },
    "common.aggregation.two_servers.dap.hpke": {
        "KEY_SIZE": 32,
    },
    "common.aggregation.two_servers.prio.arithmetic": {
        "MODULUS64, MODULUS128, int(_EPSILON), int(_HIGH)": (
            2**64 - 2**32 + 1,
            2**128 - 28 * 2**64 + 1,
            2**32 - 1,
            2**64 - 28,
        ),
        "int(_FOLD_LOW), int(_FOLD_HIGH), int(_SQUARE_LOW), int(_SQUARE_HIGH)": (
            2**64 - 1,
            27,
            2**64 - 783,
            21_895,
        ),
    },
    "common.aggregation.two_servers.prio.compiled": {
        "_STRANDS": 16,
    },
    "common.aggregation.two_servers.prio.field": {
        "RATE_LANES, _DOMAIN, _GENERATOR": (21, 1, 7),
    },
    "common.aggregation.two_servers.prio.prio3": {
        "NONCE_SIZE, _VERSION, _LEADER, _VECTOR": (16, 8, 0, 1),
        "_PROOF, _JOINT, MASKS, _QUERY": (2, 3, 4, 5),
        "_JOINT_SEED, _JOINT_PART": (6, 7),
    },
    "common.privacy.accounting.loss_distributions": {
        "_FINENESS, _FEWEST_POINTS, _MOST_POINTS, _TILT_FOR": (2e-4, 2**12, 2**20, math.log(1e5)),
        "_LARGEST_TILT, _DEVIATIONS, _RANGE, _ROUGH_CELLS": (16.0, 7.0, 500.0, 8),
        "_UNIT, _SLACK": (2.0**-53, 1e-9),
    },
    "common.privacy.sharers": {
        "_STREAM": 25,
    },
    "private.client.ranking": {
        "_BLOCK_SCORES": 2**22,
    },
    "private.client.reasons": {
        "HIGH, REAL, DRIVING, _NAMED": (4.0, 0.1, 0.25, 2),
        "_BESIDE": 0.25,
    },
    "private.client.recency": {
        "SECONDS, POWER, LEAST, PAUSE": (10.0, 0.75, 0.05, 3600.0),
        "AFTER_PAUSE": 0.5,
    },
    "private.device.choices.privacy_level": {
        "MISSES, MISS_ALONE": ({0.25: 0.779, 0.5: 0.765, 1.0: 0.754, 2.0: 0.747}, 0.833),
    },
    "private.device.choices.sharing": {
        "LISTS": {"nobody": 0.1795, "others": 0.2351, "oneself": 0.2365},
    },
    "private.device.consent": {
        "_MOST, _MUCH_CHEAPER": (8, 2.0),
    },
    "private.device.disclosures.history": {
        "_RATERS": 100,
    },
    "private.device.disclosures.receipts": {
        "VERSION, MOST_BYTES": (1, 2**20),
    },
    "private.device.disclosures.refusals": {
        "MOST_KEPT, BURST, EVERY, _LONGEST": (50, 16, 60.0, 300),
    },
    "private.device.disclosures.sent_bytes": {
        "MOST_PIECES": 256,
    },
    "private.device.outbox.reports": {
        "_AT_A_TIME": 64,
    },
    "private.device.outbox.sending": {
        "sorted(REFUSED), LONGEST_WAIT, _BAD_REQUEST, _LATEST": (
            [401, 403, 409, 410, 413, 415, 422],
            3600.0,
            400,
            0.9,
        ),
        "_AFTER_ERROR, _FIRST_WAIT, _LEAD, _AHEAD": (60.0, 15.0, 10.0, 60.0),
        "_SOON": 120.0,
    },
    "private.device.outbox.shared": {
        "_ONLY": 0,
    },
    "private.device.own_items": {
        "_SHOWN": 5,
    },
    "private.device.participant": {
        "POLL_EVERY, _SOON": (300.0, 1.0),
    },
    "private.device.published_files": {
        "MOST_INDEX, _FREE, _PER_ITEM, MOST_CATALOGUE": (2**14, 2**21, 2**12, 2**26),
        "FARTHEST, BYTES_PER_DAY, LOOKS_PER_DAY, REFUSED_FOR": (92 * 86_400, 2**29, 96, 604_800.0),
        "_MOST_REFUSED, _MOST_FAILURES, _FIRST_RETRY, _LONGEST_RETRY": (64, 64, 600.0, 21_600.0),
    },
    "private.device.rating_files": {
        "MOST_BYTES": 2**24,
    },
    "private.device.recommendations": {
        "_MOST_HIDDEN": 10_000,
    },
    "private.device.store.item_identity": {
        "LONGEST": 512,
    },
    "private.device.store.layout": {
        "FIRST_SCHEMA": 4,
    },
    "private.device.store.schema": {
        "FIRST, OWN_FILE": (1, 0),
    },
    "private.device.store.sealed_export": {
        "EXPORT_FORMAT, _PIECE, _MOST_PIECE, _MOST_HEAD": (1, 2**20, 2**20 + 2**12, 2**12),
        "_MOST_ROW, _LENGTH": (2**30, 4),
    },
    "private.device.store.tables": {
        "ONLY": 0,
    },
    "private.page.address": {
        "_MOST_BROWSERS, _SECONDS, _MOST_BYTES": (8, 5.0, 1000),
    },
    "private.page.owner": {
        "_LINES, _PATIENCE": (100, 10.0),
    },
    "private.page.recommendations": {
        "_PART, _MOST": (20, 500),
    },
    "private.page.request": {
        "HUES, MOST_LEVELS": (12, 11),
    },
    "private.page.settings": {
        "_MARKED_SHOWN": 100,
    },
    "private.page.sharing": {
        "_TITLES_SHOWN": 100,
    },
    "untrusted.aggregator.datastore": {
        "_WAIT_MS, _PAGE, _POSTGRES_SHARDS, _SCHEMA_LOCK": (60_000, 2**15, 8, 0x68_64_70_6D_66),
    },
    "untrusted.aggregator.helper": {
        "_TRIES": 5,
    },
    "untrusted.aggregator.leader": {
        "ANSWER_SECONDS": 120.0,
    },
    "untrusted.aggregator.metrics": {
        "_SECONDS, _GROUPS": (
            (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0),
            (1, 4, 16, 64, 256),
        ),
    },
    "untrusted.aggregator.prefork": {
        "_IDLE_SECONDS, _REQUEST_GRACE_SECONDS, _RESTART_SECONDS, _WORKER_GRACE_SECONDS": (
            15,
            10,
            1.0,
            20.0,
        ),
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


PLAIN = {
    "common.aggregation.masks.client._Suspended",
    "private.device.disclosures.journal.Entry",
    "private.device.published_files.PublicFile",
    "private.device.published_files.PublicIndex",
    "private.device.published_files.PublicTask",
    "private.device.store.encryption._Header",
    "private.device.store.integrity._Counter",
    "private.device.store.sealed_export.ExportFacts",
    "private.device.store.sealed_export._Head",
}
ROWS = {
    "private.client.outgoing.SplitReport",
    "private.device.participant._Suspended",
    "private.device.session._Suspended",
    "private.device.store.ratings_table.Record",
    "private.device.store.ratings_table._Weight",
    "private.device.store.integrity._Head",
}
STATES = {
    "private.device.recommender_state.RunState",
    "private.device.recommender_state.TaskState",
}
STRICT = {
    "private.device.policy.Policy",
    "private.device.disclosures.receipts.Requester",
    "private.device.disclosures.receipts.LedgerEvent",
    "private.device.disclosures.receipts.SentRecord",
    "private.device.disclosures.receipts.Organisation",
    "private.device.disclosures.receipts.Receipt",
    "private.device.disclosures.receipts.UnderTerms",
    "common.aggregation.masks.messages._Checked",
}


def test_records_and_messages_are_frozen_and_messages_have_no_unknown_fields() -> None:
    """Only the states of runs and reports change in place; records that were written are read by
    their fields.
    """
    found = dict(_structs())
    messages = {name: config for name, config in found.items() if config.tag is not None}
    assert len(messages) == 11
    for name, config in messages.items():
        assert config.tag == name.rpartition(".")[2]
        assert (config.frozen, config.forbid_unknown_fields, config.array_like) == (
            True,
            True,
            False,
        )
    others = {name: config for name, config in found.items() if name not in messages}
    assert {name for name, config in others.items() if not config.frozen} == STATES
    assert {name for name, config in others.items() if config.array_like} == ROWS | {
        "common.aggregation.masks.messages.DeviceKeys"
    }
    strict = {name for name, config in others.items() if config.forbid_unknown_fields}
    # A privacy statement is read by people and programs that were handed one: all of it is ours.
    statement = {name for name in others if name.startswith("common.privacy.statement.document.")}
    assert strict == STRICT | statement | {"common.aggregation.masks.messages.DeviceKeys"}
    # Rows of the device's store are listed in its schema.
    rows = {name for name in others if name.startswith("private.device.store.schema.")}
    assert others.keys() - rows - statement == PLAIN | ROWS | STRICT | STATES | {
        "common.aggregation.masks.messages.DeviceKeys"
    }


def _structs() -> Iterator[tuple[str, Any]]:
    for package in (
        "common.privacy",
        "private.client",
        "common.aggregation.masks",
        "private.device",
    ):
        folder = import_module(f"hdpmf.{package}")
        for module in pkgutil.walk_packages(folder.__path__, f"{folder.__name__}."):
            for name, value in vars(import_module(module.name)).items():
                if (
                    isinstance(value, type)
                    and issubclass(value, msgspec.Struct)
                    and value.__module__ == module.name
                ):
                    yield f"{module.name.removeprefix('hdpmf.')}.{name}", value.__struct_config__


DEFAULTS = """
common.privacy.accounting.costs: cost(weight=1.0, n_raters=100, releases=1, delta=1e-05)
    honest_line(raters=20) person_costs(delta=1e-05) rounded_up(digits=3)
common.privacy.accounting.events: LaplaceSum(coordinates=1)
common.privacy.accounting.loss_distributions: _Cumulants._moment(values=1.0)
common.privacy.accounting.rules: inverse_sum_quantile(quantile=0.5) _units(in_weight=False)
common.privacy.accounting.setting: Setting(epsilon=1.0, factors=10, h_quantile=0.5, labels=False,
    rounds=100, u_norm=1.0)
common.privacy.coding: Curve(jumps=False) sum_channels(labels=False)
common.privacy.mechanisms: Mechanism(needs_budgets=False, bounds_users=True, needs_h=True,
    sends_fitted_vectors=True) NoPrivacy(bounds_users=False) Uniform(needs_budgets=True)
    Sample(needs_budgets=True) Stretch(rescale=True) Paid(needs_h=False,
    sends_fitted_vectors=False)
common.privacy.sampling.noise: SeededNoise.__init__(stream=0) SeededNoise.laplace_share(count=1)
    ReleasedNoise.laplace_share(count=1)
common.privacy.spec: PrivacySpec.paper(f_uc=0.54, f_um=0.37, f_ic=0.33, f_im=0.33, epsilon_uc=0.1,
    epsilon_um=0.5, epsilon_ul=1.0, epsilon_ic=0.1, epsilon_im=0.5, epsilon_il=1.0)
common.privacy.weights: PrivacyWeights.from_parts(users=1.0, items=1.0)
    PrivacyWeights.uniform(weight=1.0)
private.client.contributions: OneRoundClient.__init__(simulation=False)
private.client.device_gradients: DeviceGradientClient.__init__(simulation=False)
private.client.gradients: GradientClient.__init__(min_raters=1)
private.client.h_plausibility: HPlausibility.__init__(seen=0)
private.client.outgoing: report_headers(signed=True)
private.client.parts: joined(plus=0.0)
private.client.ranking: Recommendation(-reason, rank_score=0.0) ListMaker.lists(keep_rated=False)
    inputs(roots=False) ChooseAndLike(like_weight=0.25, taste_weight=1.0)
private.client.reasons: Reason(driven=False)
private.client.sharing: ShareClient.__init__(simulation=False)
common.aggregation.masks.messages: SumMessage(version=2) SumPlan(wide=False, version=2)
    Advertisement(version=2) PartnerKeys(version=2) DealtShares(version=2) Inbox(version=2)
    MaskedVector(version=2) Survivors(version=2) Confirmation(version=2) Confirmations(version=2)
    Unmasking(version=2) decode_to_device(max_bytes=67109888)
    decode_to_recommender(max_bytes=67109888)
common.aggregation.masks.plan: SumPolicy(min_survivors=16, min_neighbours=64, max_length=16777216,
    max_risk=9.094947017729282e-13) is_safe(max_risk=9.094947017729282e-13) safe_sizes(least=64)
    propose(wide=False)
common.aggregation.masks.primitives: Agreement.key(size=32) add_mask(subtract=False)
    IntegerCoding(wide=False) IntegerCoding.largest_bound(wide=False)
private.device.budget: choose(bare=False) agreed_words(factors=1, fresh=True) entry_of(factors=1)
private.device.choices.preview: SendPreview(has_items=True)
private.device.choices.privacy_level: mark(weight=0.1) mark_genre(weight=0.1)
private.device.choices.sharing: ChoicePreview(beyond=0.0)
private.device.connection: serve_recommender(every=300.0)
private.device.device_identity: new_device(users=1)
private.device.disclosures.bounds: TotalSpending(-event)
    total_spending(delta=1e-05) _person(more=0.0, delta=1e-05)
private.device.disclosures.journal: Entry(rounds=1, factors=10, labels=False, ratings=0, paid=0.0,
    part=0.0, seen=0, opened=0) Journal.sums(held=True)
private.device.disclosures.ledger: Ledger.note(first=False)
private.device.disclosures.limits: PersonLimits.within(sums=False)
private.device.disclosures.receipts: Receipt(version=1, more=0, more_bytes=0, given_back=0.0)
private.device.memberships: store_for(another=False) join(same_host=False) pause(paused=True)
private.device.participant: Participant.__init__(every=300.0, simulation=False)
    Published._once(content=True)
private.device.pinned_servers: pin_servers(new=False, same_host=False) pin_roster(new=False)
private.device.policy: Policy(allow_nominal=False, allow_unprotected=False, require_sums=True,
    epsilon=1.0, max_total=50.0, devices=1, max_epsilon_per_run=0.5, min_epsilon_per_run=0.001,
    max_rounds=200, min_participants=16, min_devices=16, min_raters=1, min_neighbours=64,
    max_credit=1, max_plans_per_day=64, min_period=3600, max_tasks_per_day=4,
    max_list_bytes=16000000, ask=False)
private.device.recommendations: recommend(n=10, keep_rated=False) recommend_each(n=10,
    keep_rated=False) PredictionInputs(blend=0.0) owner_recommendations(n=20, keep_rated=False)
    hide(hidden=True)
private.device.recommender_state: RunState(seed=0, charged=False, number=0, summed=-1, over=False)
    TaskState(built=False, left=False, begun=0, tries=0, retry_at=0.0)
private.device.session: SumOfJob(_plans=0)
private.device.store.database: Database.__init__(make=False) Database.lay_tables(commits=0)
    Database.check_rows(old_copy=False)
private.device.store.device_store: DeviceStore.create(users=1) DeviceStore.open(serving=False,
    old_copy=False, moved=False) DeviceStore.forget(ratings=False, model=False)
private.device.store.integrity: RowIntegrity.begin(first=False, commits=0)
    RowIntegrity.check(old_copy=False)
private.device.store.pins: PinnedItems.__init__(recommender_id=1)
    RosterPin.__init__(recommender_id=1)
private.device.store.ratings_table: Record(since=0)
private.device.store.schema: Recommender(paused=False, left=False) LocalModel(recommender_id=1)
    Downloaded(begun=0.0, size=0, looks=0) RecommenderState(until=0) Question(until=0)
    RefusalRecord(epsilon=0.0, count=1) SentMessage(minimum=0, status=0) SentRun(version=0,
    more=0, more_bytes=0) Mark(weight=1.0) SharingRule(recommender_id=0)
private.device.store.transfer: change_passphrase(old_copy=False) export_store(old_copy=False)
    take_back(lost=False, old_copy=False)
untrusted.aggregator.aggregation_job: _Bucket(-total, count=0, checksum=0) AggregationJob(-bodies,
    -lost)
untrusted.aggregator.datastore: _Body(cache_ok=True) ReportState(STORED=0, CLAIMED=1, COUNTED=2,
    REJECTED=3) lock_task(alone=False)
untrusted.aggregator.folder: Limits(connections=4096, per_address=256, header_seconds=10.0,
    body_seconds=60.0, waiting_uploads=1024, waiting_reports=1000000, retry_after=30,
    task_bytes=67108864, job_reports=256) KeyRules(rotate=604800.0) AggregatorConfig(port=9444)
    AggregatorFolder.pair(same_host=False)
untrusted.aggregator.hpke_keys: HpkeKeyRing.__init__(period=604800.0)
    HpkeKeyRing.rotate(erase=False)
untrusted.aggregator.http: read_body(exactly=False) check_body(exactly=False)
untrusted.aggregator.leader: Leader.aggregate(limit=256) HelperClient.__init__(timeout=120.0)
untrusted.aggregator.prefork: run_worker(tls=True) serve(workers=1)
untrusted.aggregator.report_writer: Upload(-report, -signature)
untrusted.aggregator.tasks: ServerKeys(-party, -hpke) Rules(minimum=10, most_items=200000,
    allow_noiseless=False, skew=300.0, keep=2592000.0, lease=60.0) SimulationRules(minimum=10,
    most_items=200000, allow_noiseless=False, skew=300.0, keep=2592000.0, lease=60.0)
    AggregatorTask(-document, -prio, -key, -collector)
common.aggregation.two_servers.dap.codec: Reader.vector(minimum=0) Opaque(minimum=0)
    Items(minimum=0)
common.aggregation.two_servers.dap.hpke: KeyPair.generate(config_id=0)
common.aggregation.two_servers.dap.messages: Role(COLLECTOR=0, CLIENT=1, LEADER=2, HELPER=3)
    QueryType(RESERVED=0, TIME_INTERVAL=1, FIXED_SIZE=2) FixedSizeQueryType(BY_BATCH_ID=0,
    CURRENT_BATCH=1) PrepareRespState(CONTINUE=0, FINISHED=1, REJECT=2)
    PrepareError(BATCH_COLLECTED=0, REPORT_REPLAYED=1, REPORT_DROPPED=2, HPKE_UNKNOWN_CONFIG_ID=3,
    HPKE_DECRYPT_ERROR=4, VDAF_PREP_ERROR=5, BATCH_SATURATED=6, TASK_EXPIRED=7, INVALID_MESSAGE=8,
    REPORT_TOO_EARLY=9) PingPongType(INITIALIZE=0, CONTINUE=1, FINISH=2)
    problem_details(status=400)
common.aggregation.two_servers.prio.prio3: ReportShares(-input_shares) Preparation(-output,
    -joint_seed) Prio3.__init__(servers=2, seed_size=16) prio3_sum_vec(servers=2)
    prio3_sum_vec_multiproof(proofs=3)
common.aggregation.two_servers.prio.proof: SumVec(random_length=1, degree=2)
private.page.address: PageAddress(-key, -browsers) PageAddress.listen(port=0)
private.page.http: OwnerPage._session(used=True) OwnerPage._show(status=200)
private.page.owner: Owner.__init__(same_host=False) Owner.search(fresh=False)
private.page.recommendations: _list(keep_rated=False)
private.page.request: PageRequest.text(most=300)
common.web.local_server: BrowserSession(locked=False) BrowserSessions.__init__(idle=900.0)
    BrowserSessions.begin(locked=False) BrowserSessions.session(used=True) Loopback.listen(port=0)
common.web.templates: PageTemplates.show(status=200)
common.net.carrier: Patience(MOST=0.75, TIMES=3.0, AT_LEAST=5.0, HALVINGS=4, MOMENT=1.0)
    check_sizes(limit=537919488) InProcessNetwork.__init__(threads=0, max_bytes=537919488)
common.net.https: HttpsClient.__init__(timeout=20.0, deadline=300.0, keep=0.0)
common.net.mailbox: _Event.__new__(answered=False) _Offer(fetched=False)
    Mailbox.__init__(max_bytes=537919488) Mailbox.wait_for_fetches(most=60.0)
common.net.parties: PartyKey.shared(size=32)
common.net.polling: PollingDevice.__init__(max_bytes=537919488, shortest=0.2)
    drawn_pause(shortest=0.2)
common.net.server: Connections.make_room(of_senders=False) _LimitedProtocol(_header_bytes=0,
    _in_headers=True)
common.net.sum_servers: ServerClient.__init__(timeout=60.0)
"""


def test_defaults_are_what_they_were_decided_to_be() -> None:
    """What holds where nobody says otherwise is a promise to whoever leaves it out."""
    found = {name.removeprefix("hdpmf."): defaults_of(module) for name, module in _modules()}
    for line in re.sub(r"\n\s+", " ", DEFAULTS).strip().splitlines():
        module, _, decided = line.partition(": ")
        for name, default in re.findall(r"([\w.]+)\((.*?)\)", decided):
            assert set(default.split(", ")) <= found[module].get(name, set()), (module, name)


def defaults_of(module: ModuleType) -> dict[str, set[str]]:
    """Numbers and switches that a module's functions and classes have where nobody names them,
    and, with a minus, the fields that no repr shows.
    """
    found = {}
    for name, value in vars(module).items():
        if getattr(value, "__module__", None) != module.__name__:
            continue
        if isinstance(value, type):
            found[name] = _fields(value)
            members = vars(value) if not issubclass(value, msgspec.Struct) else {}
            for inside, member in members.items():
                plain = getattr(member, "__func__", getattr(member, "__wrapped__", member))
                generated = inside == "__init__" and dataclasses.is_dataclass(value)
                if inspect.isfunction(plain) and not generated:
                    found[f"{name}.{inside}"] = _parameters(plain)
        elif callable(value):
            found[name] = _parameters(getattr(value, "py_func", value))
    return found


def _parameters(function: Callable[..., Any]) -> set[str]:
    return {
        f"{name}={parameter.default}"
        for name, parameter in inspect.signature(function).parameters.items()
        if isinstance(parameter.default, bool | int | float)
    }


def _fields(value: type) -> set[str]:
    fields = dataclasses.fields(value) if dataclasses.is_dataclass(value) else ()
    known = {field.name: field.default for field in fields}
    if issubclass(value, msgspec.Struct):
        known = {field.name: field.default for field in msgspec.structs.fields(value)}
    elif issubclass(value, Enum):
        known = {member.name: member.value for member in value}
    numbers = {
        f"{name}={default}"
        for name, default in (dict(vars(value)) | known).items()
        if isinstance(default, bool | int | float)
    }
    return numbers | {f"-{field.name}" for field in fields if not field.repr}


def _modules() -> Iterator[tuple[str, ModuleType]]:
    """All modules that faults are planted in (tests/mutants)."""
    for package in (
        "common.privacy",
        "private.client",
        "common.aggregation.masks",
        "private.device",
        "untrusted.aggregator",
        "common.aggregation.two_servers",
        "private.page",
        "common.web",
        "common.net",
    ):
        folder = import_module(f"hdpmf.{package}")
        for module in pkgutil.walk_packages(folder.__path__, f"{folder.__name__}."):
            yield module.name, import_module(module.name)
