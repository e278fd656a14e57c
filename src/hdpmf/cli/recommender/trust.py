"""``hdpmf recommender servers``, ``certificates`` and ``invite``: what devices trust the
recommender by.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hdpmf.cli.options.common import Json, read_bytes, read_text
from hdpmf.cli.output import note, print_json, print_lines
from hdpmf.errors import ConfigError

if TYPE_CHECKING:
    from hdpmf.common.net.two_servers import TwoServers
    from hdpmf.untrusted.service.folder import ServiceFolder


def servers(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The recommender's folder.")],
    pair: Annotated[
        Path | None,
        typer.Argument(
            metavar="[SERVERS.json]", help="The two servers (hdpmf aggregator pair writes it)."
        ),
    ] = None,
    new_servers: Annotated[
        bool, typer.Option("--new-servers", help="Take them although another pair is pinned.")
    ] = False,
    json: Json = False,
) -> None:
    """Pin the two servers that make sums; without a file, show them. People compare their
    digest.
    """
    from hdpmf.common.protocol.servers import Servers
    from hdpmf.untrusted.service.collector_keys import CARD, pin_servers, pinned_servers
    from hdpmf.untrusted.service.folder import ServiceFolder

    service = ServiceFolder(folder)
    if pair is not None:
        if new_servers and service.unfinished() is not None:
            raise ConfigError(
                "a run is under way with the servers that are pinned; let it end, or give it "
                "up, first"
            )
        given = Servers.from_json(read_bytes(pair))
        pin_servers(folder, service.config.name, given, replace=new_servers)
    elif new_servers:
        raise ConfigError("--new-servers needs the file that names them")
    pinned = pinned_servers(folder)
    if pinned is None:
        raise ConfigError(
            "no pair of servers is pinned yet; give the file that hdpmf aggregator pair wrote"
        )
    card = folder / CARD
    if json:
        both = {
            role: {"organisation": server.organisation, "url": server.url}
            for role, server in (("leader", pinned.leader), ("helper", pinned.helper))
        }
        print_json({**both, "digest": pinned.digest, "card": str(card)})
        return
    print_lines(
        f"leader: {pinned.leader.organisation}, {pinned.leader.url}",
        f"helper: {pinned.helper.organisation}, {pinned.helper.url}",
        f"digest: {pinned.digest}",
        f"both operators admit this recommender by its card: hdpmf aggregator admit FOLDER {card}",
        "devices are to pin the same pair: compare the digest in a way that does not "
        "go through the recommender",
    )


@contextmanager
def public_files(place: ServiceFolder) -> Iterator[None]:
    """Serve the public files while inside."""
    from hdpmf.untrusted.service.website import served

    with served(place) as address:
        note(f"public files for devices: {address}/index.json")
        yield


@contextmanager
def two_servers(place: ServiceFolder) -> Iterator[TwoServers]:
    """The way to the two servers that are pinned."""
    from hdpmf.common.net.two_servers import TwoServers
    from hdpmf.untrusted.service.collector_keys import load_keys, pinned_servers

    pinned = pinned_servers(place.path)
    if pinned is None:
        raise ConfigError(
            "no pair of servers is pinned yet: hdpmf recommender servers FOLDER "
            "servers.json; or sum by masks: "
            "--sums masks"
        )
    with TwoServers(pinned, load_keys(place.path, place.config.name).party) as door:
        yield door


def task_lines(run: dict[str, Any]) -> list[str]:
    """The tasks of a run, a line each."""
    return [
        f"task {task['id'][:12]} of run {run['run'][:12]}: {_date(task['begin'])} to "
        f"{_date(task['end'])}, "
        f"{task['state']}"
        for task in run["tasks"]
    ]


def _date(when: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(when))


_FOR = {
    "authority": "devices know the recommender by it",
    "successor": "announced to devices, which trust it as well; certificates come from it after "
    "--change-over",
    "server": "issued by the authority, shown to devices that connect",
}


def certificates(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The recommender's folder.")],
    renew: Annotated[
        bool, typer.Option("--renew", help="Issue the server's certificate anew.")
    ] = False,
    new_authority: Annotated[
        bool,
        typer.Option(
            "--new-authority", help="Make a new authority, signed by the old one: devices learn it."
        ),
    ] = False,
    change_over: Annotated[
        bool,
        typer.Option(
            "--change-over",
            help="Put the new authority in the old one's place, when devices know it.",
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Show what the recommender's certificates are for and when they end; renew the server's, or
    the authority.
    """
    import time

    from hdpmf.common.net import succession
    from hdpmf.common.net.certificates import renew_server
    from hdpmf.untrusted.service.alerts import ending_in
    from hdpmf.untrusted.service.folder import ServiceFolder
    from hdpmf.untrusted.service.watching import certificate_ends

    if renew + new_authority + change_over > 1:
        raise ConfigError(
            "--renew, --new-authority and --change-over are three steps; take one at a time"
        )
    service = ServiceFolder(folder)
    tls, names = service.transport_folder / "tls", service.config.names
    if renew:
        renew_server(tls, names)
        note(
            "The server has a new certificate; restart serve, which shows devices the old "
            "one until then."
        )
    if new_authority:
        succession.announce(tls)
        note(
            "The new authority is announced when serve is restarted. Leave devices time to "
            "call: then --change-over."
        )
    if change_over:
        succession.change_over(tls, list(names))
        note(
            "Restart serve: its certificate comes from the new authority, and the old "
            "one's key is gone. A device that "
            "has not called since --new-authority needs its owner: hdpmf device join STORE "
            "--ca FILE --new-authority"
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


def invite(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The recommender's folder.")],
    address: Annotated[
        str | None,
        typer.Option(
            "--address",
            metavar="ADDRESS",
            help="How devices reach it: https://HOST:PORT for sums by two servers, HOST:PORT "
            "for sums by masks.",
            show_default="its first name, and port; by two servers if a pair is pinned",
        ),
    ] = None,
    public: Annotated[
        bool,
        typer.Option(
            "--public-authority", help="Its certificate at that address is of a public authority."
        ),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="FILE", help="Where it goes.", show_default="FOLDER/invitation.json"
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Write an invitation for people's devices: address, authority and, if there are, the two
    servers. No secrets.

    Without two servers devices sum among themselves, by masks: people also need the roster, once
    they are on it.
    """
    from hdpmf.common.base.files import atomic_write
    from hdpmf.common.protocol.addresses import check_address, check_folder_address
    from hdpmf.common.protocol.invitation import Invitation
    from hdpmf.untrusted.service.collector_keys import pinned_servers
    from hdpmf.untrusted.service.folder import ServiceFolder

    service = ServiceFolder(folder)
    pair = pinned_servers(folder)
    usual = f"{service.config.names[0]}:{service.config.port}"
    where = address or (usual if pair is None else f"https://{usual}")
    if where.lower().startswith("https://"):
        where = check_folder_address(where)
        if pair is None:
            raise ConfigError(
                "no pair of servers is pinned yet: hdpmf recommender servers FOLDER servers.json"
            )
    else:
        where, pair = check_address(where), None
        if public:
            raise ConfigError(
                "by masks devices pin the recommender's own authority; leave --public-authority out"
            )
    authority = "" if public else read_text(service.transport_folder / "tls" / "authority.pem")
    made, place = (
        Invitation(address=where, servers=pair, authority=authority),
        out or folder / "invitation.json",
    )
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
        f"{place}: for people's devices (hdpmf device open, or device join STORE "
        "--invitation FILE)",
        f"link: {made.to_link()}",
    )
    if pair is not None:
        print_lines(
            f"digest of the pair: {pair.digest}; people compare it with {pair.names}, not "
            "through you"
        )
        return
    print_lines(
        f"digest of the invitation: {made.digest}; tell it people in another way than "
        "the invitation",
        f"people give you their cards (hdpmf recommender enroll {folder} CARD.json), "
        f"and need {folder / 'roster.json'}",
    )
