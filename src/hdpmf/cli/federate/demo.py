"""``hdpmf federate demo``: a recommender and devices as real processes on this machine."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from hdpmf.cli.shared.federation import SHARE, FederatedOptions, Method, RunOptions
from hdpmf.cli.shared.grouping import grouped
from hdpmf.cli.shared.options import DatasetName, Json, Seed, data_option, run_option
from hdpmf.cli.shared.output import note, print_json, print_lines, print_table, progress_bar
from hdpmf.errors import ConfigError

if TYPE_CHECKING:
    from hdpmf.federation.demo import DemoResult
    from hdpmf.ratings import Ratings

_WORLD: dict[str, Any] = {"n_users": 600, "n_items": 200, "n_ratings": 40_000}
_HELD_OUT = 5
_ROUNDS = 20


@grouped
def demo(
    run_options: RunOptions,
    options: FederatedOptions,
    method: Method = "hdp-sum",
    devices: Annotated[
        int, data_option("--devices", metavar="N", min=3, help="Device processes; users are dealt to them.")
    ] = 8,
    data: DatasetName = None,
    keep: Annotated[
        Path | None,
        run_option("--keep", metavar="FOLDER", help="Leave certificates, stores, ledgers, logs and the model there."),
    ] = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Start a recommender and devices as separate processes with TLS, train, measure, and clean up.

    Without --data the users are those of a made-up world.
    """
    from hdpmf.federation.demo import run_demo
    from hdpmf.privacy import PrivacySpec
    from hdpmf.ratings import load_dataset

    if keep is not None and keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise ConfigError(f"{keep} is not empty; give --keep a new folder")
    ratings = load_dataset(data) if data is not None else load_dataset("synthetic", **_WORLD)
    train, test = ratings.hold_out(per_user=_HELD_OUT, rng=seed)
    users = min(train.n_users, devices * run_options.credit) if run_options.view(method) == "sums" else train.n_users
    settings = run_options.settings(method, options, users, math.ceil(SHARE * users), usual_rounds=_ROUNDS)
    weights = PrivacySpec().draw(train, rng=seed)
    with _place(keep) as folder, progress_bar("training", settings.rounds) as advance:

        def progress(state: Mapping[str, Any]) -> None:
            advance(min(int(state["number"]), settings.rounds), settings.rounds)

        result = run_demo(
            train, test, weights, settings, folder, devices=devices, seed=seed, say=note, progress=progress
        )
    _report(result, ratings, keep, json)


@contextmanager
def _place(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        yield keep
        return
    with tempfile.TemporaryDirectory(prefix="hdpmf-federation-") as folder:
        yield Path(folder)


def _report(result: DemoResult, ratings: Ratings, keep: Path | None, json: bool) -> None:
    if json:
        kept = None if keep is None else str(keep)
        print_json({**result.as_dict(), "data": ratings.name, "folder": kept})
        return
    from hdpmf.progress import size

    print_table(
        ("method", "MSE", "MAE"),
        [
            (f"{result.method}, {result.devices} devices", f"{result.mse:.4f}", f"{result.mae:.4f}"),
            (f"{result.method}, library, one process", f"{result.library_mse:.4f}", f"{result.library_mae:.4f}"),
            ("user mean (nothing is sent)", f"{result.user_mean_mse:.4f}", ""),
        ],
        numeric=("MSE", "MAE"),
        title=f"{ratings.name}: {result.users:,} users on {result.devices} devices, {result.rounds} rounds, "
        f"{result.n:,} ratings to test on",
        strong=(0,),
    )
    print_lines(
        f"{result.seconds_per_round:.2f} s per round (median), {result.seconds:.1f} s in all; "
        f"{size(result.bytes_per_device)} per device in the whole run; {sum(result.refusals.values())} refusals",
        *result.statement,
    )
    if keep is not None:
        print_lines(
            f"everything is in {keep}: try hdpmf device ledger {keep / 'devices' / '0.sqlite'}, and "
            f"hdpmf recommender status {keep / 'recommender'}"
        )
