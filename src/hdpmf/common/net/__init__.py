"""HTTPS between machines."""
