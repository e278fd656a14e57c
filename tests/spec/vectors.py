"""Make ``spec/vectors/wire``: documents, reports and tokens, good and bad, by ``client`` alone.

``python -m tests.spec.vectors`` writes them again, to the same bytes.
"""

from __future__ import annotations

import json
from copy import deepcopy
from hashlib import sha256, shake_256
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import (
    RSAPrivateKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from tests.spec.client import (
    SPKI_HEAD,
    b64,
    canonical,
    configuration,
    digest,
    report,
    sized,
    token_request,
    unb64,
)

FOLDER = Path(__file__).parents[2] / "spec" / "vectors" / "wire"
NOW, HOUR = 1_800_000_000, 3600
RHO = (1, 50)


def drawn(name: str, size: int = 32) -> bytes:
    return shake_256(b"hdpmf vectors " + name.encode()).digest(size)


def signing(name: str) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(drawn(name))


def hpke(name: str) -> X25519PrivateKey:
    return X25519PrivateKey.from_private_bytes(drawn(name))


def card(name: str) -> dict[str, Any]:
    return {
        "organisation": name,
        "url": f"https://{name}.example:8443",
        "identity": b64(hpke(f"{name} identity").public_key().public_bytes_raw()),
        "authority": "",
        "signing": b64(signing(f"{name} signing").public_key().public_bytes_raw()),
    }


def config(name: str, number: int, kem: int = 0x20) -> bytes:
    key = hpke(f"{name} hpke").public_key().public_bytes_raw()
    return bytes([number]) + kem.to_bytes(2, "big") + b"\0\1\0\1" + sized(2, key)


def collector(name: str) -> dict[str, Any]:
    identity = b64(hpke(f"{name} identity").public_key().public_bytes_raw())
    return {"organisation": name, "hpke": b64(config(name, 7)), "identity": identity}


def key_list(name: str, number: int, **other: Any) -> dict[str, Any]:
    configs = b64(sized(2, config(name, number, other.pop("kem", 0x20))))
    keys = {"serial": 3, "not_after": NOW + 86_400, "configs": configs} | other
    signature = signing(f"{name} signing").sign(digest("key list", canonical(keys)))
    return {"type": "key list", "version": 2, "keys": keys, "signature": b64(signature)}


def issuer_key() -> RSAPrivateKey:
    """The key of the vectors; a new one only where there are none."""
    path = FOLDER / "tokens.json"
    if not path.exists():
        return generate_private_key(65_537, 2048)
    der = bytes.fromhex(json.loads(path.read_text())["issuer"])
    found = serialization.load_der_private_key(der, None)
    assert isinstance(found, RSAPrivateKey)
    return found


def tasks(spki: bytes) -> dict[str, dict[str, Any]]:
    common = {
        "type": "task", "version": 2,
        "servers": {"leader": card("north"), "helper": card("south")},
        "collector": collector("films"),
        "catalogue": b64(drawn("catalogue")), "run": b64(drawn("run", 16)), "asked": 1 << 16,
        "begin": NOW - NOW % HOUR, "end": NOW - NOW % HOUR + 24 * HOUR, "precision": HOUR,
        "minimum": 100, "token_key": b64(spki),
    }  # fmt: skip
    linear = {
        "type": "linear", "items": 4, "bits": 8, "bound": (1 << 20) - 1, "cap": 16,
        "presence": 9000, "values": 9000,
    }  # fmt: skip
    pairs = {
        "type": "pairs", "heads": [0, 2, 3], "weights": [64, 64, 32], "bits": 10,
        "bound": (1 << 24) - 1, "cap": 16, "deviation": 80_000_000,
    }  # fmt: skip
    return {"linear": common | {"sums": linear}, "pairs": common | {"sums": pairs}}


def changed(document: dict[str, Any], path: str, value: Any) -> bytes:
    made = deepcopy(document)
    *names, last = path.split(".")
    part = made
    for name in names:
        part = part[name]
    part[last] = value
    return canonical(made)


def documents(made: dict[str, dict[str, Any]]) -> dict[str, Any]:
    linear, pairs = made["linear"], made["pairs"]
    good = canonical(linear)
    plain = SPKI_HEAD.replace(bytes.fromhex("0a"), bytes.fromhex("01"), 1)  # rsaEncryption
    bad: list[tuple[str, str, bytes]] = [
        ("D1", "a space", good.replace(b",", b", ", 1)),
        ("D1", "fields in another order", json.dumps(dict(reversed(linear.items()))).encode()),
        ("D1", "bytes after the end", good + b"\n"),
        ("D1", "cut", good[:-1]),
        ("D2", "an unknown field", changed(linear, "more", 1)),
        ("D2", "an older version", changed(linear, "version", 1)),
        ("D2", "another type", changed(linear, "type", "index")),
        ("D3", "base64 with padding", changed(linear, "run", linear["run"] + "==")),
        ("D3", "a run of 15 bytes", changed(linear, "run", b64(bytes(15)))),
        ("T1", "it ends before it begins", changed(linear, "end", linear["begin"] - HOUR)),
        ("T1", "between two steps", changed(linear, "begin", linear["begin"] + 1)),
        ("T1", "nobody is asked", changed(linear, "asked", 0)),
        ("T2", "duplicate heads", changed(pairs, "sums.heads", [0, 2, 2])),
        ("T2", "descending heads", changed(pairs, "sums.heads", [3, 2, 0])),
        ("T2", "a weight too few", changed(pairs, "sums.weights", [64, 64])),
        ("T3", "entries beyond their bits", changed(linear, "sums.cap", 1)),
        ("T4", "no noise", changed(linear, "sums.presence", 0)),
        ("T4", "no noise on pairs", changed(pairs, "sums.deviation", 0)),
        ("1", "another collector", changed(linear, "collector", collector("thief"))),
        ("1", "another helper", changed(linear, "servers.helper", card("west"))),
        ("2", "other items", changed(linear, "catalogue", b64(drawn("other")))),
        ("2", "fewer items", changed(linear, "sums.items", 3)),
        ("3", "a head that is no item", changed(pairs, "sums.heads", [0, 2, 4])),
        ("5", "more bits", changed(linear, "sums.bits", 9)),
        ("5", "another length", changed(pairs, "sums.bound", 1 << 23)),
        ("6", "halved noise", changed(linear, "sums.presence", 4500)),
        ("6", "halved noise on pairs", changed(pairs, "sums.deviation", 40_000_000)),
        ("7", "over", later(linear, -48)),
        ("7", "not begun", later(linear, 48)),
        ("8", "without tokens", changed(linear, "token_key", "")),
        ("P1", "a token key of another exponent", token_key(linear, SPKI_HEAD, "0203010003")),
        ("P1", "a token key of 2,047 bits", token_key(linear, SPKI_HEAD + b"\0", "0203010001")),
        ("P1", "a token key for other signatures", token_key(linear, plain, "0203010001")),
    ]
    other = key_list("north", 1) | {"keys": key_list("north", 2)["keys"]}
    keys = [
        ("", "good", key_list("north", 1)),
        ("K1", "changed after it was signed", other),
        ("K1", "signed by the other server", key_list("south", 1)),
        ("K3", "over", key_list("north", 1, not_after=NOW)),
        ("K4", "another KEM", key_list("north", 1, kem=0x10)),
    ]
    return {
        "now": NOW,
        "known": {
            "servers": linear["servers"], "collector": linear["collector"],
            "catalogue": linear["catalogue"], "items": 4, "stars": True, "rho": list(RHO),
        },
        "tasks": [
            {
                "document": canonical(task).decode(),
                "id": b64(digest("task", canonical(task))),
                "configuration": configuration(task, digest("task", canonical(task))).hex(),
            }
            for task in made.values()
        ],
        "bad_tasks": [
            {"rule": rule, "what": what, "document": data.decode()} for rule, what, data in bad
        ],
        "values_without_stars": {"rule": "4", "document": good.decode()},
        "key_lists": [
            {"rule": rule, "what": what, "document": canonical(found).decode()}
            for rule, what, found in keys
        ],
        "servers_digest": digest("servers", canonical(linear["servers"])).hex()[:32],
    }  # fmt: skip


def token_key(task: dict[str, Any], head: bytes, tail: str) -> bytes:
    """A task whose token key begins and ends otherwise."""
    spki = head + unb64(task["token_key"])[len(head) : -5] + bytes.fromhex(tail)
    return changed(task, "token_key", b64(spki))


def later(task: dict[str, Any], hours: int) -> bytes:
    return canonical(task | {name: task[name] + hours * HOUR for name in ("begin", "end")})


def reports(made: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    found = []
    rows = {"linear": [64, 0, 255, 9, -255, 0, 17, 3, 30], "pairs": [700, 0, 1023]}
    for kind, task in made.items():
        name = digest("task", canonical(task))
        rand = iter((drawn(f"{kind} rand", 128), drawn(f"{kind} e2"), drawn(f"{kind} e3")))
        keys = tuple(
            (number, hpke(f"{server} hpke").public_key().public_bytes_raw())
            for number, server in ((1, "north"), (2, "south"))
        )
        nonce = drawn(f"{kind} id", 16)
        body = report(task, name, rows[kind], nonce, NOW, keys, lambda _, left=rand: next(left))
        found.append(
            {
                "task": canonical(task).decode(), "row": rows[kind], "report_id": nonce.hex(),
                "now": NOW, "rand": drawn(f"{kind} rand", 128).hex(),
                "ephemeral": [drawn(f"{kind} {each}").hex() for each in ("e2", "e3")],
                "hpke_ids": [1, 2],
                "hpke_secrets": [drawn("north hpke").hex(), drawn("south hpke").hex()],
                "body": body.hex(),
                "bad": [
                    {"rule": "R1", "what": "a trailing byte", "body": (body + b"\0").hex()},
                    {"rule": "R1", "what": "a byte too few", "body": body[:-1].hex()},
                    {"rule": "R2", "what": "a time before the task",
                     "body": (body[:16] + bytes(8) + body[24:]).hex()},
                    {"rule": "R4", "what": "another time than the sealed one",
                     "body": (body[:23] + bytes([body[23] + 1]) + body[24:]).hex()},
                    {"rule": "R5", "what": "a public extension",
                     "body": (body[:24] + b"\0\4" + body[26:]).hex()},
                ],
            }
        )  # fmt: skip
    return found


def tokens(made: dict[str, dict[str, Any]], issuer: RSAPrivateKey) -> dict[str, Any]:
    task, device = made["linear"], signing("device")
    name = digest("task", canonical(task))
    nonce, salt = drawn("nonce"), drawn("salt", 48)
    factor = int.from_bytes(drawn("factor", 255), "big")
    request, finish = token_request(task, name, nonce, salt, factor)
    numbers = issuer.private_numbers()
    blinded = int.from_bytes(request[3:], "big")
    answer = pow(blinded, numbers.d, numbers.public_numbers.n).to_bytes(256, "big")
    der = issuer.private_bytes(
        serialization.Encoding.DER,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    said = digest("token request", name + sha256(request).digest())
    return {
        "issuer": der.hex(), "task": canonical(task).decode(), "nonce": nonce.hex(),
        "salt": salt.hex(), "factor": factor.to_bytes(256, "big").hex(), "request": request.hex(),
        "answer": answer.hex(), "token": finish(answer).hex(), "device": drawn("device").hex(),
        "signed": said.hex(), "signature": b64(device.sign(said)),
        "bad": [
            {"rule": "P2", "what": "another signature", "answer": answer[::-1].hex()},
            {"rule": "P2", "what": "a byte too few", "answer": answer[1:].hex()},
        ],
    }  # fmt: skip


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    issuer = issuer_key()
    modulus = issuer.private_numbers().public_numbers.n
    made = tasks(SPKI_HEAD + modulus.to_bytes(256, "big") + bytes.fromhex("0203010001"))
    found = {
        "documents": documents(made), "reports": reports(made), "tokens": tokens(made, issuer),
    }  # fmt: skip
    for name, content in found.items():
        (FOLDER / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
