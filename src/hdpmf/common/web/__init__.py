"""Shared by pages in a browser: request checks, sessions, templates, a local server."""
