"""``hdpmf privacy``: what is private, from whom."""

from __future__ import annotations

import typer

from hdpmf.cli.privacy.explain import explain
from hdpmf.cli.privacy.release import release

app = typer.Typer(help="What is private, from whom, and what it costs.", no_args_is_help=True)


app.command()(explain)
app.command()(release)
