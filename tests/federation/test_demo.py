"""`hdpmf federate demo`: real processes, and nothing left of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def _demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hdpmf", "federate", "demo", *arguments],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


def _processes_that_mention(text: str) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                command = (
                    (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                )
            except OSError:
                continue
            if text in command:
                found.append(command)
    return found


def test_the_demo_reports_over_tls_and_ends_everything(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    done = _demo("--devices", "20", "--keep", str(kept), "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["devices"] == 20
    assert found["reports"] >= 10  # a busy machine may be late
    assert (found["view"], found["status"], found["epsilon"]) == ("two-servers", "proved", 4.0)
    # The federation draws its own noise, so it is not the library's run again.
    assert abs(found["mse"] - found["library_mse"]) < 0.2
    assert _processes_that_mention(str(kept)) == []
    # Everything private is readable by its owner only, and nothing of it is with the recommender.
    stores = sorted((kept / "devices").glob("*.sqlite"))
    assert len(stores) == 20
    assert all(store.stat().st_mode & 0o077 == 0 for store in stores)
    told = subprocess.run(
        [sys.executable, "-m", "hdpmf", "device", "ledger", str(stores[0]), "--json"],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert [line["part"] for line in json.loads(told.stdout)["lines"]] == ["linear", "pairs"]
    # docs/statement, which `make statement` wrote, is what these commands state, but for how it was
    # made: dates and hashes.
    again = tmp_path / "demo.html"
    subprocess.run(
        [sys.executable, "-m", "hdpmf", "privacy", "statement", str(kept / "recommender"),
         "--out", str(again)],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    made, published = (
        path.read_text().partition('<h2 id="made">')[0]
        for path in (again, DOCS / "statement" / "demo.html")
    )
    assert made == published


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    done = _demo("--keep", str(tmp_path))
    assert done.returncode == 2
    assert "not empty" in done.stderr
    assert (tmp_path / "mine.txt").read_text() == "mine"
