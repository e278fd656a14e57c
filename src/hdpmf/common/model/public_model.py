"""The public model as files that anybody may read: nothing private is in them.

::

    folder/model.json            settings, items, and whatever is not an array
    folder/numbers.safetensors   factors or item facts, and what devices fit their vectors to

A service writes such a folder after a run; an estimator's ``save`` writes one as its recommender's
part.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, fields, is_dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from hdpmf.common.base.files import atomic_write, new_folder
from hdpmf.common.base.threads import decodable
from hdpmf.common.data import IdIndex, ItemTable, RatingScale
from hdpmf.common.data.item_features import ItemFeatures
from hdpmf.common.model.device_fit import DeviceFit
from hdpmf.common.model.list_model import ListModel
from hdpmf.common.protocol import ItemFacts, Round
from hdpmf.errors import HdpmfError, ModelFileError, made_by_newer, made_by_older

FORMAT = 2
"""The number of the newest format; the first one of 1.0 is 2."""

_HEADER = ("format", "hdpmf", "sha256")

Arrays = dict[str, np.ndarray]


def write_part(
    folder: Path,
    json_name: str,
    facts: dict[str, Any],
    tensor_name: str,
    arrays: Arrays,
    *,
    mode: int = 0o644,
) -> None:
    """Write both files into a folder."""
    from safetensors.numpy import save

    tensors = save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
    header = {"format": FORMAT, "hdpmf": version("hdpmf"), "sha256": _checksum(facts, tensors)}
    atomic_write(folder / tensor_name, tensors, mode=mode)
    atomic_write(folder / json_name, json.dumps(header | facts, indent=1).encode(), mode=mode)


def read_part(json_path: Path, tensor_path: Path) -> tuple[dict[str, Any], Arrays]:
    """Return the facts and the arrays of a part."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    stored, tensors = _read_json(json_path), _read_bytes(tensor_path)
    facts = {name: value for name, value in stored.items() if name not in _HEADER}
    if _checksum(facts, tensors) != stored.get("sha256"):
        raise ModelFileError(
            f"{tensor_path} or {json_path.name} is damaged (their checksum differs); save it again"
        )
    try:
        return facts, load(tensors)
    except SafetensorError as error:
        raise ModelFileError(f"{tensor_path} is not a safetensors file ({error})") from error


def _read_json(path: Path) -> dict[str, Any]:
    try:
        stored: Any = json.loads(_read_bytes(path))
    except ValueError as error:
        raise ModelFileError(f"{path} is damaged (it is not JSON); save the model again") from error
    number = stored.get("format") if isinstance(stored, dict) else None
    if not isinstance(number, int) or number < 1:
        raise ModelFileError(f"{path} does not describe a saved model")
    if number != FORMAT:
        raise ModelFileError(made_by_newer(path) if number > FORMAT else made_by_older(path))
    return dict(stored)


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ModelFileError(
            f"cannot read {path}: {error.strerror}; is this the folder of a saved model?"
        ) from error


def _checksum(facts: dict[str, Any], tensors: bytes) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode() + tensors).hexdigest()


_FACTS, _NUMBERS = "model.json", "numbers.safetensors"


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class PublicModel:
    """The recommender's final knowledge.

    Attributes:
        about: What it is: method or class, settings, privacy claim and the like, as plain values.
        numbers: The final factors or the item facts.
        fit: What devices fit their vectors to, in a one-round model of an estimator.
        features: Item features that were given to an estimator ready-made.
        lists: The model for lists of an estimator that has one. No device gets it.
    """

    about: dict[str, Any]
    items: IdIndex
    scale: RatingScale
    item_table: ItemTable | None
    numbers: Round | ItemFacts
    fit: DeviceFit | None = None
    features: ItemFeatures | None = None
    lists: ListModel | None = None

    def __repr__(self) -> str:
        return (
            f"PublicModel({self.about.get('method') or self.about.get('model')}, "
            f"{len(self.items)} items)"
        )

    def save(self, folder: Path) -> None:
        """Write it atomically. A folder that is there is that of a killed process."""
        if folder.exists():
            PublicModel.load(folder)
            return
        with new_folder(folder) as staging:
            self.write(staging)

    def write(self, folder: Path) -> None:
        """Write its files into a folder."""
        arrays: Arrays = {}
        facts = {
            field.name: _plain(getattr(self, field.name), arrays, field.name)
            for field in fields(self)
        }
        write_part(folder, _FACTS, facts, _NUMBERS, arrays)

    @classmethod
    def load(cls, folder: Path) -> PublicModel:
        """Read a folder that ``save`` or ``write`` wrote."""
        try:
            model = _read(folder)
            n_items, numbers = len(model.items), model.numbers
            if len(numbers.bias if isinstance(numbers, ItemFacts) else numbers.raters) != n_items:
                raise ValueError("the parts of the model do not fit each other")
            if model.lists is not None:
                model.lists.check(n_items)
            if model.fit is not None:
                _check_fit(model.fit, n_items)
        except ModelFileError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError, HdpmfError) as error:
            raise ModelFileError(
                f"{folder} is not a model that this version can read ({type(error).__name__}: "
                f"{error}); save it again"
            ) from error
        return model


def _read(folder: Path) -> PublicModel:
    facts, arrays = read_part(folder / _FACTS, folder / _NUMBERS)

    def convert(kind: type, value: Any) -> Any:
        if kind is np.ndarray:
            return arrays[value["array"]]
        return ids(value)

    return msgspec.convert(facts, decodable(PublicModel), dec_hook=convert)


def ids(plain: list[Any]) -> IdIndex:
    """Ids from a JSON document, in their order."""
    return IdIndex(
        np.array(plain, np.int64 if plain and isinstance(plain[0], int) else np.str_), as_given=True
    )


def _plain(value: Any, arrays: Arrays, name: str) -> Any:
    """A value as JSON has it; arrays are put aside under their names."""
    if isinstance(value, np.ndarray):
        arrays[name] = value
        return {"array": name}
    if isinstance(value, IdIndex):
        return value.ids.tolist()
    if isinstance(value, msgspec.Struct):
        names = value.__struct_fields__
        plain = {"type": type(value).__name__}
    elif is_dataclass(value):
        names, plain = tuple(field.name for field in fields(value)), {}
    else:
        return value
    return plain | {
        field: _plain(getattr(value, field), arrays, f"{name}.{field}") for field in names
    }


def _check_fit(fit: DeviceFit, n_items: int) -> None:
    size = len(fit.names)
    consistent = (
        fit.features.shape == (n_items, size)
        and fit.offset.shape == fit.weight.shape == (n_items,)
        and fit.precision.shape == (size, size)
        and fit.mean_map.shape == (size, size)
    )
    if not consistent:
        raise ValueError("the parts of the model do not fit each other")
