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


_PARTICIPANT = "tests/unit/participant"
_ESTIMATES = "tests/unit/recommender/test_estimates.py"
_DISKS = "tests/attacks/servers/test_server_disks.py"
_RECORDED = "tests/attacks/servers/test_recorded_uploads.py"
_ONE_AS_TWO = "tests/attacks/servers/test_one_server_as_two.py"
_CLOCKS = "tests/unit/aggregator/test_partner_clock.py"
_ISSUER = "tests/unit/service/test_token_issuer.py"
_TOKENS = "tests/attacks/servers/test_tokens.py"

PLANTED = (
    Planted(
        "a life without a limit",
        "private/device/ledger.py",
        "fits = month <= limits.month and total(lines).none + cost.none <= limits.life",
        "fits = month <= limits.month",
        (f"{_PARTICIPANT}/test_person_ledger.py",),
    ),
    Planted(
        "a report that the ledger does not have",
        "private/device/seal.py",
        "if not answer.promised:",
        "if False:",
        (f"{_PARTICIPANT}/test_taking_part.py::test_nothing_is_sealed_that_was_not_promised",),
    ),
    Planted(
        "used up budgets are seen",
        "private/device/decide.py",
        "        state = _promise(state, joined, answer, now)\n",
        "        state = _promise(state, joined, answer, now)\n"
        "        if state.ledger[-1].zeros:\n            return state, ()\n",
        (f"{_PARTICIPANT}/test_decide.py::test_used_up_limits_make_zeros_and_nothing_else",),
    ),
    Planted(
        "an old copy of a device's file is taken",
        "private/device/state_file.py",
        "version < counted or",
        "False or",
        (f"{_PARTICIPANT}/test_state_file.py::test_an_old_copy_is_refused",),
    ),
    Planted(
        "anything goes to any origin",
        "private/device/carrier.py",
        'if url.startswith(origin + "/"):',
        "if True:",
        ("tests/unit/net/test_web.py::test_nothing_goes_to_an_origin_that_was_not_joined",),
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
        "bits without their clamp",
        "common/privacy/sampling/noise.py",
        "small = np.maximum(small, np.ceil(np.minimum(least, 0.5) * unit).astype(np.uint64))",
        "pass",
        (
            "tests/unit/privacy/test_noise.py::test_a_bit_that_says_more_than_its_epsilon_is_held_back",
        ),
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
        "ports make two hosts of one",
        "common/protocol/servers.py",
        "if not same_host and host == plain_host(servers.helper.url):",
        "if not same_host and servers.leader.url == servers.helper.url:",
        (f"{_ONE_AS_TWO}::test_two_servers_on_one_host_are_pinned_by_nobody",),
    ),
    Planted(
        "retired HPKE keys stay on the disk",
        "untrusted/aggregator/hpke_keys.py",
        "self._store.erase(gone)",
        "pass",
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
        "anybody signs a server's list of keys",
        "common/protocol/key_list.py",
        "if not verifies(from_base64(public), signature, _digest(signed.keys)):",
        "if False:",
        ("tests/unit/protocol/test_key_list.py::test_a_list_of_another_server_is_refused",),
    ),
    Planted(
        "older lists of keys are taken",
        "common/protocol/key_list.py",
        "if known is None or keys.serial > known.serial or keys == known:",
        "if known is None or keys.serial != known.serial or keys == known:",
        ("tests/unit/protocol/test_key_list.py::test_lists_only_go_forward",),
    ),
    Planted(
        "a leader confirms what the helper cannot open",
        "untrusted/aggregator/leader.py",
        "helper_knows_key=self._partner_keys.knows",
        "helper_knows_key=lambda config_id: True",
        (f"{_RECORDED}::test_a_report_that_the_helper_cannot_open_is_not_confirmed",),
    ),
    Planted(
        "a server confirms reports while the clocks differ",
        "untrusted/aggregator/http.py",
        "        self._check_clocks()\n        count = size",
        "        count = size",
        (f"{_CLOCKS}::test_nothing_is_confirmed_while_clocks_differ",),
    ),
    Planted(
        "a device gets a second token by another request",
        "untrusted/service/token_issuer.py",
        "return 200 if known == request else 409",
        "return 200",
        (f"{_ISSUER}::test_of_two_requests_of_one_device_at_once_one_is_answered",),
    ),
    Planted(
        "anybody asks for another device's token",
        "untrusted/service/token_issuer.py",
        "if not verifies(from_base64(device), signature, said):",
        "if False:",
        (f"{_ISSUER}::test_strangers_and_malformed_requests_get_nothing_and_take_no_place",),
    ),
    Planted(
        "a device takes any answer for a token",
        "common/aggregation/two_servers/tokens.py",
        "if not key.holds(token):\n            raise",
        "if False:\n            raise",
        (
            "tests/unit/participant/test_taking_part.py::test_an_answer_that_is_no_signature_is_no_token",
        ),
    ),
    Planted(
        "a token of another task is taken",
        "untrusted/aggregator/report_writer.py",
        "token.challenge != task.token_challenge or ",
        "",
        (f"{_TOKENS}::test_a_token_of_another_task_or_of_nobody_is_refused",),
    ),
    Planted(
        "a token is for any number of reports",
        "untrusted/aggregator/report_writer.py",
        "if token.report_id != report_id:",
        "if False:",
        (f"{_TOKENS}::test_no_device_gets_two_tokens_and_no_token_counts_twice",),
    ),
)
