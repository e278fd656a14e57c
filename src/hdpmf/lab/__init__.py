"""Experiments, reports, simulations, audits and the paper's evaluation."""
