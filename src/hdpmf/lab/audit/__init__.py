"""Attacks: lower bounds on epsilon, reconstruction of ratings, recommenders that cheat.

Start with `game`: ``run_audit(Audit("hdp-bit", "messages"))`` runs the library's clients.
`canaries` observes real devices (`devices`) or real servers (`two_servers`).
``docs/audit.md`` explains the answers.
"""
