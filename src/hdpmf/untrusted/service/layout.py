"""The layout of a recommender's folder, and the numbers of its runs.

Every run has its number: file times, which a plain copy of the folder forgets, do not count.
"""

from __future__ import annotations

from pathlib import Path

from hdpmf.common.base.files import FolderLayout, atomic_write
from hdpmf.errors import StorageError

NUMBER = "number"
"""In the folder of a run: which one it is, counted from 1."""


def number_of(run: Path) -> int:
    """The number in the folder of a run."""
    try:
        return int((run / NUMBER).read_text("ascii"))
    except (OSError, ValueError) as error:
        raise StorageError(
            f"{run / NUMBER} cannot be read ({type(error).__name__}); restore a backup"
        ) from None


def write_number(run: Path, number: int) -> None:
    """Say which run it is."""
    atomic_write(run / NUMBER, f"{number}\n".encode())


def begun_runs(folder: Path) -> list[Path]:
    """The folders of all runs that were begun, in no order."""
    return [path.parent for path in (folder / "runs").glob("*/settings.json") if path.is_file()]


LAYOUT = FolderLayout("a recommender's folder", first=2)
"""A change after which older folders could not be read needs a step."""
