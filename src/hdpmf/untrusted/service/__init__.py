"""The UNTRUSTED recommender as a service."""
