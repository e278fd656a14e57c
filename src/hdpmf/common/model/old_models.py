"""Public models as hdpmf 0.1.0 wrote them: estimators and services had a format each."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from hdpmf.common.data import ItemTable, RatingScale
from hdpmf.common.model import public_model
from hdpmf.common.model.device_fit import DeviceFit
from hdpmf.common.model.public_model import Arrays, read_bytes, read_facts, read_part
from hdpmf.common.protocol import CatalogueTable, ItemFacts, Plan, Round, Survey, decode
from hdpmf.errors import ModelFileError

_RUN_PARTS = ("catalogue", "numbers", "plan")
_ITEM_FACTS = ("bias", "variance", "popularity", "patterns")
_FIT = ("features", "offset", "weight", "precision", "mean_map")


def load(folder: Path) -> public_model.PublicModel | None:
    """The model in a folder of format 1, or None where it is of another."""
    path = folder / "model.json"
    number, header, facts = read_facts(path)
    if number != 1:
        return None
    if isinstance(header.get("sha256"), dict):
        return _of_service(folder, header["sha256"], facts)
    return _of_estimator(*read_part(path, folder / "factors.safetensors")[1:])


def _of_service(
    folder: Path, checksums: dict[str, Any], facts: dict[str, Any]
) -> public_model.PublicModel:
    parts = {name: read_bytes(folder / f"{name}.msgpack") for name in _RUN_PARTS}
    if any(checksums.get(name) != hashlib.sha256(data).hexdigest() for name, data in parts.items()):
        raise ModelFileError(f"{folder} is damaged (a checksum differs)")
    table, numbers, plan = (decode(parts[name]) for name in _RUN_PARTS)
    if not (
        isinstance(table, CatalogueTable)
        and isinstance(numbers, Round | ItemFacts)
        and isinstance(plan, Plan | Survey)
    ):
        raise ModelFileError(f"{folder} does not hold the parts of a model")
    return public_model.PublicModel.of_run(facts, table, numbers, plan)


def _of_estimator(facts: dict[str, Any], arrays: Arrays) -> public_model.PublicModel:
    about: dict[str, Any] = {
        name: facts[name] for name in ("model", "parameters", "privacy", "mean") if name in facts
    }
    fit: DeviceFit | None = None
    if "one_round" in facts:
        told = facts["one_round"]
        about["prior_origin"] = told["prior_origin"]
        # Whether there were labels was not written down, but what had been asked for is what was
        # done.
        labels = bool(about["parameters"].get("labels", False))
        item_facts: dict[str, Any] = {name: arrays[name] for name in _ITEM_FACTS}
        numbers: Round | ItemFacts = ItemFacts(
            catalogue=told["catalogue"], mean=told["mean"], labels=labels, **item_facts
        )
        fit = DeviceFit(tuple(told["feature_names"]), **{name: arrays[name] for name in _FIT})
    else:
        number = about["parameters"].get("epochs", 0) + 1
        numbers = Round(
            number=number, item_factors=arrays["factors"], raters=arrays["raters"], h=None
        )
    table = facts["item_table"]
    return public_model.PublicModel(
        about=about,
        items=public_model.ids(facts["items"]),
        scale=RatingScale(**facts["scale"]),
        item_table=None if table is None else _item_table(table),
        numbers=numbers,
        fit=fit,
    )


def _item_table(plain: dict[str, Any]) -> ItemTable:
    genres = tuple(tuple(names) for names in plain["genres"])
    return ItemTable(
        public_model.ids(plain["ids"]), tuple(plain["titles"]), genres, tuple(plain["years"])
    )
