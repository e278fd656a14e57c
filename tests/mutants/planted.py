"""Faults that were once planted by hand and that no test noticed, each with the test that does
now.
"""

from __future__ import annotations

from typing import NamedTuple


class Planted(NamedTuple):
    """A fault: in this file (below src/hdpmf) this text becomes that one, and these tests fail."""

    name: str
    path: str
    old: str
    new: str
    tests: tuple[str, ...]


_NO_TOKEN = (
    "tests/unit/page/test_safety.py::"
    "test_without_the_pages_own_token_nothing_is_done[/rate/catalogue]"
)
_SHARES = "tests/unit/device/test_noise_shares.py"
_WITHDRAWN = "tests/attacks/test_withdrawn.py"
_SIZES = "tests/unit/client/test_share_sizes.py"
_HALVES = "tests/unit/audit/test_halves.py"  # slow: a fault has to name its tests
_ESTIMATES = "tests/unit/recommender/test_estimates.py"
_PATTERNS = "tests/unit/recommender/test_pattern_choice.py"
_BOTH_SIDES = (
    "tests/unit/simulate/test_both_sides.py::test_bits_choose_whether_who_rated_what_is_used[-1.0]"
)
_BESIDE = (
    "tests/unit/paper/test_report_page.py::"
    "test_beside_each_number_stands_the_papers_mean_and_deviation"
)
_COLUMNS = (
    "tests/unit/paper/test_report_page.py::test_hdpmf_against_pdpmf_has_each_in_its_own_column"
)
_CSV = "tests/unit/paper/test_report_files.py::test_csv_has_every_cell_in_full"
_SAVED = "tests/unit/models/test_files.py::test_what_is_claimed_is_in_the_file_word_for_word[hdpmf]"
_SEEDS = (
    "tests/unit/experiments/test_expand.py::test_every_seed_has_wishes_a_split_and_noise_of_its_own"
)
_MADE = "tests/unit/device/test_crashes.py::test_killed_while_it_is_made[plain]"
_STORE = "tests/attacks/store/test_store.py"
_CODE = "tests/attacks/store/test_planted_code.py"
_EXPORTS = "tests/attacks/store/test_exports.py"
_ERASED = "tests/attacks/store/test_erased.py"
_WAIT = (
    "tests/unit/page/test_safety.py::"
    "test_the_old_passphrase_is_not_tried_at_will_when_a_new_one_is_given"
)
_FINER = (
    "tests/unit/privacy/test_released.py::"
    "test_what_a_finer_table_finds_beyond_the_first_one_is_drawn_as_all_that_is_beyond"
)

_DISKS = "tests/attacks/servers/test_server_disks.py"
_RECORDED = "tests/attacks/servers/test_recorded_uploads.py"
_HPKE_KEYS = "tests/unit/aggregator/test_hpke_keys.py"
_ONE_AS_TWO = "tests/attacks/servers/test_one_server_as_two.py"
_SUMS = "tests/attacks/test_secure_sums.py"
_PLANS = "tests/attacks/test_plans.py"
_RECEIPTS = "tests/unit/device/test_receipts.py"
_CLOCKS = "tests/unit/aggregator/test_partner_clock.py"
_ISSUER = "tests/unit/service/test_token_issuer.py"
_ISSUERS = "tests/attacks/servers/test_issuers.py"
_PINNED = "tests/cli/test_recommender_servers.py"
_BLIND = "tests/unit/protocol/test_tokens.py"
_TOKENS = "tests/attacks/servers/test_tokens.py"
_SEED_OR_KEY = f"{_SUMS}::test_what_survivors_reveal_takes_off_one_mask_only"
_TOO_FEW = f"{_SUMS}::test_one_share_less_than_the_threshold_opens_neither_secret"

PLANTED = (
    Planted(
        "the self-mask's seed is the mask key",
        "common/aggregation/masks/client.py",
        "self._mask_secret = new_secret()",
        "self._mask_secret = self._seed",
        (_SEED_OR_KEY,),
    ),
    Planted(
        "the mask key split at the threshold less one",
        "common/aggregation/masks/client.py",
        "mask_keys = split(self._mask_secret, threshold, degree)",
        "mask_keys = split(self._mask_secret, threshold - 1, degree)",
        (_TOO_FEW,),
    ),
    Planted(
        "a device counts for any number of users",
        "private/device/policy.py",
        "if terms.credit > self.max_credit:",
        "if False:",
        ("tests/attacks/test_participants.py",),
    ),
    Planted(
        "no limit per person by default",
        "private/device/policy.py",
        "max_total: float | None = 50.0",
        "max_total: float | None = None",
        ("tests/attacks/test_policy.py",),
    ),
    Planted(
        "who gave wrong shares is asked again",
        "untrusted/service/aggregation/masks.py",
        "honest = set(job.devices) - set(self.run.checkpoint.barred)",
        "honest = set(job.devices)",
        ("tests/attacks/test_hostile_device.py::test_one_wrong_share_does_not_end_the_run",),
    ),
    Planted(
        "strangers hold any number of connections",
        "common/net/server.py",
        "if open_now > limits.connections and not self.make_room():",
        "if False:",
        ("tests/unit/net/test_http_limits.py",),
    ),
    Planted(
        "a request is signed for any recommender",
        "common/net/signing.py",
        r'return f"hdpmf request 2\n{server}\n',
        r'return f"hdpmf request 2\n\n',
        (
            "tests/attacks/wire/test_wire.py::"
            "test_what_one_recommender_was_sent_is_of_no_use_at_another",
        ),
    ),
    Planted(
        "half of hdp-sum's noise",
        "private/client/contributions.py",
        "self._noise.laplace_share(scale, contributors,",
        "self._noise.laplace_share(scale / 2, contributors,",
        ("tests/attacks/test_participants.py::test_the_whole_noise_is_in_the_smallest_sum",),
    ),
    Planted(
        "a survey may count on all users",
        "private/device/survey.py",
        "survey.contributors > terms.sharing",
        "survey.contributors > terms.users",
        (_SHARES,),
    ),
    Planted(
        "a survey may count on colluders",
        "private/device/survey.py",
        "survey.contributors > terms.sharing",
        "survey.contributors > terms.minimum",
        (_SHARES,),
    ),
    Planted(
        "hdpmf-paid shared by all users on a device",
        "private/device/training.py",
        "sharing=terms.sharing",
        "sharing=terms.users",
        (_SHARES,),
    ),
    Planted(
        "hdpmf-paid shared with colluders",
        "private/device/training.py",
        "sharing=terms.sharing",
        "sharing=terms.minimum",
        (_SHARES,),
    ),
    Planted(
        "hdpmf-paid shared by who is here",
        "private/client/gradients.py",
        "scale, self._sharing, (plan.n_items, plan.n_factors), count=self._n_users",
        "scale, self._n_users, (plan.n_items, plan.n_factors), count=self._n_users",
        (_SIZES,),
    ),
    Planted(
        "hdpmf-paid's count taken for its shares",
        "private/client/gradients.py",
        "self._sharing = self._n_users if sharing is None else sharing",
        "self._sharing = self._n_users",
        (_SIZES,),
    ),
    Planted(
        "normals sized by everyone on a device",
        "private/client/gradients.py",
        "part = self._counts / np.maximum(self._round_raters(), np.maximum(self._counts, 1))",
        "part = self._counts / self._sharing",
        (_SIZES,),
    ),
    Planted(
        "normals sized by everyone in training",
        "private/client/gradients.py",
        "part = self._counts / np.maximum(self._round_raters(), 1)",
        "part = self._counts / 60",
        (_SIZES,),
    ),
    Planted(
        "the threshold by the measured runs",
        "lab/audit/scores.py",
        "= _choose(pilot,",
        "= _choose(measured,",
        (f"{_HALVES}::test_the_threshold_is_the_pilots",),
    ),
    Planted(
        "measured runs are the pilot's",
        "lab/audit/scores.py",
        "self.low[pilot:], self.high[pilot:]",
        "self.low[:-pilot], self.high[:-pilot]",
        (
            f"{_HALVES}::test_the_threshold_is_the_pilots",
            f"{_HALVES}::test_every_game_measures_on_other_runs_than_its_pilot",
        ),
    ),
    Planted(
        "a file written in place",
        "common/base/files.py",
        "os.replace(temporary, target)",
        "target.write_bytes(data); target.chmod(mode); os.unlink(temporary)",
        ("tests/unit/base/test_files.py",),
    ),
    Planted(
        "a file changed before all of it is there",
        "common/base/files.py",
        "target = Path(path)\n    temporary",
        "target = Path(path)\n    target.write_bytes(b'')\n    temporary",
        ("tests/unit/base/test_files.py",),
    ),
    Planted(
        "no prior on the spread of biases",
        "untrusted/recommender/sums.py",
        "held = prior.strength / prior.start**2",
        "held = 1e-12",
        (_ESTIMATES,),
    ),
    Planted(
        "no shrinkage of biases, design A",
        "untrusted/recommender/sums.py",
        "- _GRID**2 / 2.0",
        "",
        (_ESTIMATES,),
    ),
    Planted(
        "no shrinkage of biases, design L",
        "untrusted/recommender/bits.py",
        "expected, share = columns @ coefficients, spread * weight",
        "expected, share = columns @ coefficients, (told > 0) * 1.0",
        (_ESTIMATES,),
    ),
    Planted(
        "patterns are used whatever bits say",
        "untrusted/recommender/pattern_choice.py",
        "PATTERNS if gains.sum() > gains.std() * np.sqrt(len(gains)) else 0",
        "PATTERNS",
        (_PATTERNS,),
    ),
    Planted(
        "patterns are chosen by bits that they were learned from",
        "untrusted/recommender/pattern_choice.py",
        "known, unknown = bits.only(~held_out), bits.only(held_out)",
        "known, unknown = bits, bits.only(held_out)",
        (_PATTERNS,),
    ),
    Planted(
        "a federation uses patterns whatever bits say",
        "untrusted/service/settings.py",
        "patterns: int | None = None",
        "patterns: int | None = 8",
        (_BOTH_SIDES,),
    ),
    Planted(
        "a model for lists has the error of user means",
        "models/fitted.py",
        "if not self.predicts_ratings:",
        "if False:",
        ("tests/unit/models/test_models.py",),
    ),
    Planted(
        "no shrinkage of biases, design S",
        "untrusted/recommender/sums.py",
        "precision = SPREAD * weights**2 + noise + WEIGHT_RATIO * weights",
        "precision = SPREAD * weights**2 + 1e-9",
        (_ESTIMATES,),
    ),
    Planted(
        "facts with half the noise",
        "untrusted/recommender/sums.py",
        "more * WEIGHT_SCALE / survey.epsilon",
        "more * WEIGHT_SCALE / survey.epsilon / 2",
        (_ESTIMATES,),
    ),
    Planted(
        "deconvolution with half the noise",
        "untrusted/recommender/deconvolution.py",
        "    unclear = released < _CLEAR * noise_scale",
        "    noise_scale = noise_scale / 2\n    unclear = released < _CLEAR * noise_scale",
        (_ESTIMATES,),
    ),
    Planted(
        "the paper's mean and deviation swapped in the page",
        "lab/paper/templates/table3.html",
        "paper {{ paper.mean | four }} ± {{ paper.std | four }}",
        "paper {{ paper.std | four }} ± {{ paper.mean | four }}",
        (_BESIDE,),
    ),
    Planted(
        "the same in the CSV files",
        "lab/paper/report.py",
        "getattr(marked.published, field)",
        'getattr(marked.published, {"mean": "std", "std": "mean"}.get(field, field))',
        (_CSV,),
    ),
    Planted(
        "HDPMF's and PDPMF's columns swapped",
        "lab/paper/templates/order.html",
        '<td class="right">{{ number(duel.first, duel.metric) }}</td>',
        '<td class="right">{{ number(duel.second, duel.metric) }}</td>',
        (_COLUMNS,),
    ),
    Planted(
        "h without its floor",
        "untrusted/recommender/rounds.py",
        "self._h = np.maximum(drawn, np.float32(H_FLOOR))",
        "self._h = drawn",
        (_ESTIMATES,),
    ),
    Planted(
        "an h below the floor is taken",
        "private/client/h_plausibility.py",
        "if smallest < H_FLOOR:",
        "if smallest < 0:",
        ("tests/unit/client/test_h_law.py",),
    ),
    Planted(
        "bits without their budget",
        "private/client/contributions.py",
        "coding, survey.epsilon), budgets\n",
        "coding, survey.epsilon)\n",
        (_SIZES,),
    ),
    Planted(
        "bits without their clamp",
        "common/privacy/sampling/noise.py",
        "small = np.maximum(small, np.ceil(np.minimum(least, 0.5) * unit).astype(np.uint64))",
        "pass",
        (
            "tests/unit/privacy/test_released.py::test_a_bit_that_says_more_than_its_epsilon_is_held_back",
        ),
    ),
    Planted(
        "a split that leaks from many ratings",
        "common/data/splits.py",
        "    held = rank < np.minimum(per_user, counts - 1)[ratings.user_codes]\n    "
        "return ratings.take(~held),",
        "    held = rank < np.minimum(per_user, counts - 1)[ratings.user_codes]\n"
        "    return ratings.take(~held | (counts > 20)[ratings.user_codes]),",
        ("tests/unit/data/test_splits.py",),
    ),
    Planted(
        "honest is not saved",
        "models/files.py",
        '"privacy": asdict(model.privacy),',
        '"privacy": asdict(model.privacy) | {"honest": ""},',
        (_SAVED,),
    ),
    Planted(
        "one privacy seed for all runs",
        "lab/experiments/expansion.py",
        "_wishes(experiment, x), seed),",
        "_wishes(experiment, x), experiment.seeds[0]),",
        (_SEEDS,),
    ),
    Planted(
        "a store made by halves",
        "private/device/store/device_store.py",
        "with database.transaction():\n                database.lay_tables(cipher)",
        "if True:\n                database.lay_tables(cipher)",
        (_MADE,),
    ),
    Planted(
        "rows of a store not compared with its head",
        "private/device/store/integrity.py",
        'if self._sum().to_bytes(_BYTES, "big") != head.total:',
        "if False:",
        (_STORE,),
    ),
    Planted(
        "an old copy of a store is taken",
        "private/device/store/integrity.py",
        "counted is not None and commits < counted",
        "False",
        (_STORE,),
    ),
    Planted(
        "a store without its counter is taken",
        "private/device/store/integrity.py",
        "if counted is None and (commits > 1 or self._counter.exists()):",
        "if False:",
        (_STORE,),
    ),
    Planted(
        "a store passes for one of an older version",
        "private/device/store/database.py",
        "if _KIND.read_schema(self._connection, self.path) < FIRST_SCHEMA:",
        "if False:",
        (_STORE,),
    ),
    Planted(
        "the schema of a store is not compared",
        "private/device/store/layout.py",
        'if len(found) == len(ours) and set(found) == set(ours) and coding == "UTF-8":',
        "if True:",
        (_CODE,),
    ),
    Planted(
        "what others write to an open store is not checked",
        "private/device/store/database.py",
        "return self._integrity is None or self.version() == self._verified",
        "return True",
        (_CODE,),
    ),
    Planted(
        "rows of a store that are out of order",
        "private/device/store/integrity.py",
        "PRAGMA main.integrity_check(1)",
        "PRAGMA main.quick_check(1)",
        (_CODE,),
    ),
    Planted(
        "an export that is not sealed is taken",
        "private/device/store/sealed_export.py",
        "if head.format != EXPORT_FORMAT or not StoreCipher.needs_passphrase(head.key):",
        "if head.format != EXPORT_FORMAT:",
        (_EXPORTS,),
    ),
    Planted(
        "an export without its end is taken",
        "private/device/store/sealed_export.py",
        'index.to_bytes(8, "big") + bytes([last])',
        'index.to_bytes(8, "big")',
        (_EXPORTS,),
    ),
    Planted(
        "deleted bytes of a store stay",
        "private/device/store/database.py",
        "PRAGMA secure_delete = ON",
        "PRAGMA secure_delete = OFF",
        (_ERASED,),
    ),
    Planted(
        "a removed rating stays in the -wal",
        "private/device/store/integrity.py",
        "self.erases |= sign < 0 and row[0] in _ERASED",
        "pass",
        (_ERASED,),
    ),
    Planted(
        "the old passphrase tried without waiting",
        "private/page/owner.py",
        'if self.attempts.wait > 0:\n            raise PrivacyError(f"too many',
        'if False:\n            raise PrivacyError(f"too many',
        (_WAIT,),
    ),
    Planted(
        "a finer table's values are kept",
        "common/privacy/sampling/shares.py",
        "np.flatnonzero(result >= table.length)",
        "np.flatnonzero(result == table.length)",
        (_FINER,),
    ),
    Planted(
        "answers leave when they are ready",
        "private/device/connection.py",
        "device.serve(quantize_response_time(answer), stop)",
        "device.serve(answer, stop)",
        ("tests/attacks/test_times.py",),
    ),
    Planted(
        "another authority is pinned",
        "cli/device/join.py",
        "if not new:",
        "if False:",
        ("tests/attacks/test_pinning.py",),
    ),
    Planted(
        "plans that come to nothing are not counted",
        "private/device/session.py",
        "plans.draw()",
        "pass",
        (_PLANS,),
    ),
    Planted(
        "plans of sums that came about count",
        "private/device/conversation.py",
        "self._plans.sent()",
        "pass",
        (_PLANS,),
    ),
    Planted(
        "a clock that is put back forgets plans",
        "private/device/session.py",
        "now >= last.begun + DAY",
        "not 0 <= now - last.begun < DAY",
        (_PLANS,),
    ),
    Planted(
        "one recommender's plans starve another",
        "private/device/session.py",
        "last = self._store.tables.plan_counts.find(self._recommender)",
        "last = next(iter(self._store.tables.plan_counts.rows()), None)",
        (_PLANS,),
    ),
    Planted(
        "what a leader said before it took a report is not on receipts",
        "private/device/outbox/sending.py",
        "self._note_answer(state, *answer, last=False)",
        "pass",
        (_RECEIPTS,),
    ),
    Planted(
        "a report beyond the limit counts each time",
        "private/device/disclosures/sent_bytes.py",
        "elif last:",
        "else:",
        (_RECEIPTS,),
    ),
    Planted(
        "keys that changed in a run are not on receipts",
        "private/device/disclosures/sent_bytes.py",
        "if device not in known.devices:",
        "if False:",
        (_RECEIPTS,),
    ),
    Planted(
        "uploads on the owner's page without CSRF token",
        "private/page/http.py",
        "return fields if equal_secrets(given, session.csrf) else None",
        "return fields if equal_secrets(given, session.csrf) or hasattr(request.state, 'file') "
        "else None",
        (_NO_TOKEN,),
    ),
    Planted(
        "devices' TLS without host names",
        "common/net/https.py",
        "return ssl.create_default_context(cadata=text or None)",
        "context = ssl.create_default_context(cadata=text or None)\n"
        "        context.check_hostname = False\n"
        "        return context",
        ("tests/attacks/wire/test_tls.py",),
    ),
    Planted(
        "a device's ETag comes back",
        "common/net/polling.py",
        'answer = self._client.request("GET", f"{self._address}/{name}", most=most)',
        'sent = {"if-none-match": getattr(self, "_tag", "x")}\n'
        '            answer = self._client.request("GET", f"{self._address}/{name}", most=most, '
        "headers=sent)\n"
        '            self._tag = answer.headers.get("etag", "x")',
        ("tests/attacks/wire/test_visits.py::test_nothing_that_a_server_gave_a_device_comes_back",),
    ),
    Planted(
        "what was refused is forgotten by a restart",
        "private/device/published_files.py",
        "if not self._setup.simulation:\n            self._book",
        "if False:\n            self._book",
        ("tests/attacks/wire/test_downloads.py::test_a_refused_catalogue_is_loaded_once",),
    ),
    Planted(
        "rows of a Parquet file count for nothing",
        "common/data/parquet.py",
        "8 * n_rows * len(chosen) > most or",
        "",
        ("tests/attacks/test_files.py::test_a_small_file_is_not_a_large_table[rows]",),
    ),
    Planted(
        "any admitted recommender collects another's task",
        "untrusted/aggregator/http.py",
        "if task.document.collector.identity != asking:",
        "if False:",
        (f"{_ONE_AS_TWO}::test_an_admitted_recommender_does_not_get_anothers_sums",),
    ),
    Planted(
        "keys of a closed batch stay",
        "untrusted/aggregator/collection.py",
        "self._seals.erase(task.id, interval)",
        "pass",
        (f"{_DISKS}::test_copies_of_databases_cannot_be_opened_once_the_batch_is_closed",),
    ),
    Planted(
        "noise does not depend on the sum",
        "untrusted/aggregator/noise_key.py",
        "task_id + sha256(total).digest()",
        "task_id + sha256(b'').digest()",
        (f"{_DISKS}::test_other_reports_after_a_rollback_get_other_noise",),
    ),
    Planted(
        "ports make two hosts of one",
        "common/protocol/servers.py",
        "if not same_host and host == plain_host(servers.helper.url):",
        "if not same_host and servers.leader.url == servers.helper.url:",
        (f"{_ONE_AS_TWO}::test_two_servers_on_one_host_are_pinned_by_nobody",),
    ),
    Planted(
        "labels continue from another survey's counts",
        "private/device/outbox/reports.py",
        "known.counted is None or known.counted.survey != encode(read.survey)",
        "known.counted is None",
        (f"{_WITHDRAWN}::test_labels_of_another_survey_get_nothing",),
    ),
    Planted(
        "no consent for labels tasks",
        "private/device/outbox/reports.py",
        "if not self._owner_agrees(read, run):",
        'if read.part != "labels" and not self._owner_agrees(read, run):',
        (f"{_WITHDRAWN}::test_labels_are_asked_about",),
    ),
    Planted(
        "the owner's word is not looked at when a report leaves",
        "private/device/outbox/sending.py",
        """            if not state.may_have_left(user):
                self._require_agreement(read, state)
                if not self._is_current(read):
""",
        """            if not state.may_have_left(user):
                if not self._is_current(read):
""",
        (f"{_WITHDRAWN}::test_what_the_owner_agrees_to_no_more_does_not_leave",),
    ),
    Planted(
        "ratings are not looked at when a report leaves",
        "private/device/outbox/sending.py",
        "return self._checked == (read.id, self._store.ratings_version())",
        "return self._checked is not None",
        (f"{_WITHDRAWN}::test_the_report_is_of_the_ratings_as_they_are",),
    ),
    Planted(
        "a report is made at the moment it leaves",
        "private/device/outbox/sending.py",
        "if (state.token_at if lacks else max(state.moment, state.retry_at)) >= after:",
        "if True:",
        (f"{_WITHDRAWN}::test_a_change_at_the_moment_draws_another_one",),
    ),
    Planted(
        "masked numbers of other ratings leave",
        "private/device/conversation.py",
        "same = waiting.content == session.content()",
        "same = True",
        (f"{_WITHDRAWN}::test_masked_numbers_leave_only_while_the_owner_agrees",),
    ),
    Planted(
        "a no covers one epsilon",
        "private/device/consent.py",
        "question.terms.epsilon * _MUCH_CHEAPER <= refused.terms.epsilon",
        "question.terms.epsilon < refused.terms.epsilon",
        (f"{_WITHDRAWN}::test_never_covers_the_recommender",),
    ),
    Planted(
        "a task that is soon over is taken",
        "private/device/policy.py",
        "if end - max(now, begin) < self.min_period / 4:",
        "if False:",
        (f"{_WITHDRAWN}::test_short_tasks_get_nothing",),
    ),
    Planted(
        "retired HPKE keys stay on the disk",
        "untrusted/aggregator/hpke_keys.py",
        "self._store.erase(gone)",
        "pass",
        (f"{_RECORDED}::test_a_recorded_upload_stays_closed",),
    ),
    Planted(
        "HPKE keys never rotate",
        "untrusted/aggregator/hpke_keys.py",
        "if not names or now >= _made(names[0]) + self._period:",
        "if not names:",
        (f"{_RECORDED}::test_a_recorded_upload_stays_closed",),
    ),
    Planted(
        "HPKE keys are erased while a task has reports for them",
        "untrusted/aggregator/server.py",
        "if document.begin <= begun and closed < document.end - document.begin:",
        "if False:",
        (f"{_RECORDED}::test_a_key_stays_while_reports_for_it_are_under_way_and_no_longer",),
    ),
    Planted(
        "a task that is collected in part needs no HPKE keys",
        "untrusted/aggregator/server.py",
        "closed < document.end - document.begin",
        "not closed",
        (f"{_RECORDED}::test_a_part_of_a_task_that_is_not_collected_keeps_its_key",),
    ),
    Planted(
        "HPKE keys are erased while a list has them",
        "untrusted/aggregator/hpke_keys.py",
        "return _made(newer) + VALID_SECONDS + _SLACK_SECONDS",
        "return _made(newer)",
        (f"{_HPKE_KEYS}::test_a_retired_key_opens_until_no_list_and_no_open_task_has_it",),
    ),
    Planted(
        "an erased HPKE key stays in the memory of other workers",
        "untrusted/aggregator/hpke_keys.py",
        "self._pairs = found\n        return found",
        "self._pairs = known | found\n        return self._pairs",
        (f"{_HPKE_KEYS}::test_workers_share_keys_and_forget_what_another_has_erased",),
    ),
    Planted(
        "a list of keys is not made of the file after a kill",
        "untrusted/aggregator/hpke_keys.py",
        "return right and keys.not_after",
        "return keys.not_after",
        (f"{_HPKE_KEYS}::test_killed_anywhere_in_a_rotation",),
    ),
    Planted(
        "anybody signs a server's list of keys",
        "common/protocol/key_list.py",
        "if not verifies(public, signed.signature, _LABEL + signed.statement):",
        "if False:",
        (f"{_RECORDED}::test_nobody_else_makes_the_helpers_list",),
    ),
    Planted(
        "older lists of keys are taken",
        "common/protocol/key_list.py",
        "if known is None or keys.serial > known.serial or keys == known:",
        "if known is None or keys.serial != known.serial or keys == known:",
        (f"{_RECORDED}::test_an_older_list_is_refused_whoever_brings_it",),
    ),
    Planted(
        "two lists of keys may have one number",
        "common/protocol/key_list.py",
        "keys.serial > known.serial or keys == known",
        "keys.serial >= known.serial",
        (f"{_RECORDED}::test_a_second_list_of_one_number_is_refused",),
    ),
    Planted(
        "a list of keys is used after its end",
        "common/protocol/key_list.py",
        "if now >= keys.not_after:",
        "if False:",
        (f"{_RECORDED}::test_an_old_list_is_not_used_for_ever",),
    ),
    Planted(
        "lists of keys are forgotten by a restart",
        "private/device/outbox/server_keys.py",
        "self._store.change_device(server_keys=lists)",
        "pass",
        (f"{_RECORDED}::test_a_report_is_encrypted_to_the_newest_keys_when_it_leaves",),
    ),
    Planted(
        "reports are encrypted to the oldest key",
        "common/protocol/key_list.py",
        "for config in HpkeConfigList.decode(keys.configs).hpke_configs:",
        "for config in reversed(HpkeConfigList.decode(keys.configs).hpke_configs):",
        (f"{_RECORDED}::test_a_report_is_encrypted_to_the_newest_keys_when_it_leaves",),
    ),
    Planted(
        "a report that is encrypted anew has another id",
        "private/client/outgoing.py",
        "metadata = ReportMetadata(shares.report_id, shares.time)",
        "metadata = ReportMetadata(secrets.token_bytes(16), shares.time)",
        (f"{_RECORDED}::test_a_leader_that_says_outdated_gets_nothing_by_it",),
    ),
    Planted(
        "a report is encrypted anew because a leader says so",
        "private/device/outbox/sending.py",
        "if status == _BAD_REQUEST and self._is_outdated(read, body):",
        "if status == _BAD_REQUEST:",
        (f"{_RECORDED}::test_a_leader_that_says_outdated_gets_nothing_by_it",),
    ),
    Planted(
        "a report for an erased key is sent as it is for ever",
        "private/device/outbox/sending.py",
        "if status == _BAD_REQUEST and self._is_outdated(read, body):",
        "if False:",
        (f"{_RECORDED}::test_a_report_for_an_erased_key_is_encrypted_anew_and_paid_once",),
    ),
    Planted(
        "a leader confirms what it cannot open",
        "untrusted/aggregator/report_writer.py",
        "if not checked.readable:",
        "if False:",
        (f"{_RECORDED}::test_a_report_for_an_erased_key_is_encrypted_anew_and_paid_once",),
    ),
    Planted(
        "a leader confirms what the helper cannot open",
        "untrusted/aggregator/leader.py",
        "helper_knows_key=self._partner_keys.knows",
        "helper_knows_key=lambda config_id: True",
        (f"{_RECORDED}::test_a_report_that_the_helper_cannot_open_is_not_confirmed",),
    ),
    Planted(
        "a leader takes any list of the helper's keys",
        "untrusted/aggregator/hpke_keys.py",
        "keys = follow_key_list(signed, self._list, self._card)",
        "keys = follow_key_list(signed, b'', self._card)",
        (f"{_RECORDED}::test_a_leader_follows_the_helpers_list_only_forward",),
    ),
    Planted(
        "a recommender publishes forged lists of keys",
        "untrusted/service/service.py",
        "read_key_list(signed, card)",
        "pass",
        ("tests/unit/service/test_server_keys.py::test_forged_lists_are_not_published",),
    ),
    Planted(
        "a certificate is renewed only when a server starts",
        "common/net/server.py",
        "self._renewal = loop.call_later(CHECK_SECONDS, self._renew, tls)",
        "pass",
        ("tests/unit/net/test_server_tls.py::test_new_connections_get_the_new_certificate",),
    ),
    Planted(
        "a certificate is loaded without its key",
        "common/net/certificates.py",
        "            server_context(str(paths.server), str(paths.key))\n            self",
        "            self",
        ("tests/unit/net/test_server_tls.py::test_a_bad_certificate_is_not_taken",),
    ),
    Planted(
        "one run may spend a whole life by default",
        "private/device/policy.py",
        "max_epsilon_per_run: float | None = RUN_EPSILON",
        "max_epsilon_per_run: float | None = None",
        ("tests/attacks/test_policy.py",),
    ),
    Planted(
        "a silo's users count as gone with the first",
        "private/device/recommender_state.py",
        "return self.left and (not self.begun or user < self.begun)",
        "return self.left",
        (f"{_WITHDRAWN}::test_a_silo_sends_no_more_reports_than_had_left_at_a_no",),
    ),
    Planted(
        "headers leave before the last look",
        "common/net/https.py",
        'event.endswith("send_request_headers.started")',
        'event.endswith("send_request_body.started")',
        ("tests/unit/net/test_web.py",),
    ),
    Planted(
        "files are looked at as often as a recommender says that they changed",
        "private/device/published_files.py",
        "if found.looks >= LOOKS_PER_DAY:",
        "if False:",
        ("tests/attacks/wire/test_downloads.py",),
    ),
    Planted(
        "ratings pay for a training that goes on without them",
        "private/device/conversation.py",
        "self._give_back_rest(session)",
        "pass",
        ("tests/attacks/test_charges.py",),
    ),
    Planted(
        "a rating that is too much is left out, not cut short",
        "private/device/disclosures/limits.py",
        "            found[at] = left * unit",
        "            found[at] = None",
        ("tests/unit/device/test_limits.py::test_what_is_left_of_the_total_is_filled",),
    ),
    Planted(
        "a rating that was cut short can afford more later",
        "private/device/disclosures/ledger.py",
        "return affordable(self.spent(ratings, own), epsilons, own, policy)",
        "return affordable(self.spent(ratings), epsilons, own, policy)",
        ("tests/unit/device/test_limits.py::test_who_was_cut_short_counts_as_paid_in_full",),
    ),
    Planted(
        "a server confirms reports while the clocks differ",
        "untrusted/aggregator/http.py",
        "        self._check_clocks()\n        if self._driver",
        "        if self._driver",
        (f"{_CLOCKS}::test_nothing_is_confirmed_while_clocks_differ",),
    ),
    Planted(
        "an old database does not learn what it has forgotten",
        "untrusted/aggregator/released_batches.py",
        "self._restore(theirs.returned)",
        "pass",
        ("tests/attacks/servers/test_old_databases.py",),
    ),
    Planted(
        "an old copy of the running server's database passes for the newest",
        "untrusted/aggregator/sqlite_file.py",
        "if _is_before(counted, self._counted):",
        "if False:",
        ("tests/unit/aggregator/test_datastore.py",),
    ),
    Planted(
        "a copy of SQLite's log without the last commits passes for the newest",
        "untrusted/aggregator/sqlite_file.py",
        "end.frame < self._log_end.frame or not self._log_end.is_in(self._open[1])",
        "end.frame < self._log_end.frame",
        ("tests/unit/aggregator/test_datastore.py",),
    ),
    Planted(
        "entries that continue another log are taken back",
        "untrusted/aggregator/release_log.py",
        "if (entry.number, entry.before) == (number + 1, digest):",
        "if entry.number == number + 1:",
        ("tests/attacks/servers/test_old_databases.py",),
    ),
    Planted(
        "a purged task is taken again when the clock is put back",
        "untrusted/aggregator/tasks.py",
        "return late or task.number in self._purged",
        "return late",
        (f"{_DISKS}::test_who_reported_and_report_ids_are_deleted_with_the_task",),
    ),
    Planted(
        "the issuer gives a device any number of tokens",
        "untrusted/service/aggregation/token_issuer.py",
        "if count >= most:",
        "if False:",
        (f"{_ISSUER}::test_one_token_for_each_user_and_the_same_for_the_same_request",),
    ),
    Planted(
        "a token is given out although the commit has failed",
        "untrusted/service/aggregation/token_issuer.py",
        "each.status.set_exception(error)",
        "each.status.set_result(200)",
        (f"{_ISSUER}::test_a_disk_that_refuses_gives_nobody_of_a_commit_a_token",),
    ),
    Planted(
        "issuers count while another one writes",
        "untrusted/service/aggregation/token_issuer.py",
        "BEGIN IMMEDIATE",
        "BEGIN",
        (f"{_ISSUERS}::test_no_issuer_counts_while_another_one_writes",),
    ),
    Planted(
        "each issuer has a record of its own",
        "untrusted/service/aggregation/token_issuer.py",
        "self._file = _TokenFile(path, check=False)",
        "copied = __import__('shutil').copy(path, f'{path}-{id(self)}')\n"
        "            self._file = _TokenFile(Path(copied), check=False)",
        (f"{_ISSUERS}::test_a_device_that_asks_two_issuers_at_once_gets_one_token",),
    ),
    Planted(
        "a run that is tried again refuses requests under way",
        "untrusted/service/aggregation/token_issuer.py",
        "return True  # requests",
        "pass  # requests",
        (f"{_ISSUER}::test_a_request_under_way_outlasts_a_run_that_is_tried_again",),
    ),
    Planted(
        "an issuer goes on with an old copy",
        "untrusted/service/aggregation/token_issuer.py",
        "self._over.add(self._task)  # another",
        "pass  # another",
        (f"{_ISSUERS}::test_an_issuer_beside_does_not_go_on_with_an_old_copy",),
    ),
    Planted(
        "an issuer makes a file that was deleted",
        "untrusted/service/aggregation/token_issuer.py",
        '?mode=rw"',
        '?mode=rwc"',
        (f"{_ISSUERS}::test_an_issuer_beside_makes_no_file_and_ends_with_the_task",),
    ),
    Planted(
        "a token is signed before it is written down",
        "untrusted/service/aggregation/token_issuer.py",
        "status = file.enter(bytes.fromhex(device), digest)",
        "file.key.sign(request)\n        status = file.enter(bytes.fromhex(device), digest)",
        (f"{_ISSUERS}::test_an_issuer_that_is_killed_before_its_answer",),
    ),
    Planted(
        "each request has a commit of its own",
        "untrusted/service/aggregation/token_issuer.py",
        "for _ in range(len(self._waiting))]",
        "for _ in range(1)]",
        (f"{_ISSUER}::test_requests_that_wait_for_a_commit_share_the_next_one",),
    ),
    Planted(
        "tokens are written down in a file that was deleted",
        "untrusted/service/aggregation/token_issuer.py",
        "memory or _identity(self._path) == self._identity",
        "True",
        (f"{_ISSUER}::test_nothing_is_issued_from_a_file_that_is_gone_or_was_replaced",),
    ),
    Planted(
        "a run without serve issues no tokens",
        "cli/recommender/run.py",
        "            servers=peers.servers,\n            issuer=peers.issuer,\n",
        "            servers=peers.servers,\n",
        (f"{_PINNED}::test_a_run_of_its_own_process_gives_out_tokens",),
    ),
    Planted(
        "anybody asks for another device's token",
        "untrusted/service/aggregation/token_issuer.py",
        "if not verifies(bytes.fromhex(device), signature, said):",
        "if False:",
        (f"{_ISSUER}::test_strangers_and_malformed_requests_get_nothing_and_take_no_place",),
    ),
    Planted(
        "a restored issuer makes a new file",
        "untrusted/service/aggregation/token_issuer.py",
        "elif path.exists():\n                self._file = _TokenFile(path)",
        "else:\n                self._file = _TokenFile(path, of=(IssuerKey.generate(), {}))",
        (f"{_ISSUER}::test_the_key_and_who_has_a_token_go_with_the_period",),
    ),
    Planted(
        "what the issuer computes is not checked",
        "common/aggregation/two_servers/tokens.py",
        "if pow(signature, public.e, n) != blinded:",
        "if False:",
        (f"{_BLIND}::test_a_wrong_computation_is_not_handed_out",),
    ),
    Planted(
        "what the issuer computes is not blinded",
        "common/aggregation/two_servers/tokens.py",
        "factor = number(_factor(public.n))",
        "factor = number(1)",
        (f"{_BLIND}::test_what_is_raised_to_the_secret_exponent_is_blinded",),
    ),
    Planted(
        "a device's blinding factor is always the same",
        "common/aggregation/two_servers/tokens.py",
        "factor = _factor(key.modulus) if factor is None else factor",
        "factor = 65_539 if factor is None else factor",
        (f"{_BLIND}::test_factors_are_uniform",),
    ),
    Planted(
        "a device takes any answer for a token",
        "common/aggregation/two_servers/tokens.py",
        "if not key.holds(token):\n            raise",
        "if False:\n            raise",
        (f"{_TOKENS}::test_an_issuer_that_signs_with_another_key_gets_no_report",),
    ),
    Planted(
        "a token of another task is taken",
        "untrusted/aggregator/report_writer.py",
        "token.challenge != task.token_challenge or ",
        "",
        (f"{_TOKENS}::test_a_token_of_another_task_or_of_nobody_is_refused",),
    ),
    Planted(
        "a forged token is taken",
        "untrusted/aggregator/report_writer.py",
        " or not key.holds(token):",
        ":",
        (f"{_TOKENS}::test_a_token_of_another_task_or_of_nobody_is_refused",),
    ),
    Planted(
        "a token is for any number of reports",
        "untrusted/aggregator/report_writer.py",
        "if token.report_id != report_id:",
        "if False:",
        (f"{_TOKENS}::test_no_device_gets_two_tokens_and_no_token_counts_twice",),
    ),
    Planted(
        "a device asks for a token by other bytes each time",
        "private/device/outbox/reports.py",
        "return self.book.blinded(read.id, user) or token_request(read.task, read.id)",
        "return token_request(read.task, read.id)",
        (f"{_TOKENS}::test_a_report_that_is_made_anew_has_the_same_token",),
    ),
    Planted(
        "a report leaves right after its token",
        "private/device/outbox/reports.py",
        "if state.moment <= now:",
        "if False:",
        (f"{_TOKENS}::test_a_late_token_does_not_let_the_report_leave_at_once",),
    ),
)
