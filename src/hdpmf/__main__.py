"""``python -m hdpmf`` is the ``hdpmf`` command."""

from hdpmf.cli.main import run

run()
