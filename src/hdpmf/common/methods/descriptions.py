"""Methods and their privacy described for people, and the page docs/methods.md."""

from __future__ import annotations

import math
from collections.abc import Iterable

from hdpmf.common.methods.method import VIEWS, Method, Status, View

OBSERVERS = {
    "messages": "Sees every message of every device (no secure sums)",
    "sums": "Sees only sums over users",
    "sums-h-known": "Sees only sums over users, but made half of the noise (h): the recommender",
    "sums-h-hidden": "Sees only sums over users, and none of the noise: somebody else",
    "two-servers": "Is the recommender together with one of the two servers that sum",
    "final": "Gets only the finished model",
}
"""Who looks, by the accountant's views."""

WHERE = {
    "messages": "where messages are seen",
    "sums": "where only sums are seen",
    "two-servers": "where two servers sum",
}
"""The views of methods, to go with what is said of a run."""

MEANING = {
    "proved": "PROVED: holds against everything that this observer sees, whatever else it knows.",
    "nominal": "NOMINAL: counts the rating's own messages only, in a typical run. No "
    "guarantee: the true cost may be "
    "higher.",
    "no guarantee": "NO GUARANTEE: nothing keeps this observer from being certain.",
}
"""What the accountant's verdicts mean."""

PROMISE: dict[Status, str] = {
    "proved": "Each rating pays its weight times epsilon, and that is a guarantee.",
    "nominal": "Each rating pays its weight times epsilon, which is nominal: no guarantee.",
    "none": "NOTHING IS HIDDEN: ratings can be computed from what is sent.",
}
"""What a device's owner is told about a run."""


def observer(view: str, has_h: bool) -> str:
    """The name of a view for people: where there is no h, knowing it makes no difference."""
    return view if has_h else view.removesuffix("-h-known").removesuffix("-h-hidden")


def guess_at(epsilon: float) -> float:
    """Return how often a guess between two equally likely values is right, at most."""
    return 1.0 / (1.0 + math.exp(-epsilon)) if epsilon < 700 else 1.0


SURE = 0.9995
"""From here on a guess is as good as certain."""


def percent(part: float, *, at_most: bool = False) -> str:
    """A probability for people, or what it is at most; certainty is only said where it is."""
    if part >= SURE:
        return "100 %" if at_most else "> 99.9 %"
    return f"{100 * part:.0f} %" if part < 0.95 else f"{100 * part:.1f} %"


HEAD = """# The methods

This page is written by `hdpmf methods --markdown`; a test compares it with the code. What the words *proved* and
*nominal* mean, and what the numbers are: [what is private, from whom](privacy.md).
"""  # noqa: E501


def markdown(methods: Iterable[Method]) -> str:
    """The whole page."""
    listed = tuple(methods)
    lines = [
        HEAD,
        "| method | what it is | messages seen | sums seen | two servers | rounds | "
        "between machines |",
        "|---|---|---|---|---|---|---|",
    ]
    for method in listed:
        epochs = "as many as epochs" if "epochs" in method.options else "-"
        rounds = epochs if method.plain.rounds is None else str(method.plain.rounds)
        if method.labelled is not None:
            rounds += f" ({method.labelled.rounds} with labels)"
        claims = " | ".join(_worth(method, view) for view in VIEWS)
        between = ", ".join(method.views) or "no"
        lines.append(
            f"| [`{method.name}`](#{method.name}) | {method.summary} | {claims} | {rounds} "
            f"| {between} |"
        )
    return "\n".join(lines) + "\n" + "".join(map(_section, listed))


def _section(method: Method) -> str:
    lines = [f"\n## {method.name}\n", f"{method.label}: {method.summary}.\n"]
    lines += [
        f"*What leaves the device.* {method.plain.sent}\n",
        f"*What stays open.* {method.plain.stays_open}\n",
    ]
    if method.labelled is not None:
        lines += [f"*With taste labels.* {method.labelled.sent} {method.labelled.stays_open}\n"]
    lines += [
        f"*{WHERE[view].capitalize()}*, the recommender sees {method.claim(view).sees}.\n"
        for view in method.views
    ]
    flags = [known for known in method.options.values() if known.flags]
    if flags:
        lines += ["| option | in Python | default | |", "|---|---|---|---|"]
        lines += [
            f"| `{known.flag}` | `{known.name}` | {_default_text(method, known.name)} | "
            f"{known.help} |"
            for known in flags
        ]
        lines.append("")
    return "\n".join(lines)


def _default_text(method: Method, name: str) -> str:
    if name == "learning_rate" and len(set(method.rates.values())) > 1:
        return ", ".join(f"{rate:g} ({solver})" for solver, rate in method.rates.items())
    value = method.default(name)
    return "" if value is None else str(value)


def _worth(method: Method, view: View) -> str:
    if view not in method.offered:
        return "not offered"
    claim = method.claim(view)
    if claim.status != "proved":
        return "nothing hidden" if claim.status == "none" else "nominal"
    presence = "in plain sight" if claim.presence is None else f"{claim.presence:g}"
    return f"proved: value {claim.value:g}, presence {presence}"
