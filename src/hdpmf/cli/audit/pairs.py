"""``hdpmf audit pairs``: the sums of pairs of hdp-sum-pairs under attack, beside a control that has to be found out."""

from __future__ import annotations

from typing import Annotated

import typer

from hdpmf.cli.shared.options import Json, Seed, privacy_option, run_option
from hdpmf.cli.shared.output import print_json, print_table, progress_bar

_CONTROL = 0.5


def pairs(
    epsilon: Annotated[float, privacy_option("--epsilon", metavar="E", help="Of the method.")] = 1.0,
    weight: Annotated[float, privacy_option("--weight", metavar="W", help="Of the audited rating.")] = 1.0,
    runs: Annotated[int, run_option("--runs", metavar="N", help="Runs of each of the two worlds.")] = 4000,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Guess whether an item was rated, from who rates what with whom; and the same with half of the noise."""
    from hdpmf.audit.pairs import audit_pairs

    results = []
    for factor in (1.0, _CONTROL):
        with progress_bar("auditing pairs" if factor == 1.0 else "auditing a control") as advance:
            results.append(audit_pairs(epsilon, weight, runs=runs, seed=seed, noise_factor=factor, progress=advance))
    if json:
        print_json({"audits": [result.as_dict() for result in results]})
        return
    print_table(
        ("hdp-sum-pairs", "claims", "at least", "verdict"),
        [
            (
                "as it is" if result.noise_factor == 1.0 else f"control: {result.noise_factor:g} of its noise",
                f"({result.epsilon_claimed:.3g}, {result.delta:g})",
                f"{result.epsilon_lower_bound:.3g}",
                result.verdict,
            )
            for result in results
        ],
    )
    if results[0].verdict == "claim broken":
        raise typer.Exit(1)
