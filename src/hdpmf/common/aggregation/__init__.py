"""Ways to sum contributions."""
