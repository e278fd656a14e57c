"""Answers to the questions of a data-protection impact assessment (GDPR, Article 35).

What the system can answer is computed; what only the controller can is said to be open.
"""

from __future__ import annotations

from hdpmf.common.methods.registry import at_most
from hdpmf.common.privacy.statement.document import PeopleCosts, Question, Subject

_DESCRIPTION = "35(7)(a) description"
_NECESSITY = "35(7)(b) necessity and proportionality"
_RISKS = "35(7)(c) risks"
_MEASURES = "35(7)(d) measures"


def answer(subject: Subject, people: PeopleCosts) -> tuple[Question, ...]:
    """Return all questions with their answers."""
    return (
        *_description(subject),
        *_necessity(subject),
        *_risks(subject, people),
        *_measures(subject),
    )


def _you(part: str, question: str, hint: str) -> Question:
    return Question(part=part, question=question, answer=hint, by_controller=True)


def _system(part: str, question: str, *sentences: str) -> Question:
    return Question(part=part, question=question, answer=" ".join(filter(None, sentences)))


def _description(subject: Subject) -> tuple[Question, ...]:
    model = subject.kind == "model"
    people = "" if subject.users is None else f"{subject.users:,} people took part."
    return (
        _system(
            _DESCRIPTION,
            "What is processed, and how?",
            f"Ratings of items by people, by {subject.method.label} "
            f"({subject.method.summary}). {subject.form.sent}",
        ),
        _system(
            _DESCRIPTION,
            "Which personal data, and whose?",
            "Who rated which item, how, and if known when; a privacy weight for each rating.",
            people,
            "No names, addresses or accounts are needed: people are known by the ids in the data"
            if model
            else "No names, addresses or accounts are needed: devices are known by names and keys",
            "that the controller chose.",
        ),
        _system(
            _DESCRIPTION,
            "Who receives the data?",
            "See 'Who sees what'. "
            + (
                "This training ran in one process, which holds all ratings."
                if model
                else "Ratings themselves are received by nobody: they stay on devices."
            ),
        ),
        _system(
            _DESCRIPTION,
            "How long are the data kept?",
            "See 'Retention', which names what deletes each of them.",
        ),
        _you(_DESCRIPTION, "What is the purpose?", "Recommendations; say of what, and to whom."),
    )


def _necessity(subject: Subject) -> tuple[Question, ...]:
    model = subject.kind == "model"
    return (
        _system(
            _NECESSITY,
            "Would less data do?",
            "Each person's own mean needs nothing to be sent. How much better this is, and what "
            "other designs reach at the same cost per person, is measured on your data by: hdpmf "
            "privacy compare.",
        ),
        _system(
            _NECESSITY,
            "How do people control it?",
            "Each person has a privacy weight, and each item one, so that a rating may cost less "
            "or, marked as sensitive, next to nothing."
            + (
                ""
                if model
                else " A device answers only what its owner's policy allows, shows what would "
                "leave before it does, and keeps a ledger of what did."
            ),
        ),
        _system(
            _NECESSITY,
            "How are the rights of people met (Art. 15 to 21)?",
            "Access and portability: the ratings are in devices/, by user id. Erasure: remove the "
            "person from the data and train again."
            if model
            else "Access and portability: hdpmf device everything exports all of it. "
            "Rectification: ratings are changed on the device. Erasure: hdpmf device forget. "
            "Objection: leave the recommender on the device; it is never asked again.",
            "What was released before stays released: a noised sum cannot be taken apart again, "
            "and the bound on what it tells about a person holds for ever.",
        ),
        _system(
            _NECESSITY,
            "Are there decisions without a human (Art. 22)?",
            "Lists of items are ordered automatically, beside the ratings they are made from"
            + ("." if model else ", on each person's own device."),
        ),
        _you(_NECESSITY, "What is the lawful basis (Art. 6, 9)?", "Consent, contract, ..."),
        _you(
            _NECESSITY,
            "Are data transferred to third countries (Art. 44)?",
            "Say where the recommender and the servers run.",
        ),
    )


def _risks(subject: Subject, people: PeopleCosts) -> tuple[Question, ...]:
    value, presence = subject.amount("value"), subject.amount("presence")
    proved = value.status == "proved" and value.at_delta is not None
    one = (
        f"Who sees all that the recommender sees, and knows everything but one rating of weight 1, "
        f"guesses whether that was the lowest or the highest: right at most "
        f"{at_most(value.guess)} of the time (a coin: 50 %)."
        if proved
        else "Nothing bounds it: count on the recommender to learn ratings."
        if value.at_delta is None
        else f"No guarantee of hdpmf bounds it: the epsilon is {value.status}."
    )
    there = (
        "Which items somebody rated is not hidden."
        if presence.at_delta is None
        else f"Whether an item was rated at all: right at most {at_most(presence.guess)}."
        if proved
        else ""
    )
    rows = {row.place: row for row in people.rows}
    whole = (
        f"About all ratings of one person together: epsilon {rows['median'].value.epsilon} for the "
        f"median person, {rows['most'].value.epsilon} for the one with most."
        if "median" in rows
        else people.note
        if people.bound is None
        else f"At most epsilon {people.bound.value.epsilon} about all ratings of a person "
        f"together, in the worst case. {people.note}"
    )
    return (
        _system(_RISKS, "What could be learned about one rating?", one, there),
        _system(_RISKS, "What could be learned about a person?", whole),
        _system(
            _RISKS,
            "What does the protection rest on?",
            f"{subject.stated.needs[:1].upper()}{subject.stated.needs[1:]}."
            if subject.stated.needs
            else "On the noise alone, which needs nobody's honesty."
            if proved
            else "On nothing that is proved.",
            "Where that fails, see the parties without a bound under 'Who sees what'.",
        ),
        _system(
            _RISKS,
            "Can ratings reveal special categories of data (Art. 9)?",
            "Ratings of books, films or places can tell of health, belief or orientation. Mark "
            "such items as sensitive: they then have a smaller weight, or are left out.",
        ),
        _you(
            _RISKS,
            "Who could be harmed, how badly, how likely?",
            "The numbers above bound what is learned, not what somebody does with it.",
        ),
    )


def _measures(subject: Subject) -> tuple[Question, ...]:
    model = subject.kind == "model"
    technical = (
        "The private part of the model is in a folder of its own, readable by its owner only; the "
        "public part holds no ratings, weights or vectors."
        if model
        else "Noise that is exact and drawn from the operating system's entropy; sums of which "
        "nobody holds the parts; signed requests and TLS; stores that can be encrypted; devices "
        "that pin catalogue, roster and servers and check every message; a ledger that is charged "
        "before anything leaves."
    )
    return (
        _system(_MEASURES, "Which technical measures are there?", technical),
        _system(
            _MEASURES,
            "How is it known that they work?",
            "The proof is named with the claim. The audit attacks the running code; tests plant "
            "faults and see that they are caught.",
        ),
        _system(
            _MEASURES, "What risk is left?", "See 'Not protected', and the warnings at the top."
        ),
        _you(
            _MEASURES,
            "Which organisational measures are there?",
            "Who may read folders and backups, who answers people, how breaches are reported.",
        ),
        _you(
            "35(2), 35(9), 36",
            "What say the data-protection officer and the people concerned?",
            "Their advice and views; prior consultation where the risk stays high.",
        ),
        _you(
            "35(11)",
            "When is this reviewed?",
            "When the method, epsilon, the servers or the kind of items change: make it again.",
        ),
    )
