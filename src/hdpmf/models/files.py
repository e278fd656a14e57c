"""Models on disk: safetensors and JSON, the recommender's part and the devices' part in folders of their own.

::

    folder/
      recommender/model.json         class, public parameters, privacy claim, item ids, scale, titles
      recommender/factors.safetensors
      devices/devices.json           user ids, seed          (mode 0600, like everything in this folder)
      devices/devices.safetensors    user vectors, privacy weights, own means, rated items

The seed is with the devices: whoever knows it can draw the simulated noise again and take it away.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from hdpmf.errors import ConfigError, HdpmfError, ModelFileError, StorageError
from hdpmf.files import atomic_write
from hdpmf.models.base import Model
from hdpmf.models.baselines import GlobalMean, UserMean
from hdpmf.models.factorization import DPMF, HDPMF, MF, PDPMF
from hdpmf.models.one_round import HDPBit, HDPSum, OneRound
from hdpmf.models.params import with_current_names
from hdpmf.protocol import ItemFacts
from hdpmf.public.device_fit import DeviceFit
from hdpmf.public.priors import Prior
from hdpmf.ratings import IdIndex, ItemTable, RatingScale
from hdpmf.ratings.item_features import ItemFeatures
from hdpmf.recommender import Catalogue
from hdpmf.shard import Devices

FORMAT_VERSION = 1

_CLASSES: dict[str, type[Model]] = {
    kind.__name__: kind for kind in (MF, DPMF, PDPMF, HDPMF, HDPSum, HDPBit, UserMean, GlobalMean)
}

_PRIVATE_PARAMETERS = ("rng",)

# What devices need of a one-round model to fit a new user; all of it is public.
_FACTS = ("bias", "variance", "popularity", "patterns")
_FIT = ("features", "offset", "weight", "precision", "mean_map")


def save_model(model: Model, folder: str | os.PathLike[str]) -> None:
    """Write a fitted model; ``folder`` then holds all of it or, if anything fails, what it held before."""
    target = Path(folder)
    is_model = (target / "recommender" / "model.json").is_file()
    if target.exists() and not is_model and (not target.is_dir() or any(target.iterdir())):
        raise StorageError(f"{target} exists and is not a saved model; choose a new folder")
    staging: Path | None = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        staging.chmod(0o755)
        _write_recommender(model, staging / "recommender")
        _write_devices(model, staging / "devices")
        _swap_in(staging, target)
    except OSError as error:
        raise StorageError(
            f"could not save the model to {target}: {error.strerror or error}. What was there before is unchanged."
        ) from error
    finally:
        if staging is not None:
            shutil.rmtree(staging, ignore_errors=True)


def load_model(folder: str | os.PathLike[str]) -> Model:
    """Read a model of any kind that ``save`` wrote."""
    root = Path(folder)
    public, factors = _read_part(root / "recommender" / "model.json", root / "recommender" / "factors.safetensors")
    private, state = _read_part(root / "devices" / "devices.json", root / "devices" / "devices.safetensors")
    try:
        params = with_current_names(dict(public["parameters"], **private["parameters"]), stacklevel=None)
        model = _CLASSES[public["model"]](**params)
        scale = RatingScale(**public["scale"])
        items = IdIndex(_ids(public["items"]))
        model.catalogue_ = Catalogue(
            items, factors["factors"], factors["raters"], scale, _item_table(public["item_table"])
        )
        model.devices_ = Devices(users=IdIndex(_ids(private["users"])), scale=scale, **state)
        if isinstance(model, GlobalMean):
            model.mean_ = float(public["mean"])
        if isinstance(model, OneRound):
            _restore_one_round(model, public["one_round"], factors, int(private["n_silent"]))
        _check_shapes(model)
    except (KeyError, TypeError, ValueError, AttributeError, HdpmfError) as error:
        raise ModelFileError(
            f"{root} is not a model that this version can read ({type(error).__name__}: {error}); save it again"
        ) from error
    return model


def _write_recommender(model: Model, folder: Path) -> None:
    catalogue = model.catalogue_
    claim = model.privacy
    public = {
        "model": type(model).__name__,
        "parameters": {k: _plain_param(v) for k, v in model.get_params().items() if k not in _PRIVATE_PARAMETERS},
        "privacy": {
            "epsilon": claim.epsilon, "status": claim.status, "view": claim.view, "reason": claim.reason,
            "honest": claim.honest,
        },
        "scale": {"low": catalogue.scale.low, "high": catalogue.scale.high, "step": catalogue.scale.step},
        "items": catalogue.items.ids.tolist(),
        "item_table": _plain_table(catalogue.item_table),
    }  # fmt: skip
    if isinstance(model, GlobalMean):
        public["mean"] = model.mean_
    arrays = {"factors": catalogue.factors, "raters": catalogue.raters}
    if isinstance(model, OneRound):
        public["one_round"] = {
            "mean": model.facts_.mean,
            "catalogue": model.facts_.catalogue,
            "feature_names": list(model.feature_names_),
            "prior_origin": model.prior_origin_,
        }
        arrays |= {name: getattr(model.facts_, name) for name in _FACTS}
        arrays |= {name: getattr(model.fit_, name) for name in _FIT}
    _write_part(folder, "model.json", public, "factors.safetensors", arrays, mode=0o644)


def _write_devices(model: Model, folder: Path) -> None:
    devices = model.devices_
    seeds = {k: v for k, v in model.get_params().items() if k in _PRIVATE_PARAMETERS}
    # A Generator cannot be written down; what it drew is in the model already.
    private = {
        "parameters": {k: v if isinstance(v, int) else None for k, v in seeds.items()},
        "users": devices.users.ids.tolist(),
    }
    if isinstance(model, OneRound):
        private["n_silent"] = model.n_silent_
    arrays = {
        "vectors": devices.vectors,
        "beta": devices.beta,
        "gamma": devices.gamma,
        "means": devices.means,
        "rated_start": devices.rated_start,
        "rated": devices.rated,
    }
    _write_part(folder, "devices.json", private, "devices.safetensors", arrays, mode=0o600)
    folder.chmod(0o700)


def _write_part(
    folder: Path,
    json_name: str,
    facts: dict[str, Any],
    tensor_name: str,
    arrays: dict[str, np.ndarray],
    mode: int,
) -> None:
    from safetensors.numpy import save

    folder.mkdir()
    tensors = save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
    header = {
        "format": FORMAT_VERSION,
        "hdpmf": version("hdpmf"),
        "sha256": hashlib.sha256(tensors).hexdigest(),
    }
    atomic_write(folder / tensor_name, tensors, mode=mode)
    atomic_write(folder / json_name, json.dumps(header | facts, indent=1).encode(), mode=mode)


def _swap_in(staging: Path, target: Path) -> None:
    """Put the finished folder in place; an earlier one is set aside first and comes back if that fails."""
    if not target.exists():
        staging.rename(target)
        return
    aside = staging.with_name(staging.name + ".old")
    target.rename(aside)
    try:
        staging.rename(target)
    except OSError:
        aside.rename(target)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def _read_part(json_path: Path, tensor_path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        facts = json.loads(json_path.read_bytes())
        tensors = tensor_path.read_bytes()
    except OSError as error:
        missing = error.filename or json_path
        raise ModelFileError(
            f"cannot read {missing}: {error.strerror}; is this the folder of a saved model?"
        ) from error
    except ValueError as error:
        raise ModelFileError(f"{json_path} is damaged (it is not JSON); save the model again") from error
    if not isinstance(facts, dict) or not isinstance(facts.get("format"), int):
        raise ModelFileError(f"{json_path} does not describe a saved model")
    if facts["format"] > FORMAT_VERSION:
        raise ModelFileError(
            f"{json_path} was written by hdpmf {facts.get('hdpmf')} in format {facts['format']}; this version reads "
            f"up to format {FORMAT_VERSION}. Upgrade with: pip install -U hdpmf"
        )
    if hashlib.sha256(tensors).hexdigest() != facts.get("sha256"):
        raise ModelFileError(f"{tensor_path} is damaged or cut short (its checksum differs); save the model again")
    try:
        return facts, load(tensors)
    except SafetensorError as error:
        raise ModelFileError(f"{tensor_path} is not a safetensors file ({error})") from error


def _restore_one_round(model: OneRound, public: dict[str, Any], arrays: dict[str, np.ndarray], n_silent: int) -> None:
    facts: dict[str, Any] = {name: arrays[name] for name in _FACTS}
    model.facts_ = ItemFacts(catalogue=public["catalogue"], mean=public["mean"], **facts)
    model.fit_ = DeviceFit(tuple(public["feature_names"]), **{name: arrays[name] for name in _FIT})
    model.prior_origin_ = public["prior_origin"]
    model.n_silent_ = n_silent
    n_items, size = len(model.catalogue_.items), len(model.feature_names_)
    fit = model.fit_
    consistent = (
        len(model.facts_.bias) == n_items
        and fit.features.shape == (n_items, size)
        and fit.offset.shape == fit.weight.shape == (n_items,)
        and fit.precision.shape == (size, size)
        and fit.mean_map.shape == (size, size + 2)
        and model.catalogue_.factors.shape == (n_items, size + 1)
    )
    if not consistent:
        raise ConfigError("the parts of the model do not fit each other")


def _plain_param(value: Any) -> Any:
    """A parameter as JSON has it; what a fit was made of is in the model already, by name and in numbers."""
    if isinstance(value, ItemFeatures):
        return "auto"
    if isinstance(value, Prior):
        return value.name
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _check_shapes(model: Model) -> None:
    catalogue, devices = model.catalogue_, model.devices_
    n_users, n_items, width = len(devices.users), len(catalogue.items), catalogue.factors.shape[1]
    consistent = (
        catalogue.factors.shape == (n_items, width)
        and catalogue.raters.shape == devices.gamma.shape == (n_items,)
        and devices.vectors.shape == (n_users, width)
        and devices.beta.shape == devices.means.shape == (n_users,)
        and devices.rated_start.shape == (n_users + 1,)
        and int(devices.rated_start[-1]) == len(devices.rated)
        and (len(devices.rated) == 0 or 0 <= int(devices.rated.min()) <= int(devices.rated.max()) < n_items)
    )
    if not consistent:
        raise ConfigError("the parts of the model do not fit each other")


def _ids(plain: list[Any]) -> np.ndarray:
    return np.array(plain, dtype=np.int64 if plain and isinstance(plain[0], int) else np.str_)


def _plain_table(table: ItemTable | None) -> dict[str, Any] | None:
    if table is None:
        return None
    return {
        "ids": table.ids.tolist(),
        "titles": list(table.titles),
        "genres": [list(one) for one in table.genres],
        "years": list(table.years),
    }


def _item_table(plain: dict[str, Any] | None) -> ItemTable | None:
    if plain is None:
        return None
    return ItemTable(
        IdIndex(_ids(plain["ids"])),
        tuple(plain["titles"]),
        tuple(tuple(one) for one in plain["genres"]),
        tuple(plain["years"]),
    )
