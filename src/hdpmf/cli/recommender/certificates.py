"""``hdpmf recommender certificates``: when they end, and a new one for the server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hdpmf.cli.shared.options import Json
from hdpmf.cli.shared.output import note, print_json, print_lines

_FOR = {
    "authority": "devices know the recommender by it",
    "server": "issued by the authority, shown to devices that connect",
}


def certificates(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The recommender's folder.")],
    renew: Annotated[bool, typer.Option("--renew", help="Issue the server's certificate anew.")] = False,
    json: Json = False,
) -> None:
    """Show what the recommender's certificates are for and when they end; renew the server's."""
    import time

    from hdpmf.service.alerts import ending_in
    from hdpmf.service.folder import ServiceFolder
    from hdpmf.service.watching import certificate_ends
    from hdpmf.transport.certificates import renew_server

    service, now = ServiceFolder(folder), time.time()
    tls, names = service.transport_folder / "tls", service.config.names
    if renew:
        renew_server(tls, names)
        note("The server has a new certificate; restart serve, which shows devices the old one until then.")
    ends = {each.name: each.ends for each in certificate_ends(service)}
    if json:
        rows = [
            {
                "name": name,
                "file": str(tls / f"{name}.pem"),
                "ends": ending,
                "seconds_left": None if ending is None else ending - now,
            }
            for name, ending in ends.items()
        ]
        print_json({"certificates": rows, "names": list(names), "renewed": renew})
        return
    for name, ending in ends.items():
        when = "cannot be read" if ending is None else ending_in(ending, now)
        print_lines(f"{name}: {when}; {_FOR[name]} ({tls / f'{name}.pem'})")
    print_lines(f"serve is reached as: {', '.join(names)}")
