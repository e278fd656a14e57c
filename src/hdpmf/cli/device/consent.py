"""``hdpmf device consent``: what runs ask for, and the owner's answer."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hdpmf.cli.device.store import StoreOptions
from hdpmf.cli.shared.grouping import grouped
from hdpmf.cli.shared.options import Json
from hdpmf.cli.shared.output import print_json, print_lines, print_paragraph
from hdpmf.errors import ConfigError

if TYPE_CHECKING:
    from hdpmf.device.consent import Asked
    from hdpmf.device.store import DeviceStore


@grouped
def consent(
    target: StoreOptions,
    number: Annotated[int | None, typer.Argument(metavar="[N]", min=1, help="Which question, as listed.")] = None,
    answer: Annotated[str | None, typer.Argument(metavar="[ANSWER]", help="once, always, never, or again.")] = None,
    json: Json = False,
) -> None:
    """Show what runs ask for and what would be sent, or answer: once, always under these terms, never; ask me again."""
    from hdpmf.device.consent import consents, give_answer, pending, take_back

    if (number is None) != (answer is None):
        raise ConfigError("give both, the number of a question and an answer, or neither")
    if answer is not None and answer not in ("once", "always", "never", "again"):
        raise ConfigError("answer once, always, never or again")
    with target.open() as store:
        given = {known.asked.key: known.answer for known in consents(store)}
        asked = [*pending(store, time.time()), *(known.asked for known in consents(store))]
        if number is not None and answer is not None:
            if number > len(asked):
                raise ConfigError(f"there is no question {number}; there are {len(asked)}")
            key = asked[number - 1].key
            if answer == "again":
                take_back(store, key)
            else:
                give_answer(store, key, answer)  # type: ignore[arg-type]  # looked at above
            if json:
                print_json({"question": key, "answer": None if answer == "again" else answer})
            else:
                print_lines(f"Question {number}: {answer}.")
            return
        found = [_fields(store, each, given.get(each.key)) for each in asked]
    if json:
        print_json({"questions": found})
        return
    if not found:
        print_lines("Nobody asks for anything. Questions come where the policy has ask = true.")
    for place, fields in enumerate(found, start=1):
        print_lines(f"{place}. {fields['recommender']}: {fields['method']} with epsilon {fields['epsilon']:g}")
        print_paragraph(
            f"{fields['ratings']} of your ratings would take part and spend epsilon {fields['pays']:.3g} together. "
            f"{fields['leaves_the_device']} {fields['reveals']} What was sent cannot be taken back.",
            indent="  ",
        )
        print_lines(f"  Your answer: {fields['answer'] or 'none yet'}")


def _fields(store: DeviceStore, asked: Asked, answer: str | None) -> dict[str, Any]:
    from hdpmf.device.history import reveals
    from hdpmf.device.preview import preview_of
    from hdpmf.device.shelves import id_of

    found = preview_of(store, asked)
    return {
        "recommender": asked.recommender,
        "servers": asked.names,
        "digest": asked.servers,
        "method": asked.terms.method,
        "view": asked.terms.view,
        "epsilon": asked.terms.epsilon,
        "minimum": asked.terms.minimum,
        "asked": asked.at,
        "answer": answer,
        "ratings": len(found.numbers),
        "left_out": found.left_out,
        "pays": found.pays,
        "leaves_the_device": found.sends,
        "reveals": reveals(found.cost),
        "refused": found.refused or None,
        "numbers": [
            {"item": id_of(number.item), "plain": number.plain, "noised_example": number.noised}
            for number in found.numbers
        ],
    }
