"""Numbers that proofs, messages, files and limits stand on, and how records are kept: changes
are decided here, too.
"""

from __future__ import annotations

import datetime
import pkgutil
from collections.abc import Iterator
from fractions import Fraction
from importlib import import_module
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
        "_STREAM": 25,
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
        "_LATE, _MOST_DOCUMENT": (86_400, 2**26),
        "_METADATA, _CIPHERTEXT, _PLAINTEXT": (28, 55, 6),
    },
    "untrusted.aggregator.folder": {
        "(l := Limits()).connections, l.per_address, l.job_reports": (4096, 256, 256),
        "(l := Limits()).header_seconds, l.body_seconds, l.retry_after": (10.0, 60.0, 30),
        "(l := Limits()).waiting_uploads, l.waiting_reports": (1024, 1_000_000),
        "Limits().task_bytes": 2**24,
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
        "_COUNTER_SIZE, _CHECK_SIZE, DAY": (8, 8, 86_400),
    },
    "untrusted.aggregator.key_table": {
        "_KEEP_DAYS, _FRESH_SECONDS, _DAY_SIZE, _NONCE_SIZE": (2, 2.0, 4, 12),
    },
    "untrusted.aggregator.sealing": {
        "_NONCE_SIZE, _BUCKET_SIZE": (12, 8),
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
        "CHECK_SECONDS": 3600.0,
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
        "_PART, _MOST": (20, 500),
        "ENOUGH, _WALL, _MOST_OF_WALL": (10, 24, 2000),
    },
    "private.page.disclosures": {
        "_RUNS_SHOWN, _REFUSALS_SHOWN": (50, 50),
    },
    "private.page.consent": {
        "_NUMBERS_SHOWN, _TITLES_SHOWN": (100, 100),
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
    "common.privacy.accounting.accountants": {
        "_FINENESS, _ARITHMETIC": (2e-5, 1e-10),
    },
    "private.client.ranking": {
        "_BLOCK_SCORES": 2**22,
    },
    "private.client.parts": {
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
    "private.page.request": {
        "HUES, MOST_LEVELS": (12, 11),
    },
    "private.page.settings": {
        "_MARKED_SHOWN": 100,
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
