"""``hdpmf federate``: a whole federation on this machine."""

from __future__ import annotations

import typer

from hdpmf.cli.federate.demo import demo
from hdpmf.cli.federate.simulate import simulate

app = typer.Typer(help="A whole federation on this machine: simulated devices, or real processes.")
app.command()(demo)
app.command()(simulate)
