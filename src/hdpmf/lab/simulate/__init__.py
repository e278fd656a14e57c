"""Both sides on one machine, for people who own both: simulation and demonstration."""
