"""Alembic's migrations of a server's database: one module for each change of the tables."""
