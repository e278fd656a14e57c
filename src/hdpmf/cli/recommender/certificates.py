"""``hdpmf recommender certificates``: when they end, and new ones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hdpmf.cli.shared.options import Json
from hdpmf.cli.shared.output import note, print_json, print_lines
from hdpmf.errors import ConfigError

_FOR = {
    "authority": "devices know the recommender by it",
    "successor": "announced to devices, which trust it as well; certificates come from it after --change-over",
    "server": "issued by the authority, shown to devices that connect",
}


def certificates(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The recommender's folder.")],
    renew: Annotated[bool, typer.Option("--renew", help="Issue the server's certificate anew.")] = False,
    new_authority: Annotated[
        bool,
        typer.Option("--new-authority", help="Make a new authority, signed by the old one: devices learn it."),
    ] = False,
    change_over: Annotated[
        bool,
        typer.Option("--change-over", help="Put the new authority in the old one's place, when devices know it."),
    ] = False,
    json: Json = False,
) -> None:
    """Show what the recommender's certificates are for and when they end; renew the server's, or the authority."""
    import time

    from hdpmf.service.alerts import ending_in
    from hdpmf.service.folder import ServiceFolder
    from hdpmf.service.watching import certificate_ends
    from hdpmf.transport import succession
    from hdpmf.transport.certificates import renew_server

    if renew + new_authority + change_over > 1:
        raise ConfigError("--renew, --new-authority and --change-over are three steps; take one at a time")
    service = ServiceFolder(folder)
    tls, names = service.transport_folder / "tls", service.config.names
    if renew:
        renew_server(tls, names)
        note("The server has a new certificate; restart serve, which shows devices the old one until then.")
    if new_authority:
        succession.announce(tls)
        note("The new authority is announced when serve is restarted. Leave devices time to call: then --change-over.")
    if change_over:
        succession.change_over(tls, list(names))
        note(
            "Restart serve: its certificate comes from the new authority, and the old one's key is gone. A device that "
            "has not called since --new-authority needs its owner: hdpmf device join STORE --ca FILE --new-authority"
        )
    ends, now = {each.name: each.ends for each in certificate_ends(service)}, time.time()
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
        print_json(
            {
                "certificates": rows,
                "names": list(names),
                "renewed": renew,
                "announced": new_authority,
                "changed_over": change_over,
            }
        )
        return
    for name, ending in ends.items():
        when = "cannot be read" if ending is None else ending_in(ending, now)
        print_lines(f"{name}: {when}; {_FOR[name]} ({tls / f'{name}.pem'})")
    print_lines(f"serve is reached as: {', '.join(names)}")
