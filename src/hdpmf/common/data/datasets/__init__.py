"""Registered data sets: what they are, where to find them, how to get them."""
