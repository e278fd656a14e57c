"""What a server is and knows of its partner."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from hdpmf.dap import Role
from hdpmf.dap.hpke import KeyPair
from hdpmf.errors import ConfigError
from hdpmf.protocol.servers import Server, Servers
from hdpmf.transport.parties import PartyKey, verify_key

ServerRole = Literal["leader", "helper"]


@dataclass(frozen=True)
class ServerKeys:
    """A server's keys and the two cards.

    Attributes:
        role: Which of the two it is.
        party: By which servers and collectors know each other.
        hpke: What shares are encrypted to.
        own: Its card.
        partner: The other server's card, as it was pinned.
    """

    role: ServerRole
    party: PartyKey = field(repr=False)
    hpke: KeyPair = field(repr=False)
    own: Server
    partner: Server

    def __post_init__(self) -> None:
        if self.role not in ("leader", "helper"):
            raise ConfigError(f"a server is a leader or a helper, not {self.role!r}")
        if self.own.identity != self.party.public or self.own.hpke != self.hpke.config.encode().hex():
            raise ConfigError("the card of this server does not show its keys; write it again")
        _ = self.servers  # that they are two

    @cached_property
    def servers(self) -> Servers:
        """The pair, as devices pin it."""
        leader, helper = (self.own, self.partner) if self.role == "leader" else (self.partner, self.own)
        return Servers(leader=leader, helper=helper)

    @property
    def dap_role(self) -> Role:
        """The role in DAP's numbers."""
        return Role.LEADER if self.role == "leader" else Role.HELPER

    @property
    def index(self) -> int:
        """Which share is its own."""
        return 0 if self.role == "leader" else 1

    def verify_key(self, task_id: bytes, size: int) -> bytes:
        """Of a task: the partner computes the same, and nobody else can."""
        return verify_key(self.party, self.partner.identity, task_id, size)
