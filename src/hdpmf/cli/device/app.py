"""``hdpmf device``: the private side of a federation, on a person's own machine or a silo's."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from hdpmf.cli.device.status import write_card
from hdpmf.cli.device.store import (
    StoreOptions,
    new_passphrase,
)
from hdpmf.cli.options.common import command, option, read_text
from hdpmf.cli.output import Result
from hdpmf.errors import ConfigError


@command
def init(
    target: StoreOptions,
    users: Annotated[int, option("Users that it speaks for: 1, or a silo's.", "N")] = 1,
    policy: Annotated[
        Path | None, option("What it agrees to (TOML).", "FILE", default="hdp-sum, in sums")
    ] = None,
    encrypt: Annotated[bool, option("Seal the file with a passphrase.")] = False,
    name: Annotated[str | None, option("Its name, on the card.", default="device-...")] = None,
    card: Annotated[
        Path | None, option("Where the card goes.", "FILE", default="STORE.card.json")
    ] = None,
    scale: Annotated[
        tuple[float, float] | None,
        option(
            "Your rating scale; a recommender that asks for another one is refused.",
            "LOW HIGH",
            default="of the first file",
        ),
    ] = None,
) -> Result:
    """Make a store with a new identity, and a card (public keys only) for the recommender."""
    from hdpmf.common.data import RatingScale
    from hdpmf.private.device.device_identity import card_of, new_device
    from hdpmf.private.device.policy import Policy

    path = target.path
    card_file = path.with_name(path.name + ".card.json") if card is None else card
    if card_file.exists():
        raise ConfigError(
            f"{card_file} exists already; choose another place for the card with --card"
        )
    if name is not None and not (1 <= len(name) <= 200 and name.isprintable()):
        raise ConfigError("a name has 1 to 200 printable characters")
    if target.passphrase_file is not None and not encrypt:
        raise ConfigError("--passphrase-file belongs to --encrypt; give both or neither")
    if target.old_copy:
        raise ConfigError("--old-copy is for a store that is there; init makes a new one")
    with new_device(
        path,
        name=name,
        users=users,
        policy=Policy() if policy is None else Policy.from_toml(read_text(policy)),
        passphrase=new_passphrase(target.passphrase_file) if encrypt else None,
        scale=None if scale is None else RatingScale.of(scale),
    ) as store:
        identity = card_of(store)
        write_card(identity, card_file)
        encrypted = store.encrypted
    fields = {
        "store": str(path),
        "card": str(card_file),
        "name": identity.name,
        "identity": identity.identity,
        "users": users,
        "encrypted": encrypted,
    }
    sealed = "encrypted" if encrypt else "not encrypted; --encrypt would seal it"
    text = [
        f"Made {path} ({sealed}), readable by you only.",
        f"This device is {identity.name}, identity {identity.identity}.",
        f"Hand {card_file} to the recommender (hdpmf recommender enroll). There is no "
        "secret in it.",
        "A second device of yours has a ledger of its own, and what both send adds up; with "
        "devices = 2 in the policy of each, both together spend no more than one.",
        f"Next: hdpmf device rate {path} ITEM VALUE; then hdpmf device join {path} "
        "--invitation FILE",
    ]
    return Result(fields, text)


@command
def policy(
    target: StoreOptions,
    change: Annotated[
        Path | None, option("Change what FILE says; all else stays.", "FILE", "--set")
    ] = None,
) -> Result:
    """Print the device's policy, as a TOML file that can be changed and set."""
    import msgspec

    from hdpmf.private.device.policy import Policy

    wanted = None if change is None else read_text(change)
    with target.open() as store, store.transaction():
        if wanted is not None:
            store.set_policy(Policy.from_toml(wanted, store.policy))
        agreed = store.policy
    return Result({"policy": msgspec.to_builtins(agreed)}, agreed.to_toml().splitlines())
