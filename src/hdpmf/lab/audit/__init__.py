"""Attacks, and what they prove: lower bounds on epsilon, reconstruction of ratings, recommenders
that cheat.

Start with ``run_audit(Audit("hdp-bit", "messages"))``, which runs the library's shards.
``hdpmf.lab.audit.devices`` plays on what leaves real device agents. ``docs/audit.md`` says what the
answers mean.
"""

from hdpmf.lab.audit.game import (
    ADJACENCIES,
    BROKEN,
    NO_CLAIM,
    STANDS,
    VIEWS,
    Audit,
    AuditResult,
    audited,
    cells,
    pairs,
    run_audit,
)
from hdpmf.lab.audit.scores import LowerBound, Scores, ceiling, lower_bound

__all__ = [
    "ADJACENCIES",
    "BROKEN",
    "NO_CLAIM",
    "STANDS",
    "VIEWS",
    "Audit",
    "AuditResult",
    "LowerBound",
    "Scores",
    "audited",
    "ceiling",
    "cells",
    "lower_bound",
    "pairs",
    "run_audit",
]
