"""``hdpmf device``: the private side of a federation, on a person's own machine or a silo's."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hdpmf.cli.device.disclosures import consent, ledger, receipt
from hdpmf.cli.device.join import join
from hdpmf.cli.device.ratings import catalogue, hide, rate, recommend
from hdpmf.cli.device.status import everything, recommenders, status, write_card
from hdpmf.cli.device.store import (
    StoreOptions,
    export,
    forget,
    import_,
    new_passphrase,
    passphrase,
    rotate,
    unmove,
)
from hdpmf.cli.options.common import Json, read_text, with_option_groups
from hdpmf.cli.output import print_json, print_lines
from hdpmf.cli.pages import open_
from hdpmf.errors import ConfigError

app = typer.Typer(
    help="A device that keeps its ratings: what it sends, it decides itself.",
    no_args_is_help=True,
    epilog="Step by step: init, hand the card to the recommender, rate, join, recommend. "
    "Nothing leaves the device but "
    "what join sends, and the ledger says what that was.",
)


@app.command()
@with_option_groups
def init(
    target: StoreOptions,
    users: Annotated[
        int, typer.Option("--users", metavar="N", help="Users that it speaks for: 1, or a silo's.")
    ] = 1,
    policy: Annotated[
        Path | None,
        typer.Option(
            "--policy",
            metavar="FILE",
            help="What it agrees to (TOML).",
            show_default="hdp-sum, in sums",
        ),
    ] = None,
    encrypt: Annotated[
        bool, typer.Option("--encrypt", help="Seal the file with a passphrase.")
    ] = False,
    name: Annotated[
        str | None,
        typer.Option("--name", help="What people call it; on the card.", show_default="device-..."),
    ] = None,
    card: Annotated[
        Path | None,
        typer.Option(
            "--card", metavar="FILE", help="Where the card goes.", show_default="STORE.card.json"
        ),
    ] = None,
    scale: Annotated[
        tuple[float, float] | None,
        typer.Option(
            "--scale",
            metavar="LOW HIGH",
            help="What you rate on; a recommender that asks for another one is refused.",
            show_default="of the first file",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Make a store with a new identity, and a card (public keys only) to hand to the
    recommender.
    """
    from hdpmf.common.data import RatingScale
    from hdpmf.private.device.device_identity import card_of, new_device
    from hdpmf.private.device.policy import Policy

    path = target.path
    place = path.with_name(path.name + ".card.json") if card is None else card
    if place.exists():
        raise ConfigError(f"{place} exists already; choose another place for the card with --card")
    if name is not None and not (1 <= len(name) <= 200 and name.isprintable()):
        raise ConfigError("a name has 1 to 200 printable characters")
    if target.passphrase_file is not None and not encrypt:
        raise ConfigError("--passphrase-file belongs to --encrypt; give both or neither")
    if target.old_copy:
        raise ConfigError("--old-copy is for a store that is there; init makes a new one")
    agreed = Policy() if policy is None else Policy.from_toml(read_text(policy))
    passphrase = new_passphrase(target.passphrase_file) if encrypt else None
    own = None if scale is None else RatingScale.of(scale)
    with new_device(
        path, name=name, users=users, policy=agreed, passphrase=passphrase, scale=own
    ) as store:
        shown = card_of(store)
        write_card(shown, place)
        encrypted = store.encrypted
    if json:
        print_json(
            {
                "store": str(path),
                "card": str(place),
                "name": shown.name,
                "identity": shown.identity,
                "users": users,
                "encrypted": encrypted,
            }
        )
        return
    print_lines(
        f"Made {path} "
        f"({'encrypted' if encrypt else 'not encrypted; --encrypt would seal it'}"
        "), readable by you only.",
        f"This device is {shown.name}, identity {shown.identity}.",
        f"Hand {place} to the recommender (hdpmf recommender enroll). There is no secret in it.",
        "A second device of yours has a ledger of its own, and what both send adds up; "
        "with devices = 2 in the policy "
        "of each, both together spend no more than one.",
        f"Next: hdpmf device rate {path} ITEM VALUE; then hdpmf device join {path} "
        "https://HOST:PORT --ca FILE "
        "--servers FILE (sums by two servers), or HOST:PORT --ca FILE --roster FILE "
        "(sums by masks)",
    )


app.command("open")(open_)
app.command()(join)
app.command()(status)
app.command()(rate)
app.command()(recommend)
app.command()(catalogue)
app.command()(hide)
app.command()(consent)
app.command()(recommenders)
app.command()(everything)
app.command()(ledger)
app.command()(receipt)
app.command()(passphrase)
app.command()(rotate)
app.command()(export)
app.command("import")(import_)
app.command()(unmove)


@app.command()
@with_option_groups
def policy(
    target: StoreOptions,
    change: Annotated[
        Path | None,
        typer.Option(
            "--set", metavar="FILE", help="Change what FILE says; all else stays as it is."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Print what this device agrees to, as a TOML file that can be changed and set."""
    import msgspec

    from hdpmf.private.device.policy import Policy

    wanted = None if change is None else read_text(change)
    with target.open() as store, store.transaction():
        if wanted is not None:
            store.set_policy(Policy.from_toml(wanted, store.policy))
        agreed = store.policy
    if json:
        print_json({"policy": msgspec.to_builtins(agreed)})
        return
    print_lines(*agreed.to_toml().splitlines())


app.command()(forget)
