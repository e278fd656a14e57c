"""The methods as a page of the docs, so that it cannot say anything else than the code."""

from __future__ import annotations

from collections.abc import Iterable

from hdpmf.methods.method import VIEWS, Method, View
from hdpmf.methods.words import WHERE

HEAD = """# The methods

This page is written by `hdpmf methods --markdown`; a test compares it with the code. What the words *proved* and
*nominal* mean, and what the numbers are: [what is private, from whom](privacy.md).
"""


def markdown(methods: Iterable[Method]) -> str:
    """The whole page."""
    listed = tuple(methods)
    lines = [
        HEAD,
        "| method | what it is | messages seen | sums seen | two servers | rounds | between machines |",
        "|---|---|---|---|---|---|---|",
    ]
    for method in listed:
        epochs = "as many as epochs" if "epochs" in method.options else "-"
        rounds = epochs if method.plain.rounds is None else str(method.plain.rounds)
        if method.labelled is not None:
            rounds += f" ({method.labelled.rounds} with labels)"
        claims = " | ".join(_worth(method, view) for view in VIEWS)
        between = ", ".join(method.views) or "no"
        lines.append(f"| [`{method.name}`](#{method.name}) | {method.summary} | {claims} | {rounds} | {between} |")
    return "\n".join(lines) + "\n" + "".join(map(_section, listed))


def _section(method: Method) -> str:
    lines = [f"\n## {method.name}\n", f"{method.label}: {method.summary}.\n"]
    lines += [f"*What leaves the device.* {method.plain.sent}\n", f"*What stays open.* {method.plain.stays_open}\n"]
    if method.labelled is not None:
        lines += [f"*With taste labels.* {method.labelled.sent} {method.labelled.stays_open}\n"]
    lines += [
        f"*{WHERE[view].capitalize()}*, the recommender sees {method.claim(view).sees}.\n" for view in method.views
    ]
    flags = [known for known in method.options.values() if known.flags]
    if flags:
        lines += ["| option | in Python | default | |", "|---|---|---|---|"]
        lines += [
            f"| `{known.flag}` | `{known.name}` | {_shown(method, known.name)} | {known.help} |" for known in flags
        ]
        lines.append("")
    return "\n".join(lines)


def _shown(method: Method, name: str) -> str:
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
    if claim.delta:
        presence += f" at delta {claim.delta:g}"
    return f"proved: value {claim.value:g}, presence {presence}"
