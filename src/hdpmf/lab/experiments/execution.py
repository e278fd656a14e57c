"""Execute runs: in worker processes on CPUs, or many at once on a GPU.

Data sets and their splits are cached per process, so a run description of a few hundred bytes is
all that is sent.
"""

import copy
import os
import platform
import re
import signal
import threading
import time
import traceback
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache, lru_cache
from importlib.metadata import PackageNotFoundError, requires, version
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from hdpmf.common.data import Ratings, dataset_names, load_dataset, load_split
from hdpmf.common.data.splits import BY_TIME, cut
from hdpmf.common.methods.registry import load_plugin
from hdpmf.common.privacy import PrivacyWeights
from hdpmf.errors import DivergedError, HdpmfError, RatingsError, message_language
from hdpmf.lab.experiments.runs import Data, Part, Run, model_of
from hdpmf.lab.experiments.store import Result, Status, StoredClaim, now
from hdpmf.models import Estimator
from hdpmf.models.factorization import Factorization
from hdpmf.models.training import FarFromConvergedWarning
from hdpmf.models.validation import measure, ndcg_by_user
from hdpmf.private.kernels.gpu.availability import explain


@cache
def host_facts() -> dict[str, str | int]:
    """Return facts about the machine."""
    return {
        "system": platform.system(),
        "machine": platform.machine(),
        "cores": os.cpu_count() or 1,
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.1f} GiB",
        "python": platform.python_version(),
    }


@cache
def environment() -> dict[str, str | int]:
    """Return facts about the machine and the versions of packages."""
    return {
        **host_facts(),
        "processor": _processor(),
        **_versions(),
    }


def _versions() -> dict[str, str]:
    """Return the versions of hdpmf and of every package that it or an extra names, where it is."""
    wanted = [
        text for text in requires("hdpmf") or () if not re.search("extra == .(dev|docs)", text)
    ]
    named = [re.split(r"[^\w.-]", text)[0] for text in wanted]
    found: dict[str, str] = {}
    for name in ("hdpmf", *sorted({*named})):
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()


class Measured(NamedTuple):
    """The measures of a run, and those of each user of the test."""

    metrics: dict[str, float | int]
    users: dict[str, np.ndarray]


RANKED = 10
"""Length of the lists that are measured."""

_MAX_SCORES = 200_000_000


class RunGroup(msgspec.Struct, frozen=True):
    """Runs that a worker does one after another.

    Attributes:
        files: Paths of the user's files, by checksum.
        starter: Id of the process that started this one.
        listed: Ids of the runs whose lists are to be measured, which takes long.
    """

    runs: tuple[Run, ...]
    files: Mapping[str, str] = {}
    plugins: tuple[str, ...] = ()
    starter: int = 0
    listed: frozenset[str] = frozenset()


def do_task(task: RunGroup) -> list[Result]:
    """Do the runs of a task."""
    if os.getpid() != task.starter:
        _become_worker(task.starter)
    for file in task.plugins:
        load_plugin(file)
    return [do_run(run, task.files, run.id in task.listed) for run in task.runs]


@cache
def _become_worker(starter: int) -> None:
    """Leave Ctrl-C to the starting process, and exit when it exits."""
    if threading.current_thread() is threading.main_thread():
        # The terminal sends Ctrl-C to every process; only the starter should answer it.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    if os.getppid() == starter:
        # A killed starter cannot tell its workers, and idle ones would stay for minutes.
        threading.Thread(target=_end_with, args=(starter,), daemon=True).start()


def _end_with(starter: int) -> None:
    while os.getppid() == starter:
        time.sleep(0.5)
    os._exit(1)


def measured(
    run: Run, model: Estimator, train: Ratings, test: Ratings, with_lists: bool
) -> Measured:
    """Measure a fitted model, on a test set also by user; with a split by time, lists in time."""
    # Implicit feedback has no ratings to be wrong about, and a model for lists predicts none.
    unpredicted = test.implicit or not model.predicts_ratings
    metrics: dict[str, float | int] = {"n": len(test)} if unpredicted else score(model, train, test)
    users = {} if run.part.folds else measure(model, train, test).users
    if with_lists:
        # Folds are random whatever the split is.
        found = lists(model, test, run.part.kind in BY_TIME and not run.part.folds)
        metrics |= found.metrics
        users |= found.users
    return Measured(metrics, {name: values.astype(np.float32) for name, values in users.items()})


def _failure(error: Exception) -> str:
    """Describe an error; one that is not ours with the line that raised it."""
    if isinstance(error, HdpmfError):
        return str(error)
    last = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{Path(last.filename).name}, line {last.lineno}"
    return f"{type(error).__name__}: {error} ({place})"


def _claim_of(run: Run) -> StoredClaim | None:
    """Return the claim of the run's model; None if there can be no such model."""
    try:
        return msgspec.convert(model_of(run).privacy, StoredClaim, from_attributes=True)
    except Exception:  # also what somebody else's method raises
        return None


def do_run(
    run: Run, files: Mapping[str, str], with_lists: bool = False, on_gpu: bool = False
) -> Result:
    """Fit and score a run. Divergence and errors are results, too."""
    started = now()
    status: Status = "done"
    metrics: dict[str, float | int] = {}
    users: dict[str, np.ndarray] = {}
    message = ""
    try:
        train, test = parts_of(run, files)
        model = model_of(run)
        if on_gpu:
            model.set_params(on="gpu")
        weights = weights_of(run, train, files)
        begin = time.perf_counter()
        with warnings.catch_warnings():
            # Grids have such cells; their errors show it.
            warnings.simplefilter("ignore", FarFromConvergedWarning)
            model.fit(train, weights, lists=with_lists)
        seconds = time.perf_counter() - begin
        found = measured(run, model, train, test, with_lists)
        metrics, users = {"fit_seconds": round(seconds, 4), **found.metrics}, found.users
    except Exception as error:  # also what somebody else's method raises: the other runs go on
        status = "diverged" if isinstance(error, DivergedError) else "failed"
        message = _failure(error)
    return Result(
        run=run,
        status=status,
        metrics=metrics,
        claim=_claim_of(run),
        message=message,
        version=version("hdpmf"),
        started=started,
        finished=now(),
        host={**host_facts(), "gpu": explain()} if on_gpu else host_facts(),
        users=users,
    )


def parts_of(run: Run, files: Mapping[str, str]) -> tuple[Ratings, Ratings]:
    """Return the ratings that a run trains and tests on."""
    return _cut(_key(run.data), _key(run.part), files.get(run.data.sha256 or ""))


def weights_of(run: Run, train: Ratings, files: Mapping[str, str]) -> PrivacyWeights | None:
    """Return the privacy weights of a run; None for a method that ignores them."""
    if run.privacy is None:
        return None
    if run.privacy.weights == ("paper",):
        return run.privacy.spec.draw(train, rng=run.privacy.seed)
    if run.privacy.weights == ("uniform",):
        return PrivacyWeights.uniform(train)
    paths = (files[digest.removeprefix("sha256:")] for digest in run.privacy.weights)
    with message_language("toml"):
        return PrivacyWeights.from_frame(train, *paths, missing=run.privacy.missing)


def score(model: Estimator, train: Ratings, test: Ratings) -> dict[str, float | int]:
    """Return errors as the paper measures them, and over all test ratings.

    The paper leaves out test ratings whose user or item has no training rating, and predicts from
    the factors even where sampling took all ratings of an item. That is a third of the test set and
    a good part of the error on Douban, so it decides whether published numbers can be met at all.
    """
    seen = (train.user_counts()[test.user_codes] > 0) & (train.item_counts()[test.item_codes] > 0)
    if not seen.any():
        raise RatingsError(
            "no test rating has both its user and its item in training; there is nothing to measure"
        )
    everything = model.score(test)
    published = _without_fallback(model).score(test.take(seen))
    return {
        "mse": published["mse"],
        "mae": published["mae"],
        "n": published["n"],
        "n_cold": int((~seen).sum()),
        "mse_all": everything["mse"],
        "mae_all": everything["mae"],
        "n_all": everything["n"],
        **{name: everything[name] for name in ("n_off_scale",) if name in everything},
    }


def lists(model: Estimator, test: Ratings, in_time: bool = False) -> Measured:
    """Return ranking metrics, unless the model cannot rank or it would take minutes."""
    n_scores = len(model.devices_.users) * len(model.catalogue_.items)
    if not model.can_rank or n_scores > _MAX_SCORES:
        return Measured({"n_listed": 0}, {})
    try:
        quality = model._list_quality(test, RANKED, in_time)
    except RatingsError:  # nobody has a relevant test rating
        return Measured({"n_listed": 0}, {})
    summary = quality.summary()
    metrics = {"n_listed": summary.pop("n_users")}
    metrics |= {f"{name}_at_{RANKED}": value for name, value in summary.items()}
    return Measured(metrics, {f"ndcg_at_{RANKED}": ndcg_by_user(model, test, quality)})


def _without_fallback(model: Estimator) -> Estimator:
    if not isinstance(model, Factorization):
        return model
    plain = copy.copy(model)
    plain.catalogue_ = replace(model.catalogue_, raters=np.maximum(model.catalogue_.raters, 1))
    return plain


def load_data(data: Data, path: str | None) -> Ratings:
    """Load ratings; ``path`` is the user's file."""
    return _ratings(_key(data), path)


def _key(value: msgspec.Struct) -> bytes:
    """Return a value as caches want it: structs hold dicts, which have no hash."""
    return msgspec.json.encode(value, order="sorted")


@lru_cache(maxsize=2)
def _ratings(key: bytes, path: str | None) -> Ratings:
    data = msgspec.json.decode(key, type=Data)
    if data.sha256 is None:
        options: dict[str, Any] = dict(data.world)
        own_world = options and data.name not in dataset_names()
        found = load_dataset("synthetic" if own_world else data.name, **options)
        return found.describe(name=data.name) if own_world else found
    if path is None:
        raise RatingsError(f"the file of {data.name!r} is not known here")
    with message_language("toml"):
        return Ratings.read(
            path,
            scale=data.scale,
            columns=data.columns or None,
            duplicates=data.duplicates,
            implicit=data.implicit,
            missing=data.missing,
            name=data.name,
        )


_ready_made = lru_cache(maxsize=2)(load_split)


@lru_cache(maxsize=4)
def _cut(data: bytes, part_key: bytes, path: str | None) -> tuple[Ratings, Ratings]:
    part = msgspec.json.decode(part_key, type=Part)
    if part.kind == "ready-made":
        train, test = _ready_made(msgspec.json.decode(data, type=Data).name)
    elif part.kind == "leave-one-out":
        train, test = _ratings(data, path).hold_out(1, rng=part.seed)
    else:
        train, test = cut(_ratings(data, path), part.kind, part.share or part.per_user, part.seed)
    if part.fraction < 1.0:
        train = train.sparsify(part.fraction, rng=part.seed)
    if part.folds:
        train, test = next(islice(train.k_fold(part.folds, rng=part.seed), part.fold, None))
    return train, test


def trains_on_gpu(run: Run) -> bool:
    """Return whether a GPU can train this run."""
    model = model_of(run)
    return isinstance(model, Factorization) and model.cpu_only is None
