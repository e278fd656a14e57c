"""``hdpmf federate``: a whole federation on this machine, of real processes or in memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from hdpmf.cli.options import (
    DatasetName,
    MethodOptions,
    Seed,
    command,
    data_option,
    explain_arguments,
    model_option,
    privacy_option,
    run_option,
)
from hdpmf.cli.output import Block, Result, Table, note, privacy_line, run_claim, wants_json
from hdpmf.cli.rating_options import RatingsOptions, SplitOptions, WeightOptions
from hdpmf.errors import ConfigError, RatingsError

if TYPE_CHECKING:
    from hdpmf.common.data import Ratings

_WORLD: dict[str, Any] = {"n_users": 600, "n_items": 200, "n_ratings": 40_000}
_HELD_OUT = 5
_SUMS = "hdp-pairs"
_ROUNDS = ("hdpmf", "pdpmf", "dpmf", "mf")
_SECONDS = 20


@command
def demo(
    devices: Annotated[
        int, data_option("Participants, one for each user, in one process.", "N", min=3)
    ] = 30,
    data: DatasetName = None,
    epsilon: Annotated[
        float, privacy_option("The largest budget of a rating.", "E", "--epsilon")
    ] = 4.0,
    keep: Annotated[
        Path | None,
        run_option("Leave certificates, stores, ledgers, logs and the model there.", "FOLDER"),
    ] = None,
    seed: Seed = 0,
) -> Result:
    """Start a recommender, two servers and participants, with TLS; report, measure, clean up.

    Without --data the users are synthetic.
    """
    from hdpmf.common.data import load_dataset
    from hdpmf.common.privacy import PrivacySpec
    from hdpmf.lab.simulate.demo import run_demo
    from hdpmf.untrusted.service.settings import RunSettings

    if keep is not None and keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise ConfigError(f"{keep} is not empty; give --keep a new folder")
    ratings = load_dataset(data) if data is not None else load_dataset("synthetic", **_WORLD)
    train, test = ratings.hold_out(per_user=_HELD_OUT, rng=seed)
    train, test = _sample_users(train, test, devices, seed)
    settings = RunSettings(
        minimum=max(2, devices // 2), epsilon=epsilon, period=_SECONDS + devices, precision=1
    )
    with _folder(keep) as folder:
        result = run_demo(
            train,
            test,
            PrivacySpec().draw(train, rng=seed),
            settings,
            folder,
            seed=seed,
            say=note,
        )
    table = Table(
        ("method", "MSE", "MAE"),
        [
            (f"{_SUMS}, {result.devices} devices", *_errors(result.mse, result.mae)),
            (f"{_SUMS}, library, one process", *_errors(result.library_mse, result.library_mae)),
            ("user mean (nothing is sent)", f"{result.user_mean_mse:.4f}", ""),
        ],
        numeric=("MSE", "MAE"),
        title=f"{ratings.name}: {result.devices:,} devices, {result.reports} reports, "
        f"{result.n:,} ratings to test on",
    )
    text: list[Block] = [table, f"{result.seconds:.1f} s in all"]
    long_version: list[object] = ["explain", *explain_arguments(_SUMS, settings.model_params())]
    if keep is not None:
        text.append(
            f"everything is in {keep}: try hdpmf device ledger {keep / 'devices' / '0.sqlite'}, "
            f"and hdpmf recommender status {keep / 'recommender'}"
        )
        long_version = ["statement", keep / "recommender"]
    claim = run_claim(_SUMS, result.view, result.epsilon, result.status)
    text.append(privacy_line(claim, *long_version))
    folder_field = None if keep is None else str(keep)
    return Result({**result.as_dict(), "data": ratings.name, "folder": folder_field}, text)


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        yield keep
        return
    with tempfile.TemporaryDirectory(prefix="hdpmf-federation-") as folder:
        yield Path(folder)


@command
def simulate(
    source: RatingsOptions,
    cut: SplitOptions,
    options: MethodOptions,
    wishes: WeightOptions,
    method: Annotated[
        str,
        model_option(
            f"{_SUMS}, by two servers; or {', '.join(_ROUNDS)}, of the paper.",
            "METHOD",
            "--method",
            words=(_SUMS, *_ROUNDS),
        ),
    ] = _SUMS,
    sample: Annotated[
        int | None, data_option("Take only N users of the data, chosen by the seed.", "N")
    ] = None,
    seed: Seed = 0,
) -> Result:
    """Run a federation in memory, and measure it: reports to two servers, or the paper's rounds."""
    training, held_out = cut.split(source, seed)
    if sample is not None:
        training, held_out = _sample_users(training, held_out, sample, seed)
    weights = wishes.draw(training, seed, source)
    parameters = options.chosen(method)
    if method == _SUMS:
        fields, lines, claim = _two_servers(training, held_out, weights, parameters, seed)
    elif method in _ROUNDS:
        fields, lines, claim = _rounds(training, held_out, weights, method, parameters, seed)
    else:
        raise ConfigError(
            f"a federation cannot run {method!r}; choose from {', '.join((_SUMS, *_ROUNDS))}"
        )
    table = Table(
        ("method", "MSE", "MAE", "NDCG@10"),
        [
            (method, *_errors(fields["mse"], fields["mae"], fields.get("ndcg"))),
            (
                "user mean (nothing is sent)",
                *_errors(fields["user_mean_mse"], fields["user_mean_mae"], None),
            ),
        ],
        numeric=("MSE", "MAE", "NDCG@10"),
        title=f"{training.name}: {training.n_users:,} users, {len(held_out):,} ratings to test on",
    )
    text: list[Block] = [
        table,
        *lines,
        wishes.sentence(seed, source),
        privacy_line(claim, "explain", *explain_arguments(method, parameters)),
    ]
    return Result({**fields, "data": training.name, **wishes.fields(seed, source)}, text)


def _two_servers(
    training: Ratings, held_out: Ratings, weights: Any, parameters: dict[str, Any], seed: int
) -> tuple[dict[str, Any], list[str], Any]:
    from hdpmf.common.base.progress import size
    from hdpmf.lab.simulate.simulate import simulate as run
    from hdpmf.untrusted.service.metrics import Metrics, watch
    from hdpmf.untrusted.service.settings import RunSettings

    names = RunSettings.__struct_fields__
    unknown = [name for name in parameters if name not in names]
    if unknown:
        raise ConfigError(
            f"a federation by two servers has no {unknown[0]}; it has epsilon, delta, heads and cap"
        )
    if parameters.get("heads") == "auto":
        parameters = parameters | {"heads": None}
    cap = parameters.get("cap", "auto")
    parameters = parameters | {"cap": 16 if cap == "auto" else round(1 / cap)}
    settings = RunSettings(minimum=max(2, training.n_users), **parameters)
    metrics = Metrics()
    log = (lambda line: None) if wants_json() else watch(metrics)
    result = run(
        training, settings, weights, test=held_out, seed=seed, metrics=metrics, log=log
    ).result
    lines = [
        f"{result.seconds:.1f} s in all; per device {size(result.bytes_up)} up, "
        f"{size(result.bytes_down)} down",
        f"The recommender could see: {result.sees}.",
    ]
    claim = run_claim(_SUMS, result.view, result.epsilon, result.status)
    return result.as_dict(), lines, claim


def _rounds(
    training: Ratings,
    held_out: Ratings,
    weights: Any,
    method: str,
    parameters: dict[str, Any],
    seed: int,
) -> tuple[dict[str, Any], list[str], Any]:
    """Train as ``fit`` does: all users are clients of one process."""
    import time

    from hdpmf.common.methods import method_named
    from hdpmf.models import make_model

    begin = time.perf_counter()
    score = make_model(method, rng=seed, **parameters).fit(training, weights).score(held_out)
    baseline = make_model("user-mean").fit(training).score(held_out)
    claim = method_named(method).claim("messages")
    epsilon = None
    if claim.status != "none":
        epsilon = parameters.get("epsilon", method_named(method).default("epsilon"))
    fields = {
        "method": method,
        "view": "messages",
        "devices": training.n_users,
        "n": len(held_out),
        "mse": score["mse"],
        "mae": score["mae"],
        "user_mean_mse": baseline["mse"],
        "user_mean_mae": baseline["mae"],
        "seconds": time.perf_counter() - begin,
    }
    lines = [
        f"{fields['seconds']:.1f} s in all",
        f"The recommender could see: {claim.sees}.",
    ]
    return fields, lines, run_claim(method, "messages", epsilon, claim.status)


def _sample_users(
    training: Ratings, held_out: Ratings, n: int, seed: int
) -> tuple[Ratings, Ratings]:
    """Take n users, in both tables."""
    import numpy as np

    from hdpmf.lab.simulate.simulate import only_users

    if not 1 <= n <= training.n_users:
        raise ConfigError(f"there are {training.n_users:,} users; take 1 to all of them, not {n}")
    chosen = np.zeros(training.n_users, bool)
    chosen[np.random.default_rng([seed, 6]).permutation(training.n_users)[:n]] = True
    codes = training.users.find(held_out.users.ids)[held_out.user_codes]
    sampled = chosen[codes] & (codes >= 0)
    if not sampled.any():
        raise RatingsError("none of the sampled users has a test rating; sample more users")
    return only_users(training, chosen), held_out.take(sampled)


def _errors(*values: float | None) -> list[str]:
    return ["" if value is None else f"{value:.4f}" for value in values]
