"""Build the download of this machine's system: python packaging/build.py [FOLDER] (make app)."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).parent
SYSTEMS = {"linux": "linux", "darwin": "macos", "win32": "windows"}
NAMES = {"linux": "hdpmf", "darwin": "hdpmf.app", "win32": "hdpmf.exe"}


def build(folder: Path) -> Path:
    """Return the archive: only in one does a file keep that it can be started."""
    work = folder / "work"
    subprocess.run(  # noqa: S603 - words of our own, by no shell
        [
            *(sys.executable, "-m", "PyInstaller", "--noconfirm", "--clean", "--log-level", "WARN"),
            *("--workpath", str(work), "--distpath", str(folder), str(HERE / "hdpmf.spec")),
        ],
        check=True,
    )
    system = sys.platform
    name = f"hdpmf-{version('hdpmf')}-{SYSTEMS[system]}-{platform.machine().lower()}"
    kind = "zip" if system == "win32" else "gztar"
    made = shutil.make_archive(str(folder / name), kind, folder, NAMES[system])
    shutil.rmtree(work)
    return Path(made)


if __name__ == "__main__":
    made = build(Path(sys.argv[1] if len(sys.argv) > 1 else "dist").absolute())
    print(f"{made}: {made.stat().st_size / 1e6:.1f} MB")
