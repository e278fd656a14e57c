"""The roster, for people and JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hdpmf.cli.shared.output import print_lines, print_table

if TYPE_CHECKING:
    from hdpmf.protocol.enrolled import Enrolled


def devices_of(enrolled: Enrolled) -> list[dict[str, Any]]:
    """The devices, for JSON."""
    return [{"name": card.name, "identity": card.identity, "users": card.users} for card in enrolled.cards]


def show_roster(enrolled: Enrolled, *, each: bool = True) -> None:
    """How many devices there are, with the digest that people compare; before it a table of them."""
    if each and len(enrolled):
        print_table(
            ("device", "identity", "users"),
            [(card.name, card.identity[:16], f"{card.users:,}") for card in enrolled.cards],
            numeric=("users",),
        )
    print_lines(
        f"{len(enrolled)} devices, {enrolled.count_users(enrolled.users):,} users", f"digest: {enrolled.digest}"
    )
