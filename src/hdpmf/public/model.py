"""What a recommender knows at the end, as files that anybody may read: nothing private is in them.

::

    folder/model.json            what the model is, its items, and whatever is not an array
    folder/numbers.safetensors   the arrays: factors or item facts, and what devices fit their vectors to

A service writes such a folder after a run, an estimator's ``save`` writes one as its recommender's part.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from hdpmf.errors import HdpmfError, ModelFileError
from hdpmf.files import new_folder
from hdpmf.protocol import AnyCatalogue, ItemFacts, ListTable, Plan, Round, Survey
from hdpmf.protocol.catalogue import known_items
from hdpmf.public.device_fit import DeviceFit
from hdpmf.public.parts import Arrays, read_part, write_part
from hdpmf.public.priors import Prior
from hdpmf.ratings import IdIndex, ItemTable, RatingScale
from hdpmf.ratings.item_features import ItemFeatures

_FACTS, _NUMBERS = "model.json", "numbers.safetensors"


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class PublicModel:
    """What the recommender knows at the end.

    Attributes:
        about: What it is: method or class, settings, privacy claim and the like, as plain values.
        numbers: The final factors or the item facts.
        plan: What they belong to, where they come from a run.
        fit: What devices fit their vectors to, in a one-round model of an estimator.
        features: Item features that were given to an estimator ready-made.
        prior: A population prior that was given to an estimator ready-made.
        lists: A model for lists, where there is one.
    """

    about: dict[str, Any]
    items: IdIndex
    scale: RatingScale
    item_table: ItemTable | None
    numbers: Round | ItemFacts
    plan: Plan | Survey | None = None
    fit: DeviceFit | None = None
    features: ItemFeatures | None = None
    prior: Prior | None = None
    lists: ListTable | None = None

    def __repr__(self) -> str:
        return f"PublicModel({self.about.get('method') or self.about.get('model')}, {len(self.items)} items)"

    @classmethod
    def of_run(
        cls,
        about: dict[str, Any],
        items: AnyCatalogue,
        numbers: Round | ItemFacts,
        plan: Plan | Survey | None,
        lists: ListTable | None = None,
    ) -> PublicModel:
        """The result of a run over these items."""
        known = known_items(items)
        return cls(about, known.items, known.scale, known.item_table, numbers, plan, lists=lists)

    def save(self, folder: Path) -> None:
        """Write it, whole or not at all. Where a folder is already, a killed process had come this far."""
        if folder.exists():
            PublicModel.load(folder)
            return
        with new_folder(folder) as staging:
            self.write(staging)

    def write(self, folder: Path) -> None:
        """Write its files into a folder."""
        arrays: Arrays = {}
        facts = {field.name: _plain(getattr(self, field.name), arrays, field.name) for field in fields(self)}
        write_part(folder, _FACTS, facts, _NUMBERS, arrays)

    @classmethod
    def load(cls, folder: Path) -> PublicModel:
        """Read what ``save`` or ``write`` wrote, in this version or in 0.1.0."""
        from hdpmf.public import old_models

        try:
            older = old_models.load(folder)
            model = _read(folder) if older is None else older
            n_items, numbers = len(model.items), model.numbers
            if len(numbers.bias if isinstance(numbers, ItemFacts) else numbers.raters) != n_items:
                raise ValueError("the parts of the model do not fit each other")
            if model.lists is not None and model.lists.n_items != n_items:
                raise ValueError("the model for lists is of other items")
            if model.fit is not None:
                _check_fit(model.fit, n_items)
        except ModelFileError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError, HdpmfError) as error:
            raise ModelFileError(
                f"{folder} is not a model that this version can read ({type(error).__name__}: {error}); save it again"
            ) from error
        return model


def _read(folder: Path) -> PublicModel:
    _, facts, arrays = read_part(folder / _FACTS, folder / _NUMBERS)

    def convert(kind: type, value: Any) -> Any:
        if kind is np.ndarray:
            return arrays[value["array"]]
        return ids(value)

    return msgspec.convert(facts, PublicModel, dec_hook=convert)


def ids(plain: list[Any]) -> IdIndex:
    """Ids from a JSON document, in their order."""
    return IdIndex(np.array(plain, np.int64 if plain and isinstance(plain[0], int) else np.str_), as_given=True)


def _plain(value: Any, arrays: Arrays, name: str) -> Any:
    """A value as JSON has it; arrays are put aside under their names."""
    if isinstance(value, np.ndarray):
        arrays[name] = value
        return {"array": name}
    if isinstance(value, IdIndex):
        return value.ids.tolist()
    if isinstance(value, msgspec.Struct):
        names, plain = value.__struct_fields__, {"type": type(value).__name__}
    elif is_dataclass(value):
        names, plain = tuple(field.name for field in fields(value)), {}
    else:
        return value
    return plain | {field: _plain(getattr(value, field), arrays, f"{name}.{field}") for field in names}


def _check_fit(fit: DeviceFit, n_items: int) -> None:
    size = len(fit.names)
    consistent = (
        fit.features.shape == (n_items, size)
        and fit.offset.shape == fit.weight.shape == (n_items,)
        and fit.precision.shape == (size, size)
        and fit.mean_map.shape == (size, size + 2)
    )
    if not consistent:
        raise ValueError("the parts of the model do not fit each other")
