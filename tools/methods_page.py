"""Write docs/methods.md, the page of all methods, from the code: python tools/methods_page.py."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from hdpmf.common.methods import METHODS, Method
from hdpmf.common.methods.method import VIEWS, View

WHERE = {
    "messages": "where messages are seen",
    "sums": "where only sums are seen",
    "two-servers": "where two servers sum",
}
"""The views of methods, to go with what is said of a run."""

PAGE = Path(__file__).resolve().parent.parent / "docs" / "methods.md"

HEAD = """# The methods

This page is written by `python tools/methods_page.py`; a test compares it with the code. What the words *proved* and
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
        rounds = epochs if method.form.rounds is None else str(method.form.rounds)
        claims = " | ".join(_worth(method, view) for view in VIEWS)
        between = ", ".join(method.views) or "no"
        lines.append(
            f"| [`{method.name}`](#{method.name}) | {method.summary} | {claims} | {rounds} "
            f"| {between} |"
        )
    lines += _sections(listed)
    lines += [
        "\n## Options\n",
        "A method has the options in whose row it stands. A default of its own stands behind it.\n",
        "| option | in Python | default | methods | |",
        "|---|---|---|---|---|",
    ]
    lines += _option_rows(listed)
    return "\n".join(lines) + "\n"


def _sections(listed: Iterable[Method]) -> list[str]:
    lines = []
    said: dict[tuple[str, str], str] = {}  # a heading, its words, and who has them first
    for method in listed:
        lines.append(f"\n## {method.name}\n\n{method.label}: {method.summary}.")
        parts = {
            "What the device sends": method.form.sent,
            "What is not protected": method.form.stays_open,
        }
        parts |= {
            f"{WHERE[view].capitalize()}, the recommender sees": f"{method.claim(view).sees}."
            for view in method.views
        }
        firsts = {part: said.setdefault(part, method.name) for part in parts.items()}
        if len(set(firsts.values())) == 1 and method.name not in firsts.values():
            lines.append(f"\nSends, hides and shows the same as `{next(iter(firsts.values()))}`.")
            continue
        for (heading, words), first in firsts.items():
            shown = words if first == method.name else f"as with `{first}`."
            lines.append(f"\n*{heading}:* {shown}")
    return lines


def _option_rows(listed: Sequence[Method]) -> list[str]:
    options = {known.name: known for method in listed for known in method.options.values()}
    rows = []
    for known in options.values():
        having = [method for method in listed if known.name in method.options]
        defaults = [_default_text(method, known.name) for method in having]
        usual = max(defaults, key=defaults.count)
        names = ", ".join(
            f"`{method.name}`" + ("" if default == usual else f" ({default})")
            for method, default in zip(having, defaults, strict=True)
        )
        rows.append(f"| `{known.flag}` | `{known.name}` | {usual} | {names} | {known.words} |")
    return rows


def _default_text(method: Method, name: str) -> str:
    if name == "learning_rate" and len(set(method.rates.values())) > 1:
        return ", ".join(f"{rate:g} ({solver})" for solver, rate in method.rates.items())
    value = method.default(name)
    return "" if value is None else str(value)


def _worth(method: Method, view: View) -> str:
    if view not in method.offered:
        return "not offered"
    claim = method.claim(view)
    if claim.status == "none" or claim.value is None:
        return "nothing hidden" if claim.status == "none" else claim.status
    presence = "in plain sight" if claim.presence is None else f"{claim.presence:g}"
    return f"{claim.status}: value {claim.value:g}, presence {presence}"


if __name__ == "__main__":
    PAGE.write_text(markdown(METHODS.values()))
