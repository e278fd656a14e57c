"""Build the container image without an engine, and run a federation in it (``make image``).

buildah builds in a chroot, so that no daemon is needed. No registry is reached: the base is Debian
with its own Python, made by debootstrap, under the name that the Dockerfile asks for. Needs root,
``apt-get install buildah debootstrap``, and what pip needs. It takes minutes, so that it is not in
CI; ``test_container.py`` is.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.deploy.page import ROOT

DOCKERFILE = ROOT / "deploy" / "Dockerfile"

FEDERATION = Path(__file__).with_name("federation_in_image.sh")


def main() -> None:
    """Build and run; say what was seen."""
    lacking = [tool for tool in ("buildah", "debootstrap") if shutil.which(tool) is None]
    if lacking or os.geteuid() != 0:
        raise SystemExit(f"not possible here: root, and apt-get install {' '.join(lacking)}")
    with tempfile.TemporaryDirectory(prefix="hdpmf-image-") as place:
        folder = Path(place)
        bases = set(re.findall(r"^FROM (\S+)", DOCKERFILE.read_text("utf-8"), re.MULTILINE))
        (base,) = bases
        _make_base(folder, f"docker.io/library/{base}")
        # what pip is told here: indexes are nobody's business in an image
        config = folder / "pip.conf"
        config.write_text(_pip_config())
        mounts = ["-v", f"{config}:/etc/pip.conf:ro", "-v", "/etc/ssl/certs:/etc/ssl/certs:ro"]
        build = ["bud", "--isolation", "chroot", "--network", "host", "--pull-never", *mounts]
        _buildah(folder, *build, "-f", str(DOCKERFILE), "-t", "hdpmf", str(ROOT))
        container = _buildah(folder, "from", "--pull-never", "localhost/hdpmf", quiet=True)
        run = ["run", "--isolation", "chroot", "--user", "10001:10001", container, "--"]
        print(_buildah(folder, *run, "hdpmf", "--version", quiet=True))
        written = "touch /opt/hdpmf/x 2>/dev/null && echo writable || echo read-only"
        if _buildah(folder, *run, "sh", "-c", written, quiet=True) != "read-only":
            raise SystemExit("the program can be written by its user")
        _buildah(folder, *run, "sh", "-c", FEDERATION.read_text())


def _make_base(folder: Path, name: str) -> None:
    tree = folder / "base"
    packages = "--include=ca-certificates,python3,python3-venv"
    made = ["debootstrap", "--variant=minbase", packages, "bookworm", str(tree)]
    subprocess.run(made, check=True, stdout=subprocess.DEVNULL)
    (tree / "usr/bin/python").symlink_to("python3")
    container = _buildah(folder, "from", "scratch", quiet=True)
    _buildah(folder, "add", "-q", container, str(tree), "/", quiet=True)
    _buildah(folder, "commit", "-q", "--rm", container, name, quiet=True)
    shutil.rmtree(tree)


def _pip_config() -> str:
    told = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(told, capture_output=True, text=True, check=True).stdout
    pairs = re.findall(r"^global\.([\w-]+)='(.*)'$", listed, re.MULTILINE)
    return "[global]\n" + "".join(f"{name} = {value}\n" for name, value in pairs)


def _buildah(folder: Path, *words: str, quiet: bool = False) -> str:
    """Run a command of buildah; return what it says, or show it."""
    storage = ["--root", str(folder / "storage"), "--runroot", str(folder / "run")]
    done = subprocess.run(
        ["buildah", "--storage-driver", "vfs", *storage, *words],
        check=True,
        text=True,
        stdout=subprocess.PIPE if quiet else None,
    )
    return (done.stdout or "").strip()


if __name__ == "__main__":
    main()
