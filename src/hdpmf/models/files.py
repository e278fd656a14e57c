"""Models on disk: the recommender's part and the devices' part in folders of their own.

::

    folder/
      recommender/                   a public model (see ``public_model``): nothing private
      devices/devices.json           user ids, seed, history (mode 0600, like all in here)
      devices/devices.safetensors    user vectors, privacy weights, own means, rated items

The seed is with the devices: whoever knows it can draw the simulated noise again and take it away.
So is the history: errors on validation ratings are made of ratings.
"""

import copy
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from hdpmf.common.base.files import new_folder
from hdpmf.common.data.item_features import ItemFeatures
from hdpmf.common.methods import METHODS, method_of
from hdpmf.common.model.public_model import PublicModel, ids, read_part, write_part
from hdpmf.common.protocol import ItemFacts, Round
from hdpmf.errors import ConfigError, HdpmfError, ModelFileError, StorageError, hint
from hdpmf.models.base import Estimator
from hdpmf.models.baselines import (
    BPR,
    EASE,
    IALS,
    Baseline,
    BiasedMF,
    GlobalMean,
    ItemKNN,
    ListsOnly,
    MostPopular,
    PrivatePopular,
    UserMean,
)
from hdpmf.models.factorization import DPMF, HDPMF, MF, PDPMF, Factorization
from hdpmf.models.hdp_bit import HDPBit
from hdpmf.models.hdp_pairs import HDPPairs
from hdpmf.models.one_round import HDPSum, OneRound
from hdpmf.models.training import EpochRecord
from hdpmf.private.client import Devices
from hdpmf.private.client.devices import FitRecord
from hdpmf.untrusted.recommender import Catalogue
from hdpmf.untrusted.recommender.release import Release

M = TypeVar("M", bound=Estimator)


def with_users(model: M, users: np.ndarray) -> M:
    """A copy of a model with only these users (positions)."""
    if not isinstance(model, Factorization | OneRound | Baseline):
        raise ConfigError(
            f"what {type(model).__name__} learned is not kept user by user, so it cannot be "
            "split; save it as a whole"
        )
    part = copy.copy(model)
    part.devices_ = model.devices_.only(np.unique(users))
    if hasattr(part, "rng"):
        part.rng = None
    if isinstance(part, Factorization):
        part.history_ = ()
    if isinstance(part, OneRound):
        part.n_silent_ = 0
    return part


_PARTS = ("catalogue_", "devices_", "weights_by_user_and_item_", "implicit_", "columns_")

_PREFIX = "learned."


def learned_by(model: Estimator) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Plain values and arrays, by name.

    Raises:
        ConfigError: An attribute is neither.
    """
    values: dict[str, Any] = {}
    arrays: dict[str, np.ndarray] = {}
    for name, value in vars(model).items():
        if not name.endswith("_") or name in _PARTS:
            continue
        if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
            arrays[_PREFIX + name] = value
        elif isinstance(value, (bool, int, float, str, type(None), np.generic)):
            values[name] = value.item() if isinstance(value, np.generic) else value
        else:
            raise ConfigError(
                f"{type(model).__name__}.{name} is a {type(value).__name__}, which cannot be "
                "saved; keep arrays of numbers, numbers and strings"
            )
    return values, arrays


def restore(model: Estimator, values: dict[str, Any], state: dict[str, np.ndarray]) -> None:
    """Put back what was saved; takes its arrays out of ``state``."""
    for name, value in values.items():
        setattr(model, name, value)
    for name in [name for name in state if name.startswith(_PREFIX)]:
        setattr(model, name.removeprefix(_PREFIX), state.pop(name))


_CLASSES: dict[str, type[Estimator]] = {
    kind.__name__: kind
    for kind in (
        *(MF, BiasedMF, DPMF, PDPMF, HDPMF, HDPSum, HDPBit, HDPPairs, UserMean),
        *(GlobalMean, PrivatePopular, MostPopular, ItemKNN, EASE, IALS, BPR),
    )
}

_PRIVATE_PARAMETERS = ("rng",)

_RELEASE = "ratings.release"

_STATE = ("vectors", "beta", "gamma", "means", "rated_start", "rated", "stars")

_RECORD = ("beta", "start", "rated")


def check_target(folder: str | os.PathLike[str], *, replace: bool) -> None:
    """Raise StorageError unless a model may be saved at ``folder``, which is new or empty.

    With ``replace`` an earlier model may be there.
    """
    target = Path(folder)
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    if not (target / "recommender" / "model.json").is_file():
        raise StorageError(f"{target} exists and is not a saved model; choose a new folder")
    if not replace:
        raise StorageError(
            f"there is a model in {target} already; choose a new folder, or replace it with "
            f"{hint('overwrite')}"
        )


def save_model(model: Estimator, folder: str | os.PathLike[str], *, replace: bool = False) -> None:
    """Write a fitted model; on failure ``folder`` keeps what it held before.

    Raises:
        StorageError: There is a saved model at ``folder`` and ``replace`` is off, or something
            else.
    """
    target = Path(folder)
    check_target(target, replace=replace)
    with new_folder(target) as staging:
        for part, mode in (("recommender", 0o755), ("devices", 0o700)):
            (staging / part).mkdir(mode)
        public_part(model).write(staging / "recommender")
        if isinstance(model, HDPBit) and model.release_ is not None:
            model.release_.save(staging / "recommender" / _RELEASE)
        _write_devices(model, staging / "devices")


def load_model(folder: str | os.PathLike[str], *, public_only: bool = False) -> Estimator:
    """Read a model of any kind that ``save`` wrote.

    Args:
        folder: Where it is.
        public_only: Read only what the recommender holds, and look at nothing private: the folder
            may be the ``recommender`` part alone. The model then knows no user; ``fold_in`` takes
            some in.
    """
    root = Path(folder)
    if public_only:
        return _load_public(root)
    public = PublicModel.load(root / "recommender")
    public.items.stated = public.about.get("privacy", {}).get("items") == "stated"
    kind = _class_of(public.about)
    private, state = read_part(
        root / "devices" / "devices.json", root / "devices" / "devices.safetensors"
    )
    with _read_errors(root):
        model = kind(**(_parameters(public) | private["parameters"]))
        restore(model, private.get("learned", {}), state)
        record = None
        if "fit_users" in private:
            arrays = (state.pop(f"fit_{name}") for name in _RECORD)
            record = FitRecord(ids(private["fit_users"]), *arrays)
        model.devices_ = Devices(
            users=ids(private["users"]),
            scale=public.scale,
            earlier=record,
            whole=private.get("whole", True),
            **state,
        )
        _restore_public(model, public)
        model.weights_by_user_and_item_ = bool(private.get("weights_by_user_and_item", False))
        model.set_source(model.implicit_, private.get("columns"))
        if isinstance(model, OneRound):
            model.n_silent_ = int(private["n_silent"])
        if isinstance(model, Factorization):
            model.history_ = tuple(EpochRecord(**record) for record in private.get("history", ()))
        if isinstance(model, HDPBit) and (root / "recommender" / _RELEASE).exists():
            model.release_ = Release.load(root / "recommender" / _RELEASE)
        _check_shapes(model)
    return model


@contextmanager
def _read_errors(root: Path) -> Iterator[None]:
    """Say which model cannot be read."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, HdpmfError) as error:
        raise ModelFileError(
            f"{root} is not a model that this version can read ({type(error).__name__}: "
            f"{error}); save it again"
        ) from error


def _parameters(public: PublicModel) -> dict[str, Any]:
    """Return the constructor's arguments that are public."""
    given = {} if public.features is None else {"features": public.features}
    return {**public.about["parameters"], **given}


def _load_public(root: Path) -> Estimator:
    public = PublicModel.load(root if (root / "model.json").is_file() else root / "recommender")
    kind = _class_of(public.about)
    if not issubclass(kind, Factorization | OneRound | Baseline):
        raise ModelFileError(
            f"all that {kind.__name__} learned is in its private part; load it as a whole"
        )
    with _read_errors(root):
        model = kind(**_parameters(public))
        _restore_public(model, public)
    n_items, width = model.catalogue_.factors.shape
    model.devices_ = Devices.nobody(n_items, width, public.scale)
    if isinstance(model, OneRound):
        model.n_silent_ = 0
    if isinstance(model, Factorization):
        model.history_ = ()
    return model


def _class_of(about: dict[str, Any]) -> type[Estimator]:
    """The class that a saved model is of: ours, or that of a registered method."""
    name = about.get("model", "")
    if name in _CLASSES:
        return _CLASSES[name]
    method = METHODS.get(about.get("method", ""))
    if method is None:
        raise ModelFileError(
            f"the model is a {name} of the method {about.get('method')!r}, which is not known "
            "here; import what adds it (on the command line: --plugin FILE)"
        )
    kind: type[Estimator] = method.model
    return kind


def public_part(model: Estimator) -> PublicModel:
    """Return the recommender's part of a fitted model."""
    catalogue, params = model.catalogue_, model.get_params()
    about: dict[str, Any] = {
        "model": type(model).__name__,
        "parameters": {
            name: _plain(value) for name, value in params.items() if name not in _PRIVATE_PARAMETERS
        },
        "privacy": asdict(model.privacy),
        "implicit": model.implicit_,
    }
    method = method_of(model)
    if type(model).__name__ not in _CLASSES and method is not None:
        about["method"] = method.name
    if isinstance(model, GlobalMean):
        about["mean"] = model.mean_
    fit = None
    numbers: Round | ItemFacts
    if isinstance(model, OneRound):
        numbers, fit = model.facts_, model.fit_
    else:
        last = getattr(model, "epochs", 0) + 1
        numbers = Round(
            number=last, item_factors=catalogue.factors, raters=catalogue.raters, h=None
        )
    features = params.get("features")
    return PublicModel(
        about=about,
        items=catalogue.items,
        scale=catalogue.scale,
        item_table=catalogue.item_table,
        numbers=numbers,
        fit=fit,
        features=features if isinstance(features, ItemFeatures) else None,
        lists=getattr(model, "lists_", None),
    )


def _restore_public(model: Estimator, public: PublicModel) -> None:
    numbers = public.numbers
    model.set_source(bool(public.about.get("implicit", False)), None)
    if isinstance(model, HDPBit | HDPPairs | ListsOnly) and public.lists is not None:
        model.lists_ = public.lists
    if isinstance(model, GlobalMean):
        model.mean_ = float(public.about["mean"])
    if isinstance(model, OneRound):
        if not isinstance(numbers, ItemFacts) or public.fit is None:
            raise ConfigError("a one-round model needs item facts and what devices fit to")
        model.set_public(public.items, public.scale, public.item_table, numbers, public.fit)
        return
    if not isinstance(numbers, Round):
        raise ConfigError("a model with factors needs them")
    model.catalogue_ = Catalogue(
        public.items, numbers.item_factors, numbers.raters, public.scale, public.item_table
    )


def _write_devices(model: Estimator, folder: Path) -> None:
    devices = model.devices_
    seeds = {
        name: value for name, value in model.get_params().items() if name in _PRIVATE_PARAMETERS
    }
    # A Generator cannot be written down; what it drew is in the model already.
    private: dict[str, Any] = {
        "parameters": {
            name: value if isinstance(value, int) else None for name, value in seeds.items()
        },
        "users": devices.users.ids.tolist(),
        "whole": devices.whole,
        "weights_by_user_and_item": getattr(model, "weights_by_user_and_item_", False),
        "columns": model.columns_,
    }
    if isinstance(model, OneRound):
        private["n_silent"] = model.n_silent_
    if isinstance(model, Factorization):
        private["history"] = [asdict(record) for record in model.history_]
    arrays = {name: getattr(devices, name) for name in _STATE}
    if devices.times is not None:
        arrays["times"] = devices.times
    if devices.earlier is not None:
        private["fit_users"] = devices.earlier.users.ids.tolist()
        arrays |= {f"fit_{name}": getattr(devices.earlier, name) for name in _RECORD}
    if not isinstance(model, Factorization | OneRound | Baseline):
        private["learned"], own = learned_by(model)
        arrays |= own
    write_part(folder, "devices.json", private, "devices.safetensors", arrays, mode=0o600)


def _plain(value: Any) -> Any:
    """Return a parameter as JSON has it; None for features, which are saved apart."""
    if isinstance(value, ItemFeatures):
        return None
    if isinstance(value, np.generic):
        return value.item()
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _check_shapes(model: Estimator) -> None:
    catalogue, devices = model.catalogue_, model.devices_
    n_users, n_items, width = len(devices.users), len(catalogue.items), catalogue.factors.shape[1]
    consistent = (
        catalogue.factors.shape == (n_items, width)
        and catalogue.raters.shape == devices.gamma.shape == (n_items,)
        and devices.vectors.shape == (n_users, width)
        and devices.beta.shape == devices.means.shape == (n_users,)
        and devices.rated_start.shape == (n_users + 1,)
        and int(devices.rated_start[-1]) == len(devices.rated) == len(devices.stars)
        and (devices.times is None or devices.times.shape == devices.rated.shape)
        and devices.fit_record.beta.shape == (len(devices.fit_record.users),)
        and devices.fit_record.start.shape == (len(devices.fit_record.users) + 1,)
        and int(devices.fit_record.start[-1]) == len(devices.fit_record.rated)
        and (
            len(devices.rated) == 0
            or 0 <= int(devices.rated.min()) <= int(devices.rated.max()) < n_items
        )
    )
    if not consistent:
        raise ConfigError("the parts of the model do not fit each other")
