"""How a participant enrols itself: one signed document, posted to the recommender.

It proves that the key is the sender's own and, where the recommender asks for that, who they are:
by the one-use secret of an invitation, or by a token of a login (JWT). Whoever may not take part is
told so in one way (403), so that nobody learns which secrets or people there are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import msgspec

from hdpmf.common.protocol.documents import (
    SIGNATURE_SIZE,
    Document,
    Text,
    canonical,
    from_base64,
    labelled_digest,
    read_document,
    to_base64,
)
from hdpmf.errors import ProtocolError

if TYPE_CHECKING:
    from hdpmf.common.protocol.identity import Identity

PARTICIPANTS_PATH = "/participants"
ENROLMENT_MEDIA_TYPE = "application/json"

MAX_ENROLMENT = 8 << 10
"""Bytes of an enrolment; a token of a login takes most of them."""


class Enrolment(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a participant signs.

    Attributes:
        address: Of the recommender: nobody can hand it on to another one.
        identity: The participant's Ed25519 public key (base64url).
        secret: Of the invitation; empty for none.
        login: A JWT for this recommender; empty for none.
    """

    address: Text
    identity: Text
    secret: Text = ""
    login: Text = ""


class SignedEnrolment(Document, frozen=True, tag="enrolment"):
    """An enrolment, and its signature (base64url) by the key in it."""

    enrolment: Enrolment
    signature: Text

    @classmethod
    def make(cls, identity: Identity, address: str, *, secret: str = "", login: str = "") -> Self:
        """Sign an enrolment."""
        made = Enrolment(
            address=address, identity=to_base64(identity.public), secret=secret, login=login
        )
        return cls(enrolment=made, signature=to_base64(identity.sign(_digest(made))))


def read_enrolment(data: bytes) -> Enrolment:
    """Return an enrolment that the key in it has signed; ProtocolError if it is none."""
    from hdpmf.common.protocol.identity import KEY_BYTES, verifies  # needs an extra

    signed = read_document(SignedEnrolment, data, "an enrolment", MAX_ENROLMENT)
    public = from_base64(signed.enrolment.identity, KEY_BYTES)
    signature = from_base64(signed.signature, SIGNATURE_SIZE)
    if not verifies(public, signature, _digest(signed.enrolment)):
        raise ProtocolError("refused: an enrolment is not signed by the key in it")
    return signed.enrolment


def _digest(enrolment: Enrolment) -> bytes:
    return labelled_digest("enrolment", canonical(enrolment))
