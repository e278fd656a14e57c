"""Writing a report: the page, the figures, the CSV and the LaTeX files."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from hdpmf.errors import StorageError
from hdpmf.files import atomic_write
from hdpmf.report.content import read_content
from hdpmf.report.csv_files import csv_files
from hdpmf.report.figures import figure_files
from hdpmf.report.findings import count_marks, findings
from hdpmf.report.latex import latex_files
from hdpmf.report.page import render


@dataclass(frozen=True, slots=True)
class Written:
    """What a report came to.

    Attributes:
        folder: Where it is.
        files: Paths of its files, relative to the folder.
        findings: The headline, in sentences.
        marks: How many numbers of Table III got each mark.
        missing: Cells without a complete result.
        problems: What could not be read.
    """

    folder: Path
    files: tuple[str, ...]
    findings: tuple[str, ...]
    marks: dict[str, int]
    missing: int
    problems: tuple[str, ...]


def write_report(results: str | PathLike[str], out: str | PathLike[str]) -> Written:
    """Turn the results in a folder into a report. The same results give the same bytes.

    Args:
        results: The folder with ``results.sqlite``.
        out: The folder to write into; files there with the same names are replaced.

    Raises:
        ConfigError: There are no results.
        StorageError: Results that cannot be read, or a folder that cannot be written.
    """
    content = read_content(results)
    folder = Path(out)
    files: dict[str, bytes] = {"index.html": render(content).encode()}
    files |= {f"csv/{name}": data for name, data in csv_files(content).items()}
    files |= {f"latex/{name}": data for name, data in latex_files(content).items()}
    files |= {f"figures/{name}": data for name, data in figure_files(content).items()}
    for parent in sorted({str(Path(name).parent) for name in files}):
        try:
            (folder / parent).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(
                f"cannot make the folder {folder / parent}: {error.strerror}; choose another one"
            ) from error
    for name, data in files.items():
        atomic_write(folder / name, data)
    return Written(
        folder,
        tuple(files),
        tuple(findings(content)),
        count_marks(content),
        sum(cell.status in ("missing", "failed") for cell in content.all_cells),
        tuple(content.problems),
    )
