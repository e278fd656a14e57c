"""``hdpmf aggregator serve``: run one of the two servers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hdpmf.cli.shared.options import Json, run_option
from hdpmf.cli.shared.output import print_json, print_lines


def serve(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The server's folder.")],
    workers: Annotated[
        int, run_option("--workers", metavar="N", min=1, help="Processes; more than one need PostgreSQL.")
    ] = 1,
    json: Json = False,
) -> None:
    """Run the server until it is told to stop (SIGTERM, or Ctrl-C). Its log goes to stderr, a line of JSON each."""
    from hdpmf.aggregator.folder import AggregatorFolder
    from hdpmf.aggregator.supervising import serve as run

    place = AggregatorFolder(folder)
    config = place.config

    def ready() -> None:
        listening = f"{config.host}:{config.port}"
        if json:
            print_json({"role": config.role, "url": config.url, "listening": listening, "workers": workers})
        else:
            print_lines(f"the {config.role} of {config.organisation} listens on {listening}, for {config.url}")

    run(place, workers, ready)
