"""Optional packages: absent ones are named together with the command that installs them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hdpmf.errors import MissingExtraError


@contextmanager
def needs(package: str, extra: str = "federation") -> Iterator[None]:
    """Imports inside: if ``package`` is not installed, the error says what to do."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != package:
            raise
        raise MissingExtraError(f"this needs {package}: pip install 'hdpmf[{extra}]'") from error
