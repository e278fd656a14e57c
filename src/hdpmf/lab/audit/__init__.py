"""Attacks: lower bounds on epsilon, reconstruction of ratings, recommenders that cheat.

Start with ``run_audit(Audit("hdp-bit", "messages"))``, which runs the library's clients.
``audit_canaries`` observes real devices (`devices`) or real servers (`two_servers`).
``docs/audit.md`` explains the answers.
"""

from hdpmf.lab.audit.canaries import CanaryResult, audit_canaries
from hdpmf.lab.audit.game import (
    ADJACENCIES,
    VIEWS,
    Audit,
    AuditResult,
    audited,
    cells,
    pairs,
    run_audit,
)
from hdpmf.lab.audit.scores import (
    BROKEN,
    NO_CLAIM,
    STANDS,
    LowerBound,
    Scores,
    ceiling,
    lower_bound,
    verdict,
)

__all__ = [
    "ADJACENCIES",
    "BROKEN",
    "NO_CLAIM",
    "STANDS",
    "VIEWS",
    "Audit",
    "AuditResult",
    "CanaryResult",
    "LowerBound",
    "Scores",
    "audit_canaries",
    "audited",
    "ceiling",
    "cells",
    "lower_bound",
    "pairs",
    "run_audit",
    "verdict",
]
