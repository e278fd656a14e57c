"""Tests; modules that they share are imported by their full names."""
