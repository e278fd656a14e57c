"""Node keys: there and back, and anything else refused."""

from __future__ import annotations

import subprocess
import sys

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from hdpmf.common.net.extras import needs
from hdpmf.common.net.keys import NodeKey, check_public_key
from hdpmf.common.protocol.addresses import check_address
from hdpmf.errors import ConfigError, MissingExtraError


def _pem(key: ed25519.Ed25519PrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def test_a_key_comes_back_from_its_bytes():
    key = NodeKey.generate()
    again = NodeKey.from_bytes(key.to_bytes())
    assert again.public == key.public
    assert isinstance(again.private.curve, ec.SECP256R1)
    assert NodeKey.generate().public != key.public


def test_public_keys_are_compared_in_one_form():
    public = NodeKey.generate().public
    assert check_public_key(public) == public
    assert check_public_key(public.replace("\n", "\r\n")) == public


@pytest.mark.parametrize("data", [b"", b"nonsense", _pem(ed25519.Ed25519PrivateKey.generate())])
def test_what_is_no_node_key_is_refused(data: bytes):
    with pytest.raises(ConfigError):
        NodeKey.from_bytes(data)


def test_what_is_no_public_node_key_is_refused():
    other = ed25519.Ed25519PrivateKey.generate().public_key()
    pem = other.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    for text in ("", "nonsense", "Schlüssel", pem.decode(), NodeKey.generate().to_bytes().decode()):
        with pytest.raises(ConfigError, match="node key"):
            check_public_key(text)


@pytest.mark.parametrize("address", ["localhost:9443", "192.0.2.7:1", "[::1]:65535"])
def test_addresses(address: str):
    assert check_address(address) == address


@pytest.mark.parametrize(
    "address",
    [
        "",
        "localhost",
        ":9443",
        "localhost:",
        "localhost:x",
        "h:0",
        "h:65536",
        "https://h:1",
        "h:²",
        "a b:1",
        "a#b:1",
    ],
)
def test_what_is_no_address_is_refused(address: str):
    with pytest.raises(ConfigError, match="host:port"):
        check_address(address)


def test_an_absent_package_is_named_with_the_command_that_installs_it():
    with (
        pytest.raises(MissingExtraError, match=r"pip install 'hdpmf\[federation\]'"),
        needs("flwr"),
    ):
        raise ModuleNotFoundError(name="flwr.app")
    with pytest.raises(ModuleNotFoundError), needs("flwr"):
        raise ModuleNotFoundError(name="something_else")


def test_the_interface_and_the_network_in_one_process_need_no_engine():
    code = (
        "import sys; import hdpmf.common.net, hdpmf.common.net.flower.device, "
        "hdpmf.common.net.flower.recommender;"
        "print([m for m in ('flwr', 'httpx', 'uvicorn', 'fastapi', 'grpc') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_device_does_not_load_a_web_server():
    code = (
        "import sys; import hdpmf.common.net.flower.fleet;print([m for m in "
        "('fastapi', 'uvicorn') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
