"""Sections of a privacy statement: parties, data flow, retention, what is open, warnings."""

from __future__ import annotations

import hashlib
import platform
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from importlib.resources import files as files_of
from pathlib import Path

from msgspec import structs

from hdpmf.common.privacy.accounting import cost
from hdpmf.common.privacy.statement.document import (
    TYPICAL_RATERS,
    Amount,
    Party,
    PeopleCosts,
    PrivacyStatement,
    Provenance,
    Retained,
    RunRow,
    Subject,
)
from hdpmf.common.privacy.statement.questions import answer

LARGE_EPSILON = 10.0
"""Above this a bound says next to nothing: a guess may be right more than 99.99 % of the time."""

ONE_USER = (
    "A sum over one user hides nobody among others: all protection is the noise, and everything "
    "learned is about this user."
)


def large_epsilon(epsilon: str) -> str:
    """Return the warning of an epsilon above ``LARGE_EPSILON``."""
    return (
        f"One rating of weight 1 has epsilon {epsilon}, which is above {LARGE_EPSILON:g}: such a "
        "bound promises next to nothing."
    )


def make_statement(
    subject: Subject,
    *,
    people: PeopleCosts,
    provenance: Provenance,
    budget: Sequence[str] = (),
    runs: Sequence[RunRow] = (),
) -> PrivacyStatement:
    """Return the statement: what is known of the subject, and what follows for every reader."""
    method = subject.method
    proof = cost(subject.setting, subject.view, n_raters=TYPICAL_RATERS).reference
    claim = {
        "epsilon": subject.claim.epsilon,
        "status": subject.claim.status,
        "against": subject.claim.view,
        "reason": subject.claim.reason,
        "honest": subject.claim.honest or None,
        "noise": subject.claim.noise or "released",
        "items": subject.claim.items or None,
        "needs": subject.stated.needs or None,
        "proof": proof or None,
        "unit": "one rating; a rating of privacy weight W pays W times epsilon",
    }
    return PrivacyStatement(
        kind=subject.kind,
        name=subject.name,
        method=method.name,
        title=f"{method.label}: {method.summary}",
        view=subject.view,
        claim=claim,
        delta=subject.delta,
        trainings=subject.trainings,
        parties=parties(subject),
        people=people,
        budget=tuple(budget),
        runs=tuple(runs),
        audit_command=subject.audit_command,
        flow=flow(subject),
        retention=retention(subject),
        not_protected=not_protected(subject),
        warnings=warnings(subject, people),
        questions=answer(subject, people),
        confidential=("people",) if people.rows else (),
        provenance=provenance,
    )


def provenance(
    command: str, *, files: Mapping[str, Path] | None = None, runs: Mapping[str, str] | None = None
) -> Provenance:
    """Return the date, the command, and the versions and hashes of software and public files."""
    package = Path(str(files_of("hdpmf")))
    code = hashlib.sha256()
    for source in sorted(package.rglob("*.py")):
        code.update(source.relative_to(package).as_posix().encode() + b"\0")
        code.update(hashlib.sha256(source.read_bytes()).digest())
    return Provenance(
        date=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        command=command,
        versions={"Python": platform.python_version()}
        | {name: version(name) for name in ("hdpmf", "msgspec", "numpy", "scipy")},
        code=code.hexdigest(),
        files={
            name: hashlib.sha256(path.read_bytes()).hexdigest()
            for name, path in (files or {}).items()
        },
        runs=dict(runs or {}),
    )


def parties(subject: Subject) -> tuple[Party, ...]:
    """Return who sees what, and what one rating of weight 1 costs against each."""
    value, presence = subject.amount("value"), subject.amount("presence")
    if subject.kind == "model":
        return _parties_of_model(subject)
    found = [
        Party(who="The person, on their own device", sees="their own ratings, which never leave"),
        Party(who="The recommender", sees=subject.stated.sees, value=value, presence=presence),
    ]
    if subject.view == "two-servers":
        found += [
            Party(
                who="Each of the two servers, by itself",
                sees="one share of every report, which is uniformly random; the leader also sees "
                "when reports came and from which address, but no device's name",
            ),
            Party(
                who="The recommender together with one of the servers",
                sees="the noised sums, and that server's shares",
                value=value,
                presence=presence,
            ),
            Party(
                who="Both servers together",
                sees="every report: nothing protects a rating from them",
                value=Amount.unbounded(),
                presence=Amount.unbounded(),
            ),
        ]
    if subject.view == "sums":
        found.append(
            Party(
                who="The recommender with more colluding devices than the run allows for",
                sees="single devices' numbers, almost without noise",
                value=Amount.unbounded(),
                presence=Amount.unbounded(),
            )
        )
    found += [
        Party(
            who="Other people, and everybody who has the published model",
            sees="the model, which is computed from what the recommender sees",
            value=value,
            presence=presence,
        ),
        Party(
            who="Somebody on the network",
            sees="that a device talks to a server, and when; messages are encrypted (TLS)"
            + (
                ", but their size tells about how many ratings there are"
                if subject.view == "messages"
                else " and as long whatever was rated"
            ),
        ),
    ]
    return tuple(structs.replace(party, sees=_sentence(party.sees)) for party in found)


def _parties_of_model(subject: Subject) -> tuple[Party, ...]:
    names = {
        "messages": "An observer of every message, were it run between machines",
        "sums": "An observer of sums over users, were it run by secure aggregation",
        "two-servers": "The recommender with one of two servers, were it run with them",
    }
    found = [
        Party(
            who="The operator of this training, and all who can read the model's folder devices/",
            sees="ratings, privacy weights, user vectors and the seed of the noise: no epsilon "
            "protects anything from them",
        )
    ]
    for view in subject.method.offered:
        claim = subject.method.claim(view, labels=subject.setting.labels)
        found.append(
            Party(
                who=names[view],
                sees=claim.sees,
                value=subject.amount("value", view),
                presence=subject.amount("presence", view),
            )
        )
    found.append(
        Party(
            who="Anyone who has the model's folder recommender/, but not the seed",
            sees="the published model, which is computed from what the claim's observer sees",
            value=subject.amount("value"),
            presence=subject.amount("presence"),
        )
    )
    return tuple(structs.replace(party, sees=_sentence(party.sees)) for party in found)


def flow(subject: Subject) -> tuple[tuple[str, str], ...]:
    """Return the way of the data: each place, and what goes on to the next one."""
    if subject.kind == "model":
        return (
            ("Ratings, weights, vectors (devices/)", "coded numbers with simulated noise"),
            ("Recommender's part (recommender/)", "item facts or factors"),
            ("Lists and predictions, made beside the ratings", ""),
        )
    sent = {
        "two-servers": "one report per person, in two encrypted shares",
        "sums": "masked numbers, one vector per device",
        "messages": "one message per device",
    }[subject.view]
    middle = {
        "two-servers": (("Leader and helper, two organisations", "sums with each server's noise"),),
        "sums": (("Secure sum among devices", "one sum; noise from every device"),),
        "messages": (),
    }[subject.view]
    return (
        ("Devices: ratings, weights, vectors", sent),
        *middle,
        ("Recommender: sums, model", "the public model, the same for everybody"),
        ("Devices: lists, made locally", ""),
    )


def retention(subject: Subject) -> tuple[Retained, ...]:
    """Return what is kept where, how long, and what deletes it."""
    if subject.kind == "model":
        return (
            Retained(
                what="Ratings, privacy weights, user vectors, seed",
                who="the owner of the model: devices/ (readable by its owner only)",
                how_long="until it is deleted; nothing deletes it by itself",
                deleted_by="deleting the folder devices/; predictions need it",
            ),
            Retained(
                what="Item facts or factors, settings, the claim",
                who="the owner of the model: recommender/",
                how_long="until it is deleted",
                deleted_by="deleting the folder; copies that were handed on stay",
            ),
        )
    kept = [
        Retained(
            what="Ratings, privacy wishes, user vector, ledger of what was sent",
            who="the person's device, in one file readable by its owner only",
            how_long="until its owner deletes it",
            deleted_by="hdpmf device forget; a rating by itself on the page or the command line",
        ),
        Retained(
            what={
                "two-servers": "Noised sums, settings, model, number of reports",
                "sums": "Noised sums, settings, model, names of the devices that took part",
                "messages": "Every device's message, settings, model, names of the devices",
            }[subject.view],
            who="the recommender, in its folder",
            how_long="until the operator deletes it; nothing deletes it by itself",
            deleted_by="the operator; what was released cannot be taken back from others",
        ),
        Retained(
            what="Roster: names and public keys of enrolled devices",
            who="the recommender",
            how_long="until the device is expelled or the folder is deleted",
            deleted_by="hdpmf recommender enroll --remove",
        ),
    ]
    if subject.view == "two-servers":
        kept.append(
            Retained(
                what="Encrypted shares of reports; then sums of shares",
                who="each of the two servers",
                how_long="shares until they are summed, sums until 30 days after the task's end "
                "(the servers' setting keep)",
                deleted_by="the servers themselves, with the keys; ids of reports stay, so that "
                "none counts twice",
            )
        )
    return tuple(kept)


def not_protected(subject: Subject) -> tuple[str, ...]:
    """Return what no number of the statement covers."""
    found = [subject.form.stays_open]
    if subject.amount("presence").at_delta is None and subject.claim.epsilon is not None:
        found.append("Which items somebody rated is in plain sight.")
    if subject.claim.items == "rated":
        found.append(
            "The items of this model are those that somebody rated: that somebody did is not "
            "covered by epsilon. A public list of items (--catalogue) closes this."
        )
    if subject.claim.noise == "simulated":
        found.append(
            "The noise is simulated: anyone with the seed, which is in devices/, can subtract it. "
            "This model is to evaluate with, not to publish; a federation releases one."
        )
    found += [
        "All ratings of a person together cost more than one rating: see the costs of whole "
        "people.",
        "That somebody takes part at all is visible to the recommender or to a server.",
        "A recommendation acts on what a person sees next; what they then do in public is not "
        "covered.",
        "A device, or a computer of the person, that somebody else controls.",
    ]
    if subject.kind == "model":
        found.pop(-2)
    return tuple(found)


def warnings(subject: Subject, people: PeopleCosts) -> tuple[str, ...]:
    """Return what should make a reader stop."""
    found: list[str] = []
    claim = subject.claim
    if claim.epsilon is None:
        found.append(f"Nothing is protected: {claim.reason}.")
    if claim.status == "nominal":
        found.append(
            f"Epsilon {claim.epsilon:g} is NOMINAL: it is the paper's number and no guarantee."
            + (f" What it really costs: {claim.honest}." if claim.honest else "")
        )
    if claim.status == "author's claim":
        found.append(
            f"Epsilon {claim.epsilon:g} is what the author of {subject.method.name} claims; hdpmf "
            "has not checked it."
        )
    value = subject.amount("value")
    if value.status == "proved" and (value.at_delta or 0.0) > LARGE_EPSILON:
        found.append(large_epsilon(value.epsilon))
    heavy = [row for row in people.rows if (row.value.at_delta or 0.0) > LARGE_EPSILON]
    if heavy:
        found.append(
            f"All ratings of one person together have an epsilon above {LARGE_EPSILON:g} from the "
            f"place '{heavy[0].place}' on: about a whole person the bound promises next to nothing "
            "there. A limit (max_ratings), smaller weights or a smaller epsilon bound it."
        )
    if 1 in (people.users, subject.minimum):
        found.append(ONE_USER)
    if claim.noise == "simulated":
        found.append("The noise is SIMULATED: this model is to evaluate with, not to publish.")
    if subject.tuned:
        found.append(
            f"Settings were chosen on private ratings. All numbers here count "
            f"{subject.trainings:,} trainings on the same ratings, as if an observer had seen each "
            "of them. The choice itself, by errors on private ratings, is covered by no epsilon: "
            "choose settings on public data where you can."
        )
    return tuple(found)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
