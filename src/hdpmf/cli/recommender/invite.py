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
        typer.Option("--address", metavar="URL", help="How devices reach it.", show_default="its first name, and port"),
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
    """Write an invitation for people's devices: address, authority and the two servers. There is no secret in it."""
    from hdpmf.files import atomic_write
    from hdpmf.protocol.invitation import Invitation
    from hdpmf.service.collector_keys import pinned_servers
    from hdpmf.service.folder import ServiceFolder
    from hdpmf.transport.web import check_folder_address

    service = ServiceFolder(folder)
    pair = pinned_servers(folder)
    if pair is None:
        raise ConfigError("no pair of servers is pinned yet: hdpmf recommender servers FOLDER servers.json")
    where = check_folder_address(address or f"https://{service.config.names[0]}:{service.config.port}")
    authority = "" if public else read_text(service.transport_folder / "tls" / "authority.pem")
    made, place = Invitation(address=where, servers=pair, authority=authority), out or folder / "invitation.json"
    atomic_write(place, made.to_json())
    if json:
        print_json({"file": str(place), "link": made.to_link(), "digest": made.digest, "servers": pair.digest})
        return
    print_lines(
        f"{place}: for people's devices (hdpmf device open, or device join STORE --invitation FILE)",
        f"link: {made.to_link()}",
        f"digest of the pair: {pair.digest}; people compare it with {pair.names}, not through you",
    )
