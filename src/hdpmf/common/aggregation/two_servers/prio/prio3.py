"""Prio3 (draft-irtf-cfrg-vdaf-20): one upload, checked by servers of which none sees it.

::

    device      shard()      a public share, and for each server its input share
    server      prepare()    its part of the check, for the others, and what it keeps meanwhile
    one server  verify()     all parts together: a refusal, or a message for all
    server      finish()     its share of what is summed

A share of the vector is uniformly random unless all servers come together. The check shows the
servers nothing but whether the vector is valid. A report must be counted once: who prepares it
twice under two keys may learn more.
"""

import hmac
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from hdpmf.common.aggregation.two_servers.prio.field import Buffer, derive_seed
from hdpmf.common.aggregation.two_servers.prio.proof import Circuit, decide, prove, query
from hdpmf.errors import ConfigError, PrioError

NONCE_SIZE = 16
SEED_SIZE = 32
"""Bytes of seeds and of the verify key."""
_VERSION = 18  # of the encoding: drafts 18 to 20 have the same one
_LEADER = 0
# What randomness is for.
_VECTOR, _PROOF, _JOINT, _MASKS, _QUERY, _JOINT_SEED, _JOINT_PART = range(1, 8)


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
        context: Of the application; shares of one context are refused in another.
        parameters: Of the circuit, as bytes (``stated``), which follow the context.
        servers: How many, the leader included.
    """

    def __init__(
        self,
        circuit: Circuit,
        identifier: int,
        *,
        proofs: int,
        context: bytes,
        parameters: bytes = b"",
        servers: int = 2,
    ) -> None:
        if not (2 <= servers <= 255 and 1 <= proofs <= 255 and len(context) <= 65_527):
            raise ConfigError(
                "there are 2 to 255 servers, 1 to 255 proofs and at most 65,527 bytes of context"
            )
        self.circuit = circuit
        self.field = circuit.field
        self.proofs = proofs
        self.servers = servers
        # Without joint randomness nothing is blinded, and a public share is empty.
        self.blind_size = SEED_SIZE if circuit.random_length else 0
        self.identifier = identifier
        self.parameters = parameters
        prefix = bytes([_VERSION, 0]) + identifier.to_bytes(4, "big")
        self._context = prefix, context + parameters

    @property
    def random_size(self) -> int:
        """Bytes of randomness that sharing takes."""
        return self.servers * (SEED_SIZE + self.blind_size)

    def input_share_size(self, server: int) -> int:
        """Bytes of a server's share."""
        elements = self.circuit.length + self.proofs * self.circuit.proof_length
        own = elements * self.field.size if server == _LEADER else SEED_SIZE
        return own + self.blind_size

    @property
    def public_share_size(self) -> int:
        """Bytes of the public share."""
        return self.servers * self.blind_size

    @property
    def prepare_share_size(self) -> int:
        """Bytes that a server gives to the others for each report."""
        return self.proofs * self.circuit.verifier_length * self.field.size + self.blind_size

    def shard(
        self, vector: np.ndarray, nonce: bytes, randomness: bytes | None = None
    ) -> ReportShares:
        """Share an encoded vector. Tests may fix the randomness."""
        self._check_size("nonce", nonce, NONCE_SIZE)
        randomness = secrets.token_bytes(self.random_size) if randomness is None else randomness
        self._check_size("randomness", randomness, self.random_size)
        each = SEED_SIZE + self.blind_size
        helpers = _split(randomness[: each * (self.servers - 1)], each)
        leader_blind, prove_seed = randomness[-each:-SEED_SIZE], randomness[-SEED_SIZE:]

        leader_vector = vector
        parts = []
        for server, helper in enumerate(helpers, 1):
            share = self._vector_share(server, helper[:SEED_SIZE])
            leader_vector = self.field.sub(leader_vector, share)
            encoded = self.field.encode(share)
            parts.append(self._joint_part(server, helper[SEED_SIZE:], encoded, nonce))
        encoded = self.field.encode(leader_vector)
        parts.insert(_LEADER, self._joint_part(_LEADER, leader_blind, encoded, nonce))

        joints = self._joints(self._joint_seed(parts))
        masks = self._rows(_MASKS, prove_seed, b"", self.circuit.arity)
        proof = np.concatenate(
            [
                prove(self.circuit, vector, seeds, joint)
                for seeds, joint in zip(masks, joints, strict=True)
            ]
        )
        for server, helper in enumerate(helpers, 1):
            proof = self.field.sub(proof, self._proof_share(server, helper[:SEED_SIZE]))
        leader = encoded + self.field.encode(proof) + leader_blind
        return ReportShares(b"".join(parts), [leader, *helpers])

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
        self._check_size("verify key", verify_key, SEED_SIZE)
        self._check_size("nonce", nonce, NONCE_SIZE)
        self._check_size("public share", public_share, self.public_share_size)
        self._check_size("input share", input_share, self.input_share_size(server))
        body = memoryview(input_share)[: len(input_share) - self.blind_size]
        vector, proofs, encoded = self._open(server, body)

        blind = input_share[len(body) :]
        part = self._joint_part(server, blind, encoded, nonce)
        before, after = server * self.blind_size, (server + 1) * self.blind_size
        joint_seed = self._joint_seed([public_share[:before], part, public_share[after:]])
        verifiers = [
            query(self.circuit, vector, proof, random, joint, self.servers)
            for proof, random, joint in zip(
                proofs.reshape(self.proofs, -1),
                self._rows(_QUERY, verify_key, nonce, self.circuit.query_length),
                self._joints(joint_seed),
                strict=True,
            )
        ]
        share = self.field.encode(np.concatenate(verifiers)) + part
        return Preparation(self.circuit.truncate(vector), joint_seed), share

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
            end = len(share) - self.blind_size
            verifiers = self.field.add(verifiers, self.field.decode(share[:end], count))
            parts.append(share[end:])
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

    def _open(self, server: int, body: memoryview) -> tuple[np.ndarray, np.ndarray, Buffer]:
        if server != _LEADER:
            vector = self._vector_share(server, bytes(body))
            return vector, self._proof_share(server, bytes(body)), self.field.encode(vector)
        end = self.circuit.length * self.field.size
        vector = self.field.decode(body[:end], self.circuit.length)
        proofs = self.field.decode(body[end:], self.circuit.proof_length * self.proofs)
        return vector, proofs, body[:end]

    def _vector_share(self, server: int, seed: bytes) -> np.ndarray:
        return self._expand(_VECTOR, seed, bytes([server]), self.circuit.length)

    def _proof_share(self, server: int, seed: bytes) -> np.ndarray:
        return self._rows(_PROOF, seed, bytes([server]), self.circuit.proof_length).ravel()

    def _joints(self, joint_seed: bytes) -> np.ndarray:
        return self._rows(_JOINT, joint_seed, b"", self.circuit.random_length)

    def _rows(self, usage: int, seed: bytes, binder: bytes, length: int) -> np.ndarray:
        """So many random elements for each proof."""
        found = self._expand(usage, seed, bytes([self.proofs]) + binder, length * self.proofs)
        return found.reshape(self.proofs, length)

    def _joint_part(self, server: int, blind: bytes, share: Buffer, nonce: bytes) -> bytes:
        if not self.blind_size:
            return b""
        binder = bytes([server]), nonce, share
        return derive_seed(self._tag(_JOINT_PART), blind, binder, SEED_SIZE)

    def _joint_seed(self, parts: Sequence[bytes]) -> bytes:
        if not self.blind_size:
            return b""
        return derive_seed(self._tag(_JOINT_SEED), bytes(SEED_SIZE), parts, SEED_SIZE)

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


def stated(size: int, *parameters: int) -> bytes:
    """A circuit's parameters as bytes that follow an application's context.

    How many there are follows from the last ones, so that no two lists have the same bytes.
    """
    return b"".join(number.to_bytes(size, "big", signed=True) for number in parameters)


def _split(joined: bytes, size: int) -> list[bytes]:
    return [joined[i : i + size] for i in range(0, len(joined), size)]
