"""``hdpmf recommender invite``: what people need to join, as one file and one link."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hdpmf.cli.shared.files import read_text
from hdpmf.cli.shared.options import Json
from hdpmf.cli.shared.output import print_json, print_lines
from hdpmf.errors import ConfigError


def invite(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The recommender's folder.")],
    address: Annotated[
        str | None,
        typer.Option(
            "--address",
            metavar="ADDRESS",
            help="How devices reach it: https://HOST:PORT for sums by two servers, HOST:PORT for sums by masks.",
            show_default="its first name, and port; by two servers if a pair is pinned",
        ),
    ] = None,
    public: Annotated[
        bool, typer.Option("--public-authority", help="Its certificate at that address is of a public authority.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Where it goes.", show_default="FOLDER/invitation.json"),
    ] = None,
    json: Json = False,
) -> None:
    """Write an invitation for people's devices: address, authority and, if there are, the two servers. No secrets.

    Without two servers devices sum among themselves, by masks: people also need the roster, once they are on it.
    """
    from hdpmf.files import atomic_write
    from hdpmf.protocol.addresses import check_address, check_folder_address
    from hdpmf.protocol.invitation import Invitation
    from hdpmf.service.collector_keys import pinned_servers
    from hdpmf.service.folder import ServiceFolder

    service = ServiceFolder(folder)
    pair = pinned_servers(folder)
    usual = f"{service.config.names[0]}:{service.config.port}"
    where = address or (usual if pair is None else f"https://{usual}")
    if where.lower().startswith("https://"):
        where = check_folder_address(where)
        if pair is None:
            raise ConfigError("no pair of servers is pinned yet: hdpmf recommender servers FOLDER servers.json")
    else:
        where, pair = check_address(where), None
        if public:
            raise ConfigError("by masks devices pin the recommender's own authority; leave --public-authority out")
    authority = "" if public else read_text(service.transport_folder / "tls" / "authority.pem")
    made, place = Invitation(address=where, servers=pair, authority=authority), out or folder / "invitation.json"
    atomic_write(place, made.to_json())
    if json:
        print_json(
            {
                "file": str(place),
                "link": made.to_link(),
                "address": where,
                "sums": "masks" if pair is None else "two servers",
                "digest": made.digest,
                "servers": None if pair is None else pair.digest,
            }
        )
        return
    print_lines(
        f"{place}: for people's devices (hdpmf device open, or device join STORE --invitation FILE)",
        f"link: {made.to_link()}",
    )
    if pair is not None:
        print_lines(f"digest of the pair: {pair.digest}; people compare it with {pair.names}, not through you")
        return
    print_lines(
        f"digest of the invitation: {made.digest}; tell it people in another way than the invitation",
        f"people give you their cards (hdpmf recommender enroll {folder} CARD.json), and need {folder / 'roster.json'}",
    )
