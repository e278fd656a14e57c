"""Participants: who is admitted, and their keys, in a database of the service.

Participants enrol themselves (``POST /participants``). They are let in by the one-use secret of an
invitation, by a token of the company's own login (JWT), or, where the operator says so, without
either, so many a minute. Whoever shows the same login with another key has a new device, which
takes the old one's place: tokens are counted by the participant's number, so that it is still one
participant.

Secrets are not stored: each is a random number with its MAC, and a used one is known by its row.
"""

import hmac
import json
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, Self

import msgspec

from hdpmf.common.base.files import FileKind, atomic_write, make_durable, read_file
from hdpmf.common.protocol.documents import from_base64, to_base64
from hdpmf.common.protocol.enrolment import Enrolment
from hdpmf.errors import ConfigError, ProtocolError, needs

with needs("cryptography"):
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric.ec import (
        ECDSA,
        SECP256R1,
        EllipticCurvePublicKey,
    )
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
    from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

FILE, KEY, LOGIN = "participants.sqlite", "invitations.key", "login.pem"

_KIND = FileKind(
    name="a file of participants",
    application=0x68647070,  # "hdpp"
    schema=1,
    safe="Nobody was told that they are enrolled who is not; free space, and they ask again",
    remedy="restore a backup",
)

_LAYOUT = (
    "CREATE TABLE participants (number INTEGER PRIMARY KEY, identity BLOB NOT NULL UNIQUE, "
    "subject BLOB UNIQUE)"
)

_CLOCKS = 60  # seconds that the login's clock may be ahead
_PART = 12  # bytes of a secret's number, and of its MAC


class Admission(NamedTuple):
    """A participant who may be enrolled.

    Attributes:
        identity: Ed25519 public key.
        subject: Digest of what can be used once; None in open enrolment.
        moves: The subject may come back with another key.
    """

    identity: bytes
    subject: bytes | None = None
    moves: bool = False


class Participants:
    """The database. It may be used from many threads.

    Args:
        path: None for memory.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = Path(":memory:") if path is None else path
        if path is not None:
            path.touch(mode=0o600)
        self._guard = threading.Lock()
        with _KIND.errors(self._path):
            self._connection = sqlite3.connect(
                self._path, isolation_level=None, check_same_thread=False
            )
            make_durable(self._connection)
            if not self._connection.execute("PRAGMA user_version").fetchone()[0]:
                self._connection.execute("BEGIN IMMEDIATE")
                self._connection.execute(_LAYOUT)
                self._connection.execute(f"PRAGMA application_id = {_KIND.application}")
                self._connection.execute(f"PRAGMA user_version = {_KIND.schema}")
                self._connection.execute("COMMIT")
            _KIND.read_schema(self._connection, self._path)

    @classmethod
    def of(cls, *identities: bytes) -> Self:
        """Some participants in memory, for simulations."""
        made = cls()
        made.add([Admission(identity) for identity in identities])
        return made

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close it."""
        with self._guard:
            self._connection.close()

    def __len__(self) -> int:
        """How many there are; none is ever removed."""
        row = self._row("SELECT max(number) FROM participants")
        return int((row and row[0]) or 0)

    def find(self, identity: bytes) -> int | None:
        """Return a participant's number; None for a stranger."""
        row = self._row("SELECT number FROM participants WHERE identity = ?", identity)
        return None if row is None else int(row[0])

    def _row(self, query: str, *given: object) -> Any:
        with self._guard, _KIND.errors(self._path):
            return self._connection.execute(query, given).fetchone()

    def add(self, admitted: Sequence[Admission]) -> list[int]:
        """Write participants down in one commit.

        Returns:
            Of each HTTP's status: 201; 200 if they were there; 403 if it was used by another key.
        """
        with self._guard, _KIND.errors(self._path), self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            return [self._add(each) for each in admitted]

    def _add(self, new: Admission) -> int:
        execute = self._connection.execute
        if new.subject is not None:
            query = "SELECT number, identity FROM participants WHERE subject = ?"
            found = execute(query, (new.subject,)).fetchone()
            if found is not None and found[1] != new.identity:
                change = "UPDATE OR IGNORE participants SET identity = ? WHERE number = ?"
                moved = new.moves and execute(change, (new.identity, found[0])).rowcount
                return 200 if moved else 403
        insert = "INSERT OR IGNORE INTO participants (identity, subject) VALUES (?, ?)"
        return 201 if execute(insert, (new.identity, new.subject)).rowcount else 200


class Invitations:
    """One-use secrets of invitations.

    Args:
        path: The key that makes and knows them; it is made where there is none.
    """

    def __init__(self, path: Path) -> None:
        if not path.exists():
            atomic_write(path, secrets.token_bytes(32), mode=0o600)
        self._key = read_file(path)

    def make(self) -> str:
        """Return a new secret."""
        number = secrets.token_bytes(_PART)
        return to_base64(number + self._mac(number))

    def subject(self, secret: str) -> bytes:
        """Return what a secret is known by; ProtocolError if it is none of ours."""
        data = from_base64(secret, 2 * _PART)
        if not hmac.compare_digest(data[_PART:], self._mac(data[:_PART])):
            raise ProtocolError("refused: no secret of an invitation")
        return sha256(b"invitation" + data).digest()

    def _mac(self, number: bytes) -> bytes:
        return hmac.digest(self._key, number, "sha256")[:_PART]


class Logins:
    """Tokens of the company's own login: JWTs of one issuer, signed by one key.

    Args:
        issuer: Their ``iss``.
        key: The issuer's public key (PEM): Ed25519, RSA or P-256. It says which algorithm tokens
            have; what they say themselves is only compared with that.
        audience: Their ``aud``: the recommender's address.
    """

    def __init__(self, issuer: str, key: bytes, audience: str) -> None:
        self._issuer, self._audience = issuer, audience
        try:
            self._key: Any = load_pem_public_key(key)
        except ValueError:
            raise ConfigError("the login's key is no public key (PEM)") from None
        if isinstance(self._key, Ed25519PublicKey):
            self._alg = "EdDSA"
        elif isinstance(self._key, RSAPublicKey) and self._key.key_size >= 2048:
            self._alg = "RS256"
        elif isinstance(self._key, EllipticCurvePublicKey) and isinstance(
            self._key.curve, SECP256R1
        ):
            self._alg = "ES256"
        else:
            raise ConfigError("the login's key must be Ed25519, RSA of 2048 bits or more, or P-256")

    def subject(self, token: str, now: float) -> bytes:
        """Return what somebody who is logged in is known by; ProtocolError if the token is none."""
        try:
            head, claims, signature = token.split(".")
            self._verify(from_base64(signature), f"{head}.{claims}".encode())
            header, found = (json.loads(from_base64(part)) for part in (head, claims))
            if header["alg"] != self._alg or "crit" in header:
                raise ValueError
            meant = found["aud"]
            right = (
                found["iss"] == self._issuer
                and self._audience in ([meant] if isinstance(meant, str) else meant)
                and isinstance(found["exp"], int | float)
                and now < found["exp"]
                and found.get("nbf", 0) <= now + _CLOCKS
                and isinstance(found["sub"], str)
                and found["sub"] != ""
            )
        except (ProtocolError, InvalidSignature, ValueError, KeyError, TypeError, RecursionError):
            right = False
        if not right:
            raise ProtocolError("refused: no token of the login that is valid here and now")
        return sha256(b"login" + json.dumps([self._issuer, found["sub"]]).encode()).digest()

    def _verify(self, signature: bytes, text: bytes) -> None:
        if self._alg == "EdDSA":
            self._key.verify(signature, text)
        elif self._alg == "RS256":
            self._key.verify(signature, text, PKCS1v15(), hashes.SHA256())
        else:
            if len(signature) != 64:
                raise InvalidSignature
            numbers = (int.from_bytes(part, "big") for part in (signature[:32], signature[32:]))
            self._key.verify(encode_dss_signature(*numbers), text, ECDSA(hashes.SHA256()))


class EnrolmentRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who may enrol, besides those with a secret of an invitation.

    Attributes:
        issuer: Of the company's login (JWT's ``iss``); empty for none. Its public key (PEM) is
            ``login.pem`` in the recommender's folder.
        open: How many a minute without either; 0 for none.
    """

    issuer: str = ""
    open: int = 0

    def __post_init__(self) -> None:
        if self.open < 0:
            raise ConfigError(f"open is how many may enrol a minute, not {self.open}")


class EnrolmentDesk:
    """Says who may be enrolled.

    Args:
        folder: The recommender's, with its keys.
        address: Of the recommender.
    """

    def __init__(
        self,
        folder: Path,
        rules: EnrolmentRules,
        address: str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._address = address
        self._invitations = Invitations(folder / KEY)
        self._logins = (
            Logins(rules.issuer, read_file(folder / LOGIN), address) if rules.issuer else None
        )
        self._open = rules.open
        self._left = float(rules.open)
        self._clock = clock
        self._filled = clock()

    def admit(self, asked: Enrolment) -> Admission | int:
        """Return who may be enrolled, or the status of a refusal: 403, or 429 for later."""
        identity = from_base64(asked.identity)
        try:
            if asked.address != self._address:
                return 403
            if asked.secret:
                return Admission(identity, self._invitations.subject(asked.secret))
            if asked.login and self._logins is not None:
                subject = self._logins.subject(asked.login, self._clock())
                return Admission(identity, subject, moves=True)
        except ProtocolError:
            return 403
        if asked.login or not self._open:
            return 403
        return Admission(identity) if self._let_through() else 429

    def _let_through(self) -> bool:
        now = self._clock()
        passed, self._filled = max(now - self._filled, 0.0), now
        self._left = min(self._left + passed * self._open / 60, float(self._open))
        if self._left < 1:
            return False
        self._left -= 1
        return True
