"""``hdpmf audit servers``: what one of two servers can do together with the recommender."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from hdpmf.cli.shared.grouping import grouped
from hdpmf.cli.shared.options import Json, Seed, privacy_option, run_option
from hdpmf.cli.shared.output import hdpmf_version, print_json, print_table, progress_bar
from hdpmf.errors import ConfigError


@grouped
def servers(
    canaries: Annotated[
        int, run_option("--canaries", metavar="N", help="Ratings of the audited person, each of which is guessed.")
    ] = 10_000,
    reports: Annotated[
        int, run_option("--reports", metavar="N", help="Persons whose shares are looked at, one by one.")
    ] = 2_000,
    epsilon: Annotated[float, privacy_option("--epsilon", metavar="E", help="Of the survey.")] = 1.0,
    control: Annotated[
        float, privacy_option("--control", metavar="F", help="So much noise has a server that must be caught.")
    ] = 0.5,
    confidence: Annotated[
        float,
        run_option("--confidence", metavar="C", help="Of each bound: so seldom does a good server fail by chance."),
    ] = 0.999,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Guess ratings from what the recommender and one of two servers hold: the other's sums, and shares of reports.

    All of it is played with faults planted, too: less noise, shares that are not random, proofs that hide nothing. The
    exit status is 1 if what is as it should be does not pass, or what has a fault does.
    """
    from hdpmf.audit.game import STANDS
    from hdpmf.audit.two_servers import audit_server_shares, audit_server_sums, faults_seen_by, server_cells

    if not (0 < control < 1 and 0 < confidence < 1):
        raise ConfigError("--control and --confidence must be above 0 and below 1")
    cells = server_cells(canaries=canaries, reports=reports, epsilon=epsilon, confidence=confidence, seed=seed)
    rows, documents, failed = [], [], False
    with progress_bar("auditing servers", len(cells)) as advance:
        for done, cell in enumerate(cells):
            advance(done, len(cells))
            sums, planted = audit_server_sums(cell), audit_server_sums(replace(cell, noise_factor=control))
            shares = audit_server_shares(cell)
            faulty = [audit_server_shares(replace(cell, fault=fault)) for fault in faults_seen_by(cell.corrupt)]
            missed = STANDS in (planted.verdict, *(fault.verdict for fault in faulty))
            failed |= missed or (sums.verdict, shares.verdict) != (STANDS, STANDS)
            documents.append(
                {
                    "sums": sums.as_dict(),
                    "control": planted.as_dict(),
                    "shares": shares.as_dict(),
                    "faults": [fault.as_dict() for fault in faulty],
                }
            )
            rows.append(
                (
                    cell.corrupt,
                    f"{cell.adjacency}{', labels' if cell.labels else ''}",
                    f"{sums.epsilon_claimed:g} ({sums.status})",
                    f"{sums.epsilon_lower_bound:.2f}",
                    sums.verdict,
                    f"{planted.epsilon_lower_bound:.2f}",
                    planted.verdict,
                    f"{100 * shares.best.right:.1f} %",
                    shares.verdict,
                    ", ".join(f"{found.audit.fault}: {100 * found.best.right:.0f} %" for found in faulty),
                )
            )
    if json:
        print_json({"results": documents, "canaries": canaries, "reports": reports, "hdpmf_version": hdpmf_version()})
    else:
        less = f"noise x {control:g}"
        print_table(
            ("with", "of", "claimed", "at least", "verdict", less, "control", "shares", "verdict", "faults"),
            rows,
            numeric=("at least", less, "shares"),
            title=f"The recommender with one of two servers: {canaries:,} ratings guessed from sums (bounds hold with "
            f"{100 * confidence:g}% confidence, at most {sums.ceiling:.2f} can be proved), and one of each of "
            f"{reports:,} persons from shares (a coin is right 50 % of the time, give or take "
            f"{100 * shares.deviation:.1f} %; shown is what was farthest from it)",
        )
    if failed:
        raise typer.Exit(1)
