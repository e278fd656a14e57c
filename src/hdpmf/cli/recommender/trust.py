"""``hdpmf recommender servers``, ``certificates`` and ``invite``: keys."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from hdpmf.cli.options import (
    RecommenderFolder,
    SameHost,
    argument,
    command,
    option,
    read_bytes,
    read_text,
    warn_about_servers,
)
from hdpmf.cli.output import Result
from hdpmf.cli.recommender.service import UNNAMED
from hdpmf.errors import ConfigError


@command
def servers(
    folder: RecommenderFolder,
    pair: Annotated[
        Path | None,
        argument("The two servers (hdpmf aggregator pair writes it).", "[SERVERS.json]"),
    ] = None,
    new_servers: Annotated[bool, option("Take them although another pair is pinned.")] = False,
    same_host: SameHost = False,
) -> Result:
    """Pin the two servers that make sums, or show them. People compare their digest."""
    from hdpmf.common.protocol.servers import Servers
    from hdpmf.untrusted.service.folder import ServiceFolder
    from hdpmf.untrusted.service.keys import CARD, pin_servers, pinned_servers

    service = ServiceFolder(folder)
    if pair is not None:
        if new_servers and service.unfinished() is not None:
            raise ConfigError(
                "a run is under way with the servers that are pinned; let it end, or give it "
                "up, first"
            )
        given = Servers.from_json(read_bytes(pair))
        pin_servers(folder, service.config.name, given, replace=new_servers, same_host=same_host)
    elif new_servers or same_host:
        raise ConfigError("--new-servers and --same-host need the file that names the servers")
    pinned = pinned_servers(folder)
    if pinned is None:
        raise ConfigError(
            "no pair of servers is pinned yet; give the file that hdpmf aggregator pair wrote"
        )
    warn_about_servers(pinned)
    card = folder / CARD
    both = {"leader": pinned.leader, "helper": pinned.helper}
    fields = {
        **{
            role: {"organisation": server.organisation, "url": server.url}
            for role, server in both.items()
        },
        "digest": pinned.digest,
        "card": str(card),
    }
    text = [
        *(f"{role}: {server.organisation}, {server.url}" for role, server in both.items()),
        f"digest: {pinned.digest}",
        f"both operators admit this recommender by its card: hdpmf aggregator admit FOLDER {card}",
        "devices are to pin the same pair: compare the digest in a way that does not "
        "go through the recommender",
    ]
    return Result(fields, text)


@command
def invite(
    folder: RecommenderFolder,
    address: Annotated[
        str | None,
        option(
            "How devices reach it: https://HOST:PORT.",
            "ADDRESS",
            default="its first name, and port",
        ),
    ] = None,
    public: Annotated[
        bool,
        option(
            "Its certificate at that address is of a public authority.", None, "--public-authority"
        ),
    ] = False,
    out: Annotated[
        Path | None, option("Where it goes.", "FILE", default="FOLDER/invitation.json")
    ] = None,
) -> Result:
    """Write an invitation for people's devices: name, address, authority, servers. No secrets."""
    from hdpmf.common.base.files import atomic_write
    from hdpmf.common.base.names import claimed_name
    from hdpmf.common.protocol.identity import Invitation
    from hdpmf.common.protocol.servers import check_address
    from hdpmf.untrusted.service.folder import ServiceFolder
    from hdpmf.untrusted.service.keys import pinned_servers

    service = ServiceFolder(folder)
    pair = pinned_servers(folder)
    if pair is None:
        raise ConfigError(
            "no pair of servers is pinned yet: hdpmf recommender servers FOLDER servers.json"
        )
    url = check_address(address or service.config.address)
    authority = "" if public else read_text(service.tls_folder / "authority.pem")
    name = "" if service.config.name == UNNAMED else claimed_name(service.config.name)
    made = Invitation(address=url, servers=pair, authority=authority, name=name)
    file = out or folder / "invitation.json"
    atomic_write(file, made.to_json())
    text = [
        f"{file}: for people's devices (hdpmf device open, or device join STORE --invitation FILE)",
        f"link: {made.to_link()}",
    ]
    text += [
        f"digest of the pair: {pair.digest}; people compare it with {pair.names}, not through you",
        f"people give you their cards: hdpmf recommender enroll {folder} CARD.json",
    ]
    fields = {
        "file": str(file),
        "link": made.to_link(),
        "name": made.name or None,
        "address": url,
        "digest": made.digest,
        "servers": pair.digest,
    }
    return Result(fields, text)
