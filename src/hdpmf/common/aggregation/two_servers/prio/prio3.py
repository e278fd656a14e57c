"""Prio3 (draft-irtf-cfrg-vdaf-08): one upload, checked by servers of which none sees it.

::

    device      shard()      a public share, and for each server its input share
    server      prepare()    its part of the check, for the others, and what it keeps meanwhile
    one server  verify()     all parts together: a refusal, or a message for all
    server      finish()     its share of what is summed

A share of the vector is uniformly random unless all servers come together. The check shows the
servers nothing but whether the vector is valid. A report must be counted once: who prepares it
twice under two keys may learn more.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from hdpmf.common.aggregation.two_servers.prio.field import FIELD64, FIELD128, Buffer, derive_seed
from hdpmf.common.aggregation.two_servers.prio.proof import Circuit, SumVec, decide, prove, query
from hdpmf.errors import ConfigError, PrioError

NONCE_SIZE = 16
_VERSION = 8
_LEADER = 0
# What randomness is for.
_VECTOR, _PROOF, _JOINT, MASKS, _QUERY, _JOINT_SEED, _JOINT_PART = range(1, 8)


@dataclass(frozen=True)
class ReportShares:
    """A sharded vector: the public share, and one input share per server (the leader's first)."""

    public_share: bytes
    input_shares: list[bytes] = field(repr=False)  # all together they are what the device rated


@dataclass(frozen=True, eq=False)
class Preparation:
    """Preparation state of one server: its output share, and the joint randomness it used."""

    output: np.ndarray = field(repr=False)
    joint_seed: bytes = field(repr=False)


class Prio3:
    """Prio3 for one circuit.

    Args:
        identifier: Of the kind, as the draft numbers them.
        proofs: How many, each with its own randomness.
        servers: How many, the leader included.
        seed_size: Bytes of seeds and of the verify key.
        context: Shares of one context are refused in another. The draft has none in this version.
    """

    def __init__(
        self,
        circuit: Circuit,
        identifier: int,
        *,
        proofs: int,
        servers: int = 2,
        seed_size: int = 16,
        context: bytes = b"",
    ) -> None:
        if not (2 <= servers <= 255 and 1 <= proofs <= 255 and len(context) <= 247):
            raise ConfigError(
                "there are 2 to 255 servers, 1 to 255 proofs and at most 247 bytes of context"
            )
        self.circuit = circuit
        self.field = circuit.field
        self.proofs = proofs
        self.servers = servers
        self.seed_size = seed_size
        self._context = bytes([_VERSION, 0]) + identifier.to_bytes(4, "big"), context

    @property
    def random_size(self) -> int:
        """Bytes of randomness that sharing takes."""
        return self.seed_size * (3 * self.servers - 1)

    def input_share_size(self, server: int) -> int:
        """Bytes of a server's share."""
        elements = self.circuit.length + self.proofs * self.circuit.proof_length
        return self.seed_size + (
            elements * self.field.size if server == _LEADER else 2 * self.seed_size
        )

    @property
    def prepare_share_size(self) -> int:
        """Bytes that a server gives to the others for each report."""
        return self.proofs * self.circuit.verifier_length * self.field.size + self.seed_size

    def shard(
        self, vector: np.ndarray, nonce: bytes, randomness: bytes | None = None
    ) -> ReportShares:
        """Share an encoded vector. Tests may fix the randomness."""
        self._check_size("nonce", nonce, NONCE_SIZE)
        randomness = secrets.token_bytes(self.random_size) if randomness is None else randomness
        self._check_size("randomness", randomness, self.random_size)
        seeds = _split(randomness, self.seed_size)
        helpers = [seeds[3 * i : 3 * i + 3] for i in range(self.servers - 1)]
        leader_blind, prove_seed = seeds[-2:]

        leader_vector = vector
        parts = []
        for server, (vector_seed, _, blind) in enumerate(helpers, 1):
            share = self._vector_share(server, vector_seed)
            leader_vector = self.field.sub(leader_vector, share)
            parts.append(self._joint_part(server, blind, self.field.encode(share), nonce))
        encoded = self.field.encode(leader_vector)
        parts.insert(_LEADER, self._joint_part(_LEADER, leader_blind, encoded, nonce))

        joints = self._joints(self._joint_seed(parts))
        prove_seeds = self._expand(
            MASKS, prove_seed, bytes([self.proofs]), self.circuit.arity * self.proofs
        )
        proof = np.concatenate(
            [
                prove(self.circuit, vector, wire_seeds, joint)
                for wire_seeds, joint in zip(
                    prove_seeds.reshape(self.proofs, -1), joints, strict=True
                )
            ]
        )
        for server, (_, proof_seed, _) in enumerate(helpers, 1):
            proof = self.field.sub(proof, self._proof_share(server, proof_seed))
        leader = encoded + self.field.encode(proof) + leader_blind
        return ReportShares(b"".join(parts), [leader, *(b"".join(helper) for helper in helpers)])

    def prepare(
        self, verify_key: bytes, server: int, nonce: bytes, public_share: bytes, input_share: bytes
    ) -> tuple[Preparation, bytes]:
        """Return a server's preparation state and its message.

        No device may know the servers' verify key, which is fixed before the first report.
        """
        if not 0 <= server < self.servers:
            raise ConfigError(
                f"there is no server {server}: they are numbered from 0 to {self.servers - 1}"
            )
        self._check_size("verify key", verify_key, self.seed_size)
        self._check_size("nonce", nonce, NONCE_SIZE)
        self._check_size("public share", public_share, self.servers * self.seed_size)
        self._check_size("input share", input_share, self.input_share_size(server))
        vector, proofs, encoded = self._open(server, input_share)

        parts = _split(public_share, self.seed_size)
        parts[server] = self._joint_part(server, input_share[-self.seed_size :], encoded, nonce)
        joint_seed = self._joint_seed(parts)
        points = self._expand(_QUERY, verify_key, bytes([self.proofs]) + nonce, self.proofs)
        verifiers = [
            query(self.circuit, vector, proof, points[i : i + 1], joint, self.servers)
            for i, (proof, joint) in enumerate(
                zip(proofs.reshape(self.proofs, -1), self._joints(joint_seed), strict=True)
            )
        ]
        part = self.field.encode(np.concatenate(verifiers)) + parts[server]
        return Preparation(self.circuit.truncate(vector), joint_seed), part

    def verify(self, prepare_shares: Sequence[bytes]) -> bytes:
        """Combine the servers' messages; raise PrioError if the vector is not valid."""
        if len(prepare_shares) != self.servers:
            raise PrioError(
                f"expected {self.servers} servers' parts of the check, not {len(prepare_shares)}"
            )
        count = self.circuit.verifier_length * self.proofs
        verifiers = np.zeros(count, self.field.dtype)
        parts = []
        for share in prepare_shares:
            self._check_size("part of the check", share, self.prepare_share_size)
            verifiers = self.field.add(
                verifiers, self.field.decode(share[: -self.seed_size], count)
            )
            parts.append(share[-self.seed_size :])
        joint_seed = self._joint_seed(parts)
        for verifier, joint in zip(
            verifiers.reshape(self.proofs, -1), self._joints(joint_seed), strict=True
        ):
            if not decide(self.circuit, verifier, joint):
                raise PrioError("a report was refused: its proof does not hold")
        return joint_seed

    def finish(self, prepared: Preparation, message: bytes) -> np.ndarray:
        """Return the output share; raise PrioError if servers used different joint randomness."""
        if not hmac.compare_digest(message, prepared.joint_seed):
            raise PrioError("a report was refused: its joint randomness is not that of its shares")
        return prepared.output

    def unshard(self, sums: Sequence[bytes]) -> list[int]:
        """The sum behind all servers' sums of their shares."""
        total = np.zeros(self.circuit.output_length, self.field.dtype)
        for encoded in sums:
            total = self.field.add(total, self.field.decode(encoded, self.circuit.output_length))
        return self.field.integers(total)

    def _open(self, server: int, input_share: bytes) -> tuple[np.ndarray, np.ndarray, Buffer]:
        if server != _LEADER:
            vector_seed, proof_seed, _ = _split(input_share, self.seed_size)
            vector = self._vector_share(server, vector_seed)
            return vector, self._proof_share(server, proof_seed), self.field.encode(vector)
        view = memoryview(input_share)
        end = self.circuit.length * self.field.size
        vector = self.field.decode(view[:end], self.circuit.length)
        proofs = self.field.decode(
            view[end : -self.seed_size], self.circuit.proof_length * self.proofs
        )
        return vector, proofs, view[:end]

    def _vector_share(self, server: int, seed: bytes) -> np.ndarray:
        return self._expand(_VECTOR, seed, bytes([server]), self.circuit.length)

    def _proof_share(self, server: int, seed: bytes) -> np.ndarray:
        return self._expand(
            _PROOF, seed, bytes([self.proofs, server]), self.circuit.proof_length * self.proofs
        )

    def _joints(self, joint_seed: bytes) -> np.ndarray:
        """Joint randomness, a row for each proof."""
        count = self.circuit.random_length * self.proofs
        return self._expand(_JOINT, joint_seed, bytes([self.proofs]), count).reshape(
            self.proofs, -1
        )

    def _joint_part(self, server: int, blind: bytes, share: Buffer, nonce: bytes) -> bytes:
        return derive_seed(
            self._tag(_JOINT_PART), blind, (bytes([server]), nonce, share), self.seed_size
        )

    def _joint_seed(self, parts: Sequence[bytes]) -> bytes:
        return derive_seed(self._tag(_JOINT_SEED), bytes(self.seed_size), parts, self.seed_size)

    def _expand(self, usage: int, seed: bytes, binder: bytes, count: int) -> np.ndarray:
        return self.field.expand(self._tag(usage), seed, binder, count)

    def _tag(self, usage: int) -> bytes:
        prefix, context = self._context
        return prefix + usage.to_bytes(2, "big") + context

    def _check_size(self, what: str, given: bytes, size: int) -> None:
        if len(given) != size:
            raise PrioError(
                f"a {what} has {size} bytes here, not {len(given)}; check the task's parameters"
            )


def _split(joined: bytes, size: int) -> list[bytes]:
    return [joined[i : i + size] for i in range(0, len(joined), size)]


def prio3_sum_vec(entries: int, bits: int, chunk: int | None = None, *, servers: int = 2) -> Prio3:
    """The draft's Prio3SumVec: Field128, one proof."""
    return Prio3(SumVec(FIELD128, entries, bits, chunk), 2, proofs=1, servers=servers)


def prio3_sum_vec_multiproof(
    entries: int, bits: int, chunk: int | None = None, *, proofs: int = 3
) -> Prio3:
    """The draft's Prio3SumVecWithMultiproof: Field64, half the bytes, at least three proofs."""
    return Prio3(SumVec(FIELD64, entries, bits, chunk), 0xFFFFFFFF, proofs=proofs)
