"""Attacks: lower bounds on epsilon, and reconstruction of ratings.

Start with `game`: ``run_audit(Audit("hdp-bit", "messages"))``. ``docs/audit.md`` explains the
answers.
"""
