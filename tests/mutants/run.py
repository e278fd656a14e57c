"""Plant small faults, one at a time, and see whether a test fails: make mutants, or

    python tests/mutants/run.py --sample 60 --seed 1             # of all, at random; the same seed gives the same
    python tests/mutants/run.py --only shard/h_law.py            # all of one file or package
    python tests/mutants/run.py --planted                        # the faults of planted.py, which must all be caught
    python tests/mutants/run.py --sample 20 --list               # only say which

Faults are planted in a copy of src. A mutant counts as killed when a test fails or takes far too long; the tests are
those of its package (TESTS) without the slow ones, first those that are named like its module. All of them take days:
two cores do about a hundred an hour. What survives is printed with its place; a line whose change means nothing can be
left out with the comment "no mutant: why". Exit status 1 where fewer than --least are killed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from operators import Mutant, mutants_of
from planted import PLANTED

ROOT = Path(__file__).resolve().parents[2]
SOURCE = Path("src/hdpmf")

TESTS = {
    "privacy/accounting": ("tests/unit/privacy", "tests/cli/test_privacy.py"),
    "privacy": ("tests/unit/privacy", "tests/unit/shard"),
    "shard": ("tests/unit/shard", "tests/unit/device", "tests/attacks"),
    "secure_sum": ("tests/unit/secure_sum", "tests/unit/device/test_agent_sums.py"),
    "device": ("tests/unit/device", "tests/attacks", "tests/cli/test_device.py"),
}
"""What is mutated, and the tests that have to notice; a longer path comes first."""

FAST = ("-m", "not slow and not paper")
QUIET = ("-x", "-q", "--no-header", "-p", "no:cacheprovider")
SLACK, PATIENCE = 60.0, 600.0
"""Seconds: on top of twice what the tests take without a fault, and for tests that were not timed."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A fault and the tests that should fail with it."""

    name: str
    package: str
    path: Path
    content: bytes
    tests: tuple[str, ...]


class Copy:
    """A copy of src in which one file at a time is changed.

    One copy is used for many faults, so that what Numba has compiled is compiled once.
    """

    def __init__(self, folder: Path) -> None:
        self.root = folder
        shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))

    def passes(self, tests: Sequence[str], limit: float | None = None) -> tuple[bool, str]:
        """Whether the tests pass, and the last words if they do not."""
        # What is named by itself is run, however slow it is.
        chosen = () if all("::" in name for name in tests) else FAST
        command = [sys.executable, "-m", "pytest", *QUIET, *chosen, *dict.fromkeys(tests)]
        threads = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}
        environment = os.environ | threads | {"PYTHONPATH": str(self.root / "src")}
        try:
            ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=limit)
        except subprocess.TimeoutExpired:
            return False, "took too long"
        if ended.returncode > 2:  # nothing ran: no word about the fault
            raise SystemExit(f"pytest ended with {ended.returncode} on {' '.join(tests)}:\n{ended.stdout[-2000:]}")
        return ended.returncode == 0, ended.stdout.strip().splitlines()[-1] if ended.stdout.strip() else ""

    def with_fault(self, trial: Trial, limit: float) -> tuple[bool, str]:
        """Whether the tests notice a fault, and by what."""
        target = self.root / trial.path
        before = target.read_bytes()
        try:
            self._write(target, trial.content)
            passed, words = self.passes(trial.tests, limit)
        finally:
            self._write(target, before)
        return not passed, words

    @staticmethod
    def _write(target: Path, content: bytes) -> None:
        target.write_bytes(content)
        # Python knows a compiled file by second and size; two faults of one second may have one size.
        for compiled in (target.parent / "__pycache__").glob(f"{target.stem}.*.pyc"):
            compiled.unlink()


def package_of(path: Path) -> str | None:
    """Which entry of TESTS a file belongs to."""
    inside = path.relative_to(SOURCE).as_posix()
    return next((package for package in TESTS if inside.startswith(f"{package}/")), None)


def tests_of(path: Path, package: str) -> tuple[str, ...]:
    """The tests of a module: those named like it, then those of its package."""
    wanted = path.stem.strip("_")
    named = sorted(
        file.relative_to(ROOT).as_posix()
        for file in (ROOT / "tests").rglob("test_*.py")
        if wanted in file.stem and file.relative_to(ROOT).as_posix().startswith(TESTS[package])
    )
    return (*named, *TESTS[package])


def all_mutants(only: str | None) -> list[Mutant]:
    """Every mutant of the packages, or of one file or folder below src/hdpmf."""
    found: list[Mutant] = []
    for path in sorted((ROOT / SOURCE).rglob("*.py")):
        relative = path.relative_to(ROOT)
        inside = relative.relative_to(SOURCE).as_posix()
        if package_of(relative) is None or (only is not None and not inside.startswith(only)):
            continue
        found += mutants_of(relative, path.read_bytes())
    return found


def planted() -> list[Trial]:
    """The faults of planted.py; what the code has moved away from is reported and left out."""
    trials = []
    for fault in PLANTED:
        path = SOURCE / fault.path
        source = (ROOT / path).read_text() if (ROOT / path).exists() else ""
        if source.count(fault.old) != 1:
            print(f"STALE     {fault.name}: {path} does not have this text once; plant it anew")
            continue
        content = source.replace(fault.old, fault.new).encode()
        trials.append(Trial(fault.name, "planted", path, content, fault.tests))
    return trials


def chosen(arguments: argparse.Namespace) -> list[Trial]:
    """The trials that the command line asks for."""
    if arguments.planted:
        return [trial for trial in planted() if arguments.only is None or arguments.only in str(trial.path)]
    mutants = all_mutants(arguments.only)
    if arguments.sample is not None and arguments.sample < len(mutants):
        mutants = sorted(random.Random(arguments.seed).sample(mutants, arguments.sample), key=str)
    trials = []
    for mutant in mutants:
        package = package_of(mutant.path) or ""
        content = mutant.applied((ROOT / mutant.path).read_bytes())
        try:
            compile(content, str(mutant.path), "exec")
        except SyntaxError:  # a pattern of match, say, takes no expressions
            continue
        trials.append(Trial(str(mutant), package, mutant.path, content, tests_of(mutant.path, package)))
    return trials


def main() -> int:
    """Run the trials, print what survives and the score."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, metavar="N", help="so many at random instead of all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", metavar="PATH", help="a file or folder below src/hdpmf")
    parser.add_argument("--planted", action="store_true")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--least", type=float, default=0.9, help="part that has to be killed (default: 0.9)")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--out", type=Path, help="write every result here as a line of JSON")
    arguments = parser.parse_args()
    trials = chosen(arguments)
    if arguments.list:
        print(*(trial.name for trial in trials), sep="\n")
        return 0
    with tempfile.TemporaryDirectory(prefix="hdpmf-mutants-") as folder:
        return _run(trials, Path(folder), arguments)


def _run(trials: Sequence[Trial], folder: Path, arguments: argparse.Namespace) -> int:
    copies: SimpleQueue[Copy] = SimpleQueue()
    for job in range(arguments.jobs):
        copies.put(Copy(folder / str(job)))
    limits: dict[tuple[str, ...], float] = {}
    for tests in dict.fromkeys(tuple(sorted(set(trial.tests))) for trial in trials):
        if arguments.planted:  # its tests are few and known to pass
            limits[tests] = PATIENCE
            continue
        copy = copies.get()
        begin = time.perf_counter()
        passed, words = copy.passes(tests)
        copies.put(copy)
        if not passed:
            sys.exit(f"without any fault {' '.join(tests)} should pass: {words}")
        limits[tests] = 2 * (time.perf_counter() - begin) + SLACK

    def attempt(trial: Trial) -> bool:
        copy = copies.get()
        try:
            killed, words = copy.with_fault(trial, limits[tuple(sorted(set(trial.tests)))])
        finally:
            copies.put(copy)
        print(f"{'killed' if killed else 'SURVIVED':9} {trial.name}", flush=True)
        if arguments.out is not None:
            line = {"mutant": trial.name, "package": trial.package, "killed": killed, "by": words}
            with arguments.out.open("a") as stream:
                stream.write(json.dumps(line) + "\n")
        return killed

    with ThreadPoolExecutor(arguments.jobs) as pool:
        killed = list(pool.map(attempt, trials))
    counts, caught = Counter(trial.package for trial in trials), Counter[str]()
    for trial, dead in zip(trials, killed, strict=True):
        caught[trial.package] += dead
    for package in counts:
        print(f"{package:20} {caught[package]:5} of {counts[package]:5} killed")
    score = sum(killed) / max(len(killed), 1)
    print(f"{'together':20} {score:.1%}")
    return 0 if score >= (1.0 if arguments.planted else arguments.least) else 1


if __name__ == "__main__":
    sys.exit(main())
