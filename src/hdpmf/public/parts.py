"""A part of a model on disk: facts as JSON, arrays as safetensors beside them, and a checksum of both."""

from __future__ import annotations

import hashlib
import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from hdpmf.errors import ModelFileError, made_by_newer
from hdpmf.files import atomic_write

FORMAT = 2
"""1: hdpmf 0.1.0, where the checksum was of the arrays alone; it is still read."""

_HEADER = ("format", "hdpmf", "sha256")

Arrays = dict[str, np.ndarray]


def write_part(
    folder: Path, json_name: str, facts: dict[str, Any], tensor_name: str, arrays: Arrays, *, mode: int = 0o644
) -> None:
    """Write both files into a folder."""
    from safetensors.numpy import save

    tensors = save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
    header = {"format": FORMAT, "hdpmf": version("hdpmf"), "sha256": _checksum(facts, tensors)}
    atomic_write(folder / tensor_name, tensors, mode=mode)
    atomic_write(folder / json_name, json.dumps(header | facts, indent=1).encode(), mode=mode)


def read_part(json_path: Path, tensor_path: Path) -> tuple[int, dict[str, Any], Arrays]:
    """The format, the facts and the arrays of a part."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    number, header, facts = read_facts(json_path)
    tensors = read_bytes(tensor_path)
    expected = hashlib.sha256(tensors).hexdigest() if number == 1 else _checksum(facts, tensors)
    if expected != header.get("sha256"):
        raise ModelFileError(f"{tensor_path} or {json_path.name} is damaged (their checksum differs); save it again")
    try:
        return number, facts, load(tensors)
    except SafetensorError as error:
        raise ModelFileError(f"{tensor_path} is not a safetensors file ({error})") from error


def read_facts(path: Path) -> tuple[int, dict[str, Any], dict[str, Any]]:
    """The format of a part, its header and its facts."""
    try:
        stored = json.loads(read_bytes(path))
    except ValueError as error:
        raise ModelFileError(f"{path} is damaged (it is not JSON); save the model again") from error
    number = stored.get("format") if isinstance(stored, dict) else None
    if not isinstance(number, int) or number < 1:
        raise ModelFileError(f"{path} does not describe a saved model")
    if number > FORMAT:
        raise ModelFileError(made_by_newer(path))
    return number, stored, {name: value for name, value in stored.items() if name not in _HEADER}


def read_bytes(path: Path) -> bytes:
    """A file of a model."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise ModelFileError(f"cannot read {path}: {error.strerror}; is this the folder of a saved model?") from error


def _checksum(facts: dict[str, Any], tensors: bytes) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode() + tensors).hexdigest()
