"""``hdpmf privacy``: what is private, from whom."""

from __future__ import annotations

import typer

from hdpmf.cli.privacy.explain import explain

app = typer.Typer(help="What is private, from whom, and what it costs.", no_args_is_help=True)


@app.callback()
def _common() -> None:
    """Keep ``explain`` a command of its own; others will follow."""


app.command()(explain)
