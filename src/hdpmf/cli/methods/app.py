"""``hdpmf methods``: which methods there are, what their epsilon is worth, and what can be chosen."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from hdpmf.cli.shared.options import Json, completing
from hdpmf.cli.shared.output import print_json, print_lines, print_table
from hdpmf.methods import METHODS, Method, method_named


def methods(
    method: Annotated[
        str | None,
        typer.Argument(metavar="METHOD", help="Only this one.", autocompletion=completing(METHODS)),
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="As the page of the docs.")] = False,
    json: Json = False,
) -> None:
    """List the methods with what their epsilon is worth, or say everything about METHOD."""
    chosen = tuple(METHODS.values()) if method is None else (method_named(method),)
    if json:
        print_json({"methods": [_fields(known) for known in chosen]})
    elif markdown:
        from hdpmf.methods.table import markdown as page

        print_lines(*page(chosen).splitlines())
    elif method is None:
        rows = [(known.name, known.claim().status, known.claim().against, known.summary) for known in chosen]
        print_table(("method", "epsilon is", "against who sees", "what it is"), rows)
    else:
        _print_method(chosen[0])


def _print_method(method: Method) -> None:
    claim = method.claim()
    print_lines(f"{method.label}: {method.summary}", "", method.plain.sent, method.plain.stays_open, "")
    print_lines(f"epsilon: {claim.status.upper()}, against an observer of: {claim.against}; {claim.reason}", "")
    rows = [(known.flag, _default(method, known.name), known.help) for known in method.options.values() if known.flags]
    if rows:
        print_table(("option", "default", ""), rows)
    else:
        print_lines("It has no options.")


def _default(method: Method, name: str) -> str:
    value = method.default(name)
    return "" if value is None else str(value)


def _fields(method: Method) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "name": method.name,
        "label": method.label,
        "summary": method.summary,
        "family": method.family,
        "views": list(method.views),
        "claims": {view: asdict(claim) for view, claim in method.plain.claims.items()},
        "claims_with_labels": None
        if method.labelled is None
        else {view: asdict(claim) for view, claim in method.labelled.claims.items()},
        "options": {
            name: {"flags": list(known.flags), "default": method.default(name), "help": known.help}
            for name, known in method.options.items()
        },
        "fixed": dict(method.fixed),
    }
