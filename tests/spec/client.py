"""A participant that is written from ``spec/wire.md`` alone, without hdpmf; sections are its.

It imports the standard library and ``cryptography``; the HTTP client is the caller's. It is small,
not fast: numbers are Python's, polynomials are interpolated term by term.
"""

from __future__ import annotations

import hmac
import json
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from hashlib import sha256, sha384
from itertools import pairwise
from math import gcd, isqrt
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM


class RefusedError(Exception):
    """What was read breaks a rule of section 8."""

    def __init__(self, rule: str) -> None:
        super().__init__(rule)
        self.rule = rule


def require(holds: bool, rule: str) -> None:
    if not holds:
        raise RefusedError(rule)


# 2. Encodings


def b64(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def unb64(text: str, size: int | None = None) -> bytes:
    try:
        data = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        raise RefusedError("D3") from None
    require(b64(data) == text and size in (None, len(data)), "D3")
    return data


def canonical(value: Any) -> bytes:
    """RFC 8785, of what has no fractions."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def digest(label: str, data: bytes) -> bytes:
    return sha256(f"hdpmf 2 {label}\n".encode() + data).digest()


def read(data: bytes, kind: str, fields: set[str]) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except ValueError:
        raise RefusedError("D1") from None
    require(isinstance(found, dict) and canonical(found) == data, "D1")
    require(found.get("type") == kind and found.get("version") == 2, "D2")
    require(set(found) <= fields | {"type", "version"}, "D2")
    return found


def signed_by(public: bytes, signature: str, what: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(unb64(signature, 64), what)
    except (InvalidSignature, ValueError):
        return False
    return True


# 3. Documents


SPKI_HEAD = bytes.fromhex(
    "30820152303d06092a864886f70d01010a3030a00d300b0609608648016503040202a11a301806092a864886f70d"
    "010108300b0609608648016503040202a2030201300382010f003082010a0282010100"
)


def read_task(data: bytes) -> dict[str, Any]:
    names = "servers collector sums catalogue run asked begin end precision minimum token_key"
    task = read(data, "task", set(names.split()))
    step, begin, end, sums = task["precision"], task["begin"], task["end"], task["sums"]
    require(step >= 1 and 0 < begin < end <= begin + 400 * 86_400, "T1")
    require(begin % step == end % step == 0, "T1")
    require(1 <= task["asked"] <= 1 << 16 and task["minimum"] >= 2, "T1")
    unb64(task["run"], 16)
    spki = unb64(task["token_key"])
    ends = len(spki), spki[:81], spki[-5:]
    good = ends == (342, SPKI_HEAD, bytes.fromhex("0203010001")) and spki[81] >> 7 & spki[-6]
    require(bool(good) or not spki, "P1")
    require(isqrt(sums["bound"] // sums["cap"]) < 1 << sums["bits"], "T3")
    if sums["type"] == "pairs":
        heads = sums["heads"]
        require(all(a < b for a, b in pairwise(heads)), "T2")
        require(len(heads) == len(sums["weights"]) >= 2 and heads[0] >= 0, "T2")
    noises = ("deviation",) if sums["type"] == "pairs" else ("presence",)
    require(all(1 <= sums[each] <= 1 << 49 for each in noises), "T4")
    return task


def rho(sums: dict[str, Any]) -> tuple[int, int]:
    """What a report costs, as a fraction."""
    if sums["type"] == "pairs":
        return sums["bound"] ** 2, 4 * sums["deviation"] ** 2
    rows = [each**2 for each in (sums["presence"], sums["values"]) if each]
    total = rows[0] if len(rows) == 1 else rows[0] * rows[1]
    return sums["bound"] * (sum(total // each for each in rows)), 2 * total


def check_task(task: dict[str, Any], known: dict[str, Any], now: int) -> None:
    """Rules 1 to 8 of ``known``: what is pinned, and the limits of a release."""
    sums, count = task["sums"], known["items"]
    pairs = sums["type"] == "pairs"
    require(task["servers"] == known["servers"] and task["collector"] == known["collector"], "1")
    require(task["catalogue"] == known["catalogue"], "2")
    require(pairs or sums["items"] == count, "2")
    require(not pairs or (len(sums["heads"]) <= 300 and sums["heads"][-1] < count), "3")
    require(pairs or known["stars"] or not sums["values"], "4")
    bits = 10 if pairs else 8
    require((sums["bits"], sums["bound"]) == (bits, (1 << 2 * bits + 4) - 1), "5")
    require(sums["cap"] >= 16, "5")
    cost, limit = rho(sums), known["rho"]
    require(cost[0] * limit[1] <= limit[0] * cost[1], "6")
    require(task["begin"] <= now < task["end"] <= now + 92 * 86_400, "7")
    require(bool(task["token_key"]), "8")


def hpke_key(listed: dict[str, Any], card: dict[str, Any], now: int) -> tuple[int, bytes]:
    """Return id and public key of the first key that we can encrypt to."""
    signed = digest("key list", canonical(listed["keys"]))
    require(signed_by(unb64(card["signing"], 32), listed["signature"], signed), "K1")
    require(now < listed["keys"]["not_after"], "K3")
    data = unb64(listed["keys"]["configs"])
    require(len(data) == 2 + int.from_bytes(data[:2], "big"), "K4")
    at = 2
    while at < len(data):
        size = int.from_bytes(data[at + 7 : at + 9], "big")
        key = data[at + 9 : at + 9 + size]
        if data[at + 1 : at + 7] == bytes.fromhex("002000010001") and len(key) == 32:
            return data[at], key
        at += 9 + size
    raise RefusedError("K4")


# 4. Prio3


P = 2**64 - 2**32 + 1
ROUNDS = (
    0x8000808B, 0x800000000000008B, 0x8000000000008089, 0x8000000000008003, 0x8000000000008002,
    0x8000000000000080, 0x800A, 0x800000008000000A, 0x8000000080008081, 0x8000000000008080,
    0x80000001, 0x8000000080008008,
)  # fmt: skip
MASK = 2**64 - 1


def keccak(a: list[int]) -> list[int]:
    """Keccak-p[1600, 12] of lanes x + 5 y."""
    for constant in ROUNDS:
        c = [a[x] ^ a[x + 5] ^ a[x + 10] ^ a[x + 15] ^ a[x + 20] for x in range(5)]
        d = [c[x - 1] ^ ((c[(x + 1) % 5] << 1 | c[(x + 1) % 5] >> 63) & MASK) for x in range(5)]
        a = [lane ^ d[place % 5] for place, lane in enumerate(a)]
        b, x, y, lane = list(a), 1, 0, a[1]
        for t in range(24):
            x, y = y, (2 * x + 3 * y) % 5
            turn = (t + 1) * (t + 2) // 2 % 64
            lane, b[x + 5 * y] = a[x + 5 * y], (lane << turn | lane >> (64 - turn)) & MASK
        a = [
            b[i] ^ (~b[i - i % 5 + (i + 1) % 5] & b[i - i % 5 + (i + 2) % 5] & MASK)
            for i in range(25)
        ]
        a[0] ^= constant
    return a


def xof(tag: bytes, seed: bytes, binder: bytes, size: int) -> bytes:
    data = len(tag).to_bytes(2, "little") + tag + bytes([len(seed)]) + seed + binder + b"\1"
    block = bytearray(data + bytes(-len(data) % 168))
    block[-1] ^= 0x80
    state, out = [0] * 25, b""
    for at in range(0, len(block), 168):
        words = [int.from_bytes(block[i : i + 8], "little") for i in range(at, at + 168, 8)]
        state = keccak([a ^ b for a, b in zip(state, words + [0] * 4, strict=True)])
    while len(out) < size:
        out += b"".join(lane.to_bytes(8, "little") for lane in state[:21])
        state = keccak(state)
    return out[:size]


def expand(tag: bytes, seed: bytes, binder: bytes, count: int) -> list[int]:
    stream = xof(tag, seed, binder, 8 * (count + 2))
    words = (int.from_bytes(stream[i : i + 8], "little") for i in range(0, len(stream), 8))
    return [word for word in words if word < P][:count]


def encode(vector: list[int]) -> bytes:
    return b"".join(number.to_bytes(8, "little") for number in vector)


def root(size: int) -> int:
    return pow(7, (P - 1) // size, P)


def transform(values: list[int], w: int) -> list[int]:
    """The polynomial with these coefficients at all powers of a root of unity."""
    if len(values) == 1:
        return values
    even, odd = transform(values[::2], w * w % P), transform(values[1::2], w * w % P)
    half, turned, power = len(even), [], 1
    for number in odd:
        turned.append(power * number % P)
        power = power * w % P
    return [(even[i % half] + (turned[i % half] if i < half else -turned[i % half])) % P
            for i in range(2 * half)]  # fmt: skip


def extend(values: list[int], size: int) -> list[int]:
    """From values at the powers of one root of unity to those of a larger order."""
    n = len(values)
    coefficients = [c * pow(n, -1, P) % P for c in transform(values, pow(root(n), -1, P))]
    return transform(coefficients + [0] * (size - n), root(size))


def chunk_of(elements: int, wires: int, degree: int) -> int:
    spans = [1 << log for log in range(1, elements.bit_length() + 1)]
    chunk = {span: -(-elements // (span - 1)) for span in spans}
    return chunk[min(spans, key=lambda span: wires * chunk[span] + degree * (span - 1))]


class RankOne:
    """4.3: all products of a row."""

    identifier, degree = 0xFFFF1002, 2

    def __init__(self, heads: int, largest: int, bound: int) -> None:
        self.heads, self.largest, self.bound = heads, largest, bound
        self.parameters = b"".join(n.to_bytes(8, "big") for n in (heads, largest, bound))
        self.random = 1 + heads
        bits = heads * largest.bit_length() + bound.bit_length()
        self.chunk = chunk_of(bits + 1, 2, 2)
        self.calls = -(-(bits + 1) // self.chunk)
        self.arity = 2 * self.chunk

    def vector(self, row: list[int]) -> list[int]:
        def bits(number: int, most: int) -> list[int]:
            below = most.bit_length() - 1
            top = int(number >= 1 << below)
            rest = number - top * (most + 1 - (1 << below))
            return [*(rest >> bit & 1 for bit in range(below)), top]

        planes = zip(*(bits(number, self.largest) for number in row), strict=True)
        slack = bits(self.bound - sum(number**2 for number in row), self.bound)
        pairs = [row[j] * row[k] for j in range(len(row)) for k in range(j, len(row))]
        return [*(bit for plane in planes for bit in plane), *slack, *pairs]

    def wires(self, vector: list[int], row: list[int], joint: list[int]) -> list[list[int]]:
        n = len(vector) - self.heads * (self.heads + 1) // 2
        found = sum(u * a for u, a in zip(joint[1:], row, strict=True)) % P
        checked = [*vector[:n], found] + [0] * (self.calls * self.chunk - n - 1)
        return [
            [
                wire
                for slot, number in enumerate(checked[at : at + self.chunk])
                for wire in (pow(joint[0], slot + 1, P) * number % P, (number - 1) % P)
            ]
            for at in range(0, len(checked), self.chunk)
        ]

    def gadget(self, wires: tuple[int, ...], joint: list[int]) -> int:
        return sum(a * b for a, b in zip(wires[::2], wires[1::2], strict=True)) % P


class BoundedVector:
    """4.2: numbers of either sign."""

    identifier, random = 0xFFFF1003, 1

    def __init__(self, entries: int, largest: int, bound: int) -> None:
        self.bound = bound
        parameters = (entries, largest, bound, 1)
        self.parameters = b"".join(n.to_bytes(8, "big") for n in parameters)
        self.half = next(h for h in range(17) if 2 * h * (h + 1) >= largest)
        self.degree = 2 * self.half + 1
        self.reach = 2 * self.half * (self.half + 1)
        roots, least = 0, 1
        while least <= self.reach**2 - 1:
            roots, least = roots + 1, least + ((least + 1) // 2) ** 2
        self.fill = bound // self.reach**2 + roots
        self.items = entries + self.fill
        self.slots = chunk_of(self.items, 2, self.degree)
        self.calls = -(-self.items // self.slots)
        self.arity = 2 * self.slots

    def vector(self, row: list[int]) -> list[int]:
        every, rest = list(row), self.bound - sum(number**2 for number in row)
        for _ in range(self.fill):
            every.append(min(isqrt(rest), self.reach))
            rest -= every[-1] ** 2
        split = [divmod(n + self.half * (self.degree + 1), self.degree) for n in every]
        lower, upper = ([pair[i] - self.half for pair in split] for i in (1, 0))
        squares = [
            sum(n**2 for n in every[at : at + self.slots])
            for at in range(0, self.items, self.slots)
        ]
        return [number % P for number in (*lower, *upper, *squares)]

    def wires(self, vector: list[int], row: list[int], joint: list[int]) -> list[list[int]]:
        pad = [0] * (self.calls * self.slots - self.items)
        parts = [vector[: self.items] + pad, vector[self.items : 2 * self.items] + pad]
        return [
            [number for part in parts for number in part[at : at + self.slots]]
            for at in range(0, len(parts[0]), self.slots)
        ]

    def gadget(self, wires: tuple[int, ...], joint: list[int]) -> int:
        total = 0
        for place, digit in enumerate(wires):
            product = digit
            for k in range(1, self.half + 1):
                product = product * (digit * digit - k * k) % P
            total += pow(joint[0], place + 1, P) * product
        values = zip(wires[: self.slots], wires[self.slots :], strict=True)
        squares = sum((low + self.degree * up) ** 2 for low, up in values)
        return (total + pow(joint[0], self.arity + 1, P) * squares) % P


def circuit_of(sums: dict[str, Any]) -> RankOne | BoundedVector:
    largest = (1 << sums["bits"]) - 1
    if sums["type"] == "pairs":
        return RankOne(len(sums["heads"]), largest, sums["bound"])
    stars = bool(sums["values"])
    entries = sums["items"] + (sums["items"] + 1 if stars else 0)
    return BoundedVector(entries, largest, sums["bound"] * (2 if stars else 1))


def shard(
    circuit: RankOne | BoundedVector, context: bytes, row: list[int], nonce: bytes, rand: bytes
) -> tuple[bytes, bytes, bytes]:
    """Return the public share, the leader's and the helper's."""

    def tag(usage: int) -> bytes:
        name = circuit.identifier.to_bytes(4, "big")
        return b"\x12\0" + name + usage.to_bytes(2, "big") + context + circuit.parameters

    seed, blind, own_blind, prove = (rand[at : at + 32] for at in range(0, 128, 32))
    vector = circuit.vector(row)
    helper = expand(tag(1), seed, b"\1", len(vector))
    leader = [(a - b) % P for a, b in zip(vector, helper, strict=True)]
    parts = [
        xof(tag(7), each, bytes([place]) + nonce + encode(share), 32)
        for place, (each, share) in enumerate(((own_blind, leader), (blind, helper)))
    ]
    joint_seed = xof(tag(6), bytes(32), b"".join(parts), 32)
    joints = expand(tag(3), joint_seed, b"\3", 3 * circuit.random)
    masks = expand(tag(4), prove, b"\3", 3 * circuit.arity)
    span = 1 << circuit.calls.bit_length()
    length = circuit.degree * (span - 1) + 1
    proof: list[int] = []
    for number in range(3):
        joint = joints[number * circuit.random :][: circuit.random]
        mask = masks[number * circuit.arity :][: circuit.arity]
        rows = [mask, *circuit.wires(vector, row, joint)]
        rows += [[0] * circuit.arity] * (span - len(rows))
        size = 1 << (length - 1).bit_length()
        columns = [extend(list(column), size)[:length] for column in zip(*rows, strict=True)]
        proof += mask
        proof += [circuit.gadget(point, joint) for point in zip(*columns, strict=True)]
    share = expand(tag(2), seed, b"\3\1", len(proof))
    left = [(a - b) % P for a, b in zip(proof, share, strict=True)]
    return b"".join(parts), encode(leader) + encode(left) + own_blind, seed + blind


# 5. Reports


def sized(width: int, data: bytes) -> bytes:
    return len(data).to_bytes(width, "big") + data


def extract(salt: bytes, key: bytes) -> bytes:
    return hmac.digest(salt, key, "sha256")


def hkdf(prk: bytes, info: bytes, size: int) -> bytes:
    return hmac.digest(prk, info + b"\1", "sha256")[:size]


def seal(
    key: bytes, info: bytes, aad: bytes, plain: bytes, ephemeral: bytes
) -> tuple[bytes, bytes]:
    """HPKE in base mode: X25519, HKDF-SHA256, AES-128-GCM."""
    secret = X25519PrivateKey.from_private_bytes(ephemeral)
    enc = secret.public_key().public_bytes_raw()
    dh = secret.exchange(X25519PublicKey.from_public_bytes(key))
    kem, suite = b"HPKE-v1KEM\0\x20", b"HPKE-v1HPKE\0\x20\0\1\0\1"
    prk = extract(b"", kem + b"eae_prk" + dh)
    shared = hkdf(prk, b"\0\x20" + kem + b"shared_secret" + enc + key, 32)
    hashes = [extract(b"", suite + name) for name in (b"psk_id_hash", b"info_hash" + info)]
    schedule = b"\0" + b"".join(hashes)
    prk = extract(shared, suite + b"secret")
    aes = hkdf(prk, b"\0\x10" + suite + b"key" + schedule, 16)
    nonce = hkdf(prk, b"\0\x0c" + suite + b"base_nonce" + schedule, 12)
    return enc, AESGCM(aes).encrypt(nonce, plain, aad)


def configuration(task: dict[str, Any], name: bytes) -> bytes:
    step, circuit = task["precision"], circuit_of(task["sums"])
    urls = b"".join(
        sized(2, task["servers"][role]["url"].encode()) for role in ("leader", "helper")
    )
    numbers = step.to_bytes(8, "big") + task["minimum"].to_bytes(8, "big")
    vdaf = circuit.identifier.to_bytes(4, "big") + sized(2, circuit.parameters)
    times = (task["begin"] // step, (task["end"] - task["begin"]) // step)
    interval = b"".join(time.to_bytes(8, "big") for time in times)
    extension = b"\0\1" + sized(2, interval)
    return sized(1, name) + urls + numbers + b"\1\0\0" + vdaf + sized(2, extension)


def report(
    task: dict[str, Any], name: bytes, row: list[int], report_id: bytes, now: int,
    keys: tuple[tuple[int, bytes], ...], draw: Callable[[int], bytes] = secrets.token_bytes,
) -> bytes:  # fmt: skip
    """Return an upload of one report."""
    circuit = circuit_of(task["sums"])
    public, *shares = shard(circuit, b"dap-18" + name, row, report_id, draw(128))
    metadata = report_id + (now // task["precision"]).to_bytes(8, "big") + b"\0\0"
    aad = name + configuration(task, name) + metadata + sized(4, public)
    sealed = b""
    for role, (number, key), share in zip((2, 3), keys, shares, strict=True):
        info = b"dap-18 input share\1" + bytes([role])
        enc, payload = seal(key, info, aad, b"\0\0" + sized(4, share), draw(32))
        sealed += bytes([number]) + sized(2, enc) + sized(4, payload)
    return metadata + sized(4, public) + sealed


# 6. Tokens


def token_request(
    task: dict[str, Any], name: bytes, nonce: bytes, salt: bytes, factor: int
) -> tuple[bytes, Callable[[bytes], bytes]]:
    """Return a request, and what makes a token of its answer."""
    spki = unb64(task["token_key"])
    modulus, key_id = int.from_bytes(spki[-261:-5], "big"), sha256(spki).digest()
    parties = task["collector"]["identity"], task["servers"]["leader"]["identity"]
    issuer, origin = (sized(2, party.encode()) for party in parties)
    challenge = sha256(b"\0\2" + issuer + sized(1, name) + origin).digest()
    message = b"\0\2" + nonce + challenge + key_id
    hashed = sha384(bytes(8) + sha384(message).digest() + salt).digest()
    block = bytes(256 - 48 - 48 - 2) + b"\1" + salt
    mask = b"".join(sha384(hashed + count.to_bytes(4, "big")).digest() for count in range(5))
    masked = bytearray(a ^ b for a, b in zip(block, mask, strict=False))
    masked[0] &= 0x7F
    padded = int.from_bytes(bytes(masked) + hashed + b"\xbc", "big")
    require(gcd(factor, modulus) == 1, "P1")
    blinded = padded * pow(factor, 65_537, modulus) % modulus

    def finish(answer: bytes) -> bytes:
        require(len(answer) == 256, "P2")
        signature = int.from_bytes(answer, "big") * pow(factor, -1, modulus) % modulus
        require(pow(signature, 65_537, modulus) == padded, "P2")
        return message + signature.to_bytes(256, "big")

    return b"\0\2" + key_id[-1:] + blinded.to_bytes(256, "big"), finish


def token_headers(key: Ed25519PrivateKey, name: bytes, request: bytes) -> dict[str, str]:
    what = digest("token request", name + sha256(request).digest())
    return {
        "content-type": "application/private-token-request",
        "hdpmf-device": b64(key.public_key().public_bytes_raw()),
        "hdpmf-signature": b64(key.sign(what)),
    }


def enrolment(key: Ed25519PrivateKey, address: str, secret: str = "") -> bytes:
    public = b64(key.public_key().public_bytes_raw())
    said = {"address": address, "identity": public, "secret": secret, "login": ""}
    signature = b64(key.sign(digest("enrolment", canonical(said))))
    return canonical({"type": "enrolment", "version": 2, "enrolment": said, "signature": signature})


def report_headers(token: bytes) -> dict[str, str]:
    shown = urlsafe_b64encode(token).decode()
    return {
        "content-type": "application/ppm-dap;message=upload-req",
        "authorization": f'PrivateToken token="{shown}"',
    }


def is_asked(task: dict[str, Any], name: bytes, secret: bytes) -> bool:
    return int.from_bytes(digest("asked", name + secret)[:2], "big") < task["asked"]
