"""Plant small faults, one at a time, and see whether a test fails: make mutants, or

    python tests/mutants/run.py --sample 120 --seed 1   # at random; a seed repeats them
    python tests/mutants/run.py --only private/client/h_plausibility.py    # a file, package or line
    python tests/mutants/run.py --planted               # those of planted.py; all must be caught
    python tests/mutants/run.py --sample 20 --list      # only say which

Faults are planted in a copy of src. A mutant counts as killed when a test fails, or takes far too
long while the same tests without the fault do not. First all fast tests of TESTS run once without a
fault, to learn which lines each runs (reached.py, minutes; kept in out/mutants for the next time).
Then a mutant is tried on the tests that run its statement, those in files named like its module and
those that run little else first; where it is in no function, or on a line that no test runs, on all
tests of its package. What survives is tried on mypy, which make check runs beside the tests, and
then on a few slow tests in files or folders named like its module: these wait for processes and
clocks, so one that fails has to pass without the fault and fail with it once more. In the end all
tests that have killed run once without a fault: one that fails then has killed nothing. The score
is printed for each kind.
A few seconds each, a minute or more for what survives, which is printed with its location. A line
whose change means nothing is left out with the comment "no mutant: why". Exit status 1 where fewer
than 110 of 120 are killed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from operator import itemgetter
from pathlib import Path
from queue import SimpleQueue

from operators import Mutant, mutants_of
from planted import PLANTED
from reached import Reached, Test

ROOT = Path(__file__).resolve().parents[2]
SOURCE = Path("src/hdpmf")
REACHED = ROOT / "out" / "mutants" / "reached.jsonl"

_NUMBERS = "tests/unit/test_numbers.py"
TESTS = {
    "common/privacy/accounting": (_NUMBERS, "tests/unit/privacy", "tests/cli/test_privacy.py"),
    "common/privacy": (_NUMBERS, "tests/unit/privacy", "tests/unit/client"),
    "private/client": (_NUMBERS, "tests/unit/client", "tests/unit/participant"),
    "private/device": (
        _NUMBERS,
        "tests/unit/participant",
        "tests/unit/base/test_schemas.py",
        "tests/attacks",
        "tests/cli/test_device.py",
    ),
    "untrusted/aggregator": (
        _NUMBERS,
        "tests/unit/aggregator",
        "tests/unit/base/test_schemas.py",
        "tests/attacks/servers",
        "tests/cli/test_aggregator.py",
    ),
    "common/aggregation/two_servers/prio": (
        _NUMBERS,
        "tests/unit/prio",
        "tests/unit/aggregator",
    ),
    "common/aggregation/two_servers/dap": (_NUMBERS, "tests/unit/dap", "tests/unit/aggregator"),
    "common/net": (
        _NUMBERS,
        "tests/unit/net",
        "tests/attacks/wire",
    ),
}
"""What is mutated, and the tests that have to notice; a longer path comes first."""

WIDER = tuple(
    f"tests/unit/{folder}"
    for folder in ("methods", "model", "models", "protocol", "service", "simulate")
)
"""Tests of what is built on it, which may notice as well."""

LEAST = 110 / 120

FAST = ("-m", "not slow and not paper")
TYPES = "types"
FAST_TESTS, SLOW_TESTS = "fast tests", "slow tests"
QUIET = ("-q", "--no-header", "-p", "no:cacheprovider")
NOTHING_TO_RUN = 5
TOO_LONG = "took too long"
LIKELY = 40
"""Tests in a first batch: most mutants are killed by one of them, and starting all others takes
a while.
"""
WIDE, SLOW = 60, 12
"""Tests of WIDER and slow tests that are tried at most."""
SLACK, PATIENCE = 120.0, 600.0
"""Seconds: on top of twice what the tests take without a fault, so that a busy machine is not
taken for an endless loop, and for planted faults, whose tests are not timed.
"""


_FAILED = ("FAILED tests/", "ERROR tests/")  # not a line of a log


def _failed(words: str) -> set[str]:
    """The tests that pytest's last words name."""
    return {
        line.partition(" ")[2].partition(" - ")[0]
        for line in words.splitlines()
        if line.startswith(_FAILED)
    }


@dataclass(frozen=True, slots=True)
class Batch:
    """Tests that run together, of a kind, and the seconds that they may take; or mypy, which has
    no tests.
    """

    kind: str
    tests: tuple[str, ...] = ()
    limit: float = PATIENCE


@dataclass(frozen=True, slots=True)
class Trial:
    """A fault and the tests that should fail with it."""

    name: str
    package: str
    path: Path
    content: bytes
    batches: tuple[Batch, ...]


class Copy:
    """A copy of src in which one file at a time is changed.

    One copy is used for many faults, so that what Numba has compiled is compiled once. Numba knows
    a compiled function by its own file only, not by those of the functions that it calls: faults in
    what it compiles get a cache of their own.
    """

    def __init__(self, folder: Path) -> None:
        self.root = folder
        self._sound, self._faulty = folder / "numba", folder / "numba-faulty"
        self._cache = self._sound
        shutil.copytree(
            ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
        )
        shutil.copy(ROOT / "pyproject.toml", folder)
        if (ROOT / ".mypy_cache").exists():
            shutil.copytree(ROOT / ".mypy_cache", folder / ".mypy_cache")

    def passes(
        self,
        tests: Sequence[str],
        limit: float | None = None,
        reached: Path | None = None,
        *,
        to_the_end: bool = False,
    ) -> tuple[bool, str]:
        """Whether the tests pass, and which failed first, or of all; what they call is written to
        a file, if named.
        """
        # What is named by itself is run, however slow it is.
        chosen = () if all("::" in name for name in tests) else FAST
        plugin = ("-p", "reached") if reached is not None else () if to_the_end else ("-x",)
        command = [sys.executable, "-m", "pytest", *QUIET, *plugin, *chosen, *dict.fromkeys(tests)]
        environment = os.environ | {
            f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL", "NUMBA")
        }
        environment["PYTHONPATH"] = os.pathsep.join(
            (str(self.root / "src"), str(Path(__file__).parent))
        )
        environment["REACHED"] = str(reached)
        environment["NUMBA_CACHE_DIR"] = str(self._cache)
        try:
            ended = subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=limit
            )
        except subprocess.TimeoutExpired:
            return False, TOO_LONG
        if ended.returncode == NOTHING_TO_RUN and reached is not None:
            return True, ""
        if "found no collectors" in ended.stderr or "ImportError while loading" in ended.stderr:
            return False, "cannot be imported"
        if (
            "not found" in ended.stderr and "::" in tests[0]
        ):  # a test named after a number that the fault has changed
            files = [name.partition("::")[0] for name in tests]
            return self.passes(files, limit, reached, to_the_end=to_the_end)
        if ended.returncode > 2:  # no word about the fault
            raise SystemExit(
                f"pytest ended with {ended.returncode} on {' '.join(tests[:3])}:\n"
                f"{ended.stdout[-2000:]}\n"
                f"{ended.stderr[-2000:]}"
            )
        words = [line for line in ended.stdout.splitlines() if line.startswith(_FAILED)]
        return ended.returncode == 0, "\n".join(words)

    def has_types(self) -> tuple[bool, str]:
        """Whether mypy finds nothing, and the first error if it does."""
        ended = subprocess.run(
            [sys.executable, "-m", "mypy"], cwd=self.root, capture_output=True, text=True
        )
        if ended.returncode > 1:  # no word about the fault
            raise SystemExit(f"mypy ended with {ended.returncode}:\n{ended.stdout}{ended.stderr}")
        return ended.returncode == 0, ended.stdout.partition("\n")[0]

    def with_fault(self, trial: Trial) -> tuple[str | None, str]:
        """The kind of test that notices a fault, if any does, and its words."""
        target = self.root / trial.path
        before = target.read_bytes()
        if b"njit" in before:
            self._cache = self._faulty
        try:
            for batch in trial.batches:
                self._write(target, trial.content)
                if batch.kind == TYPES:
                    passed, words = self.has_types()
                else:
                    passed, words = self._tried(target, before, trial.content, batch)
                if not passed:
                    return batch.kind, words
        finally:
            self._write(target, before)
            self._cache = self._sound
        return None, ""

    def _tried(self, target: Path, sound: bytes, faulty: bytes, batch: Batch) -> tuple[bool, str]:
        """Whether a batch passes with the fault. Where it does not, the fault has to be the
        reason, not a busy machine.
        """
        limit = batch.limit
        passed, words = self.passes(batch.tests, limit)
        while words == TOO_LONG:
            self._write(target, sound)
            if self.passes(batch.tests, limit)[1] != TOO_LONG:
                return False, TOO_LONG
            limit *= 2
            self._write(target, faulty)
            passed, words = self.passes(batch.tests, limit)
        if not passed and batch.kind == SLOW_TESTS:
            failed = sorted(_failed(words))
            self._write(target, sound)
            if not self.passes(failed, PATIENCE)[0]:
                return True, f"fails without the fault, too: {words}"
            self._write(target, faulty)
            passed, words = self.passes(failed, PATIENCE)
        return passed, words

    def _write(self, target: Path, content: bytes) -> None:
        target.write_bytes(content)
        shutil.rmtree(self._faulty, ignore_errors=True)
        # Python knows a compiled file by second and size; two faults of one second may have one
        # size.
        for compiled in (target.parent / "__pycache__").glob(f"{target.stem}.*.pyc"):
            compiled.unlink()


def package_of(path: Path) -> str | None:
    """Which entry of TESTS a file belongs to."""
    inside = path.relative_to(SOURCE).as_posix()
    return next((package for package in TESTS if inside.startswith(f"{package}/")), None)


def tests_of(mutant: Mutant, package: str, reached: Reached) -> tuple[list[Test], ...]:
    """The tests that can notice a mutant, in three batches: a few fast ones that are about it most
    likely, all other fast ones, and slow ones.

    Likely are tests in files named like its module, and tests that run little else. Where no test
    is known to run it (it is in no function, or Numba compiles it), those of numbers and then those
    in a folder named like its own come first.
    """
    inside = mutant.path.relative_to("src").as_posix()
    running = reached.running(inside, (ROOT / mutant.path).read_bytes(), mutant.line)
    ours = [test for test in reached.tests if test.file.startswith(TESTS[package])]
    fast = running or [test for test in ours if not test.slow]
    stem = mutant.path.stem.strip("_")
    module = mutant.path.with_suffix("").relative_to(SOURCE).as_posix().replace("/", ".")

    def unlikely(test: Test) -> int:
        if test.file == _NUMBERS:  # which has a test for each module
            return 0 if f"[{module}]" in test.name else 2
        if stem in test.file:
            return 0
        return 1 if not running and f"/{mutant.path.parent.name}/" in test.file else 2

    fast.sort(key=lambda test: (unlikely(test), test.lines, test.name))
    wide = [test for test in fast[LIKELY:] if test.file.startswith(WIDER)][:WIDE]
    others = [test for test in fast[LIKELY:] if not test.file.startswith(WIDER)] + wide
    others.sort(key=lambda test: (test.file.startswith(WIDER), unlikely(test), test.file))
    named = stem, f"/{mutant.path.parent.name}/"
    slow = [test for test in ours if test.slow and any(name in test.file for name in named)]
    slow.sort(key=lambda test: (unlikely(test), test.name))
    return fast[:LIKELY], others, slow[:SLOW]


def all_mutants(only: str | None) -> list[Mutant]:
    """Every mutant of the packages, or of one folder, file or line (file:line) below src/hdpmf."""
    place, _, line = (only or "").partition(":")
    found: list[Mutant] = []
    for path in sorted((ROOT / SOURCE).rglob("*.py")):
        relative = path.relative_to(ROOT)
        inside = relative.relative_to(SOURCE).as_posix()
        if package_of(relative) is not None and inside.startswith(place):
            found += mutants_of(relative, path.read_bytes())
    return [mutant for mutant in found if line in ("", str(mutant.line))]


def planted(only: str | None) -> list[Trial]:
    """The faults of planted.py. Where the code has moved away from one, nobody knows whether it
    would be caught.
    """
    trials = []
    for fault in PLANTED:
        if only is not None and only not in fault.path:
            continue
        path = SOURCE / fault.path
        source = (ROOT / path).read_text() if (ROOT / path).exists() else ""
        if source.count(fault.old) != 1:
            sys.exit(f"{fault.name}: {path} does not have this text once; plant it anew")
        content = source.replace(fault.old, fault.new).encode()
        trials.append(
            Trial(fault.name, "planted", path, content, (Batch(FAST_TESTS, fault.tests),))
        )
    return trials


def sampled(mutants: Sequence[Mutant], n: int, seed: int) -> list[Mutant]:
    """So many at random, in their order. Each is drawn by itself, so that a seed has the same ones
    after a change elsewhere, whatever lines they are on then.
    """
    alike, drawn = Counter[tuple[Path, str, str]](), []
    for mutant in mutants:
        what = mutant.path, mutant.old, mutant.new
        alike[what] += 1
        drawn.append((sha256(repr((seed, *map(str, what), alike[what])).encode()).digest(), mutant))
    return sorted((mutant for _, mutant in sorted(drawn, key=itemgetter(0))[:n]), key=str)


def chosen(arguments: argparse.Namespace) -> list[Mutant]:
    """The mutants that the command line asks for."""
    mutants = all_mutants(arguments.only)
    if arguments.sample is not None and arguments.sample < len(mutants):
        mutants = sampled(mutants, arguments.sample, arguments.seed)
    return [mutant for mutant in mutants if _compiles(mutant)]


def _content(mutant: Mutant) -> bytes:
    return mutant.applied((ROOT / mutant.path).read_bytes())


def _compiles(mutant: Mutant) -> bool:
    try:
        compile(_content(mutant), str(mutant.path), "exec")
    except SyntaxError:  # a pattern of match, say, takes no expressions
        return False
    return True


def measured(copy: Copy, packages: Collection[str]) -> Reached:
    """The tests of these packages, fast ones with what they run; only test files that are new or
    have changed are run for that.
    """
    names = {name for package in packages for name in TESTS[package]} | set(WIDER)
    files = sorted(
        path.relative_to(ROOT).as_posix()
        for name in names
        for path in ((ROOT / name).rglob("test_*.py") if (ROOT / name).is_dir() else [ROOT / name])
    )
    REACHED.parent.mkdir(parents=True, exist_ok=True)
    known = Reached.read(REACHED, ROOT).files
    if missing := [file for file in files if file not in known]:
        print(f"which tests run what: trying {len(missing)} files without a fault ...", flush=True)
        # What breaks off half-way must not pass for measured the next time.
        new = REACHED.with_suffix(".new")
        new.unlink(missing_ok=True)
        passed, words = copy.passes(missing, reached=new)
        if not passed:
            print(f"left out, for without any fault they should pass:\n{words}", flush=True)
        with REACHED.open("a") as stream:
            stream.write(new.read_text())
        new.unlink()
    return Reached.read(REACHED, ROOT)


def to_try(mutants: Sequence[Mutant], copy: Copy, everything: bool) -> list[Trial]:
    """The mutants with their tests: of all packages, or only of those that the mutants are in."""
    here = {package_of(mutant.path) or "" for mutant in mutants}
    reached = measured(copy, TESTS if everything else here)
    trials = []
    for mutant in mutants:
        package = package_of(mutant.path) or ""
        likely, others, slow = tests_of(mutant, package, reached)
        batches = [
            *(_batch(FAST_TESTS, likely), _batch(FAST_TESTS, others)),
            *(Batch(TYPES), _batch(SLOW_TESTS, slow)),
        ]
        batches = [batch for batch in batches if batch.tests or batch.kind == TYPES]
        trials.append(Trial(str(mutant), package, mutant.path, _content(mutant), tuple(batches)))
    return trials


def _batch(kind: str, tests: Sequence[Test]) -> Batch:
    seconds = PATIENCE if kind == SLOW_TESTS else 2 * sum(test.seconds for test in tests) + SLACK
    return Batch(kind, tuple(test.name for test in tests), seconds)


def main() -> int:
    """Run the trials, print what survives and the score."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sample", type=int, metavar="N", help="so many at random instead of all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--only", metavar="PATH", help="a folder, file or file:line below src/hdpmf"
    )
    parser.add_argument("--planted", action="store_true")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--list", action="store_true")
    arguments = parser.parse_args()
    if arguments.list:
        print(*chosen(arguments), sep="\n")
        return 0
    with tempfile.TemporaryDirectory(prefix="hdpmf-mutants-") as folder:
        return _run(Path(folder), arguments)


def _believed(copy: Copy, found: Sequence[tuple[str | None, str]]) -> list[str | None]:
    """What killed each, if anything: not a test that fails without a fault as well."""
    killers = sorted({test for _, words in found for test in _failed(words)})
    broken = _failed(copy.passes(killers, to_the_end=True)[1]) if killers else set()
    if broken:
        print("fail without any fault, and count for nothing:", *sorted(broken), sep="\n")
    return [None if _failed(words) & broken else kind for kind, words in found]


def _run(folder: Path, arguments: argparse.Namespace) -> int:
    each = [Copy(folder / str(job)) for job in range(arguments.jobs)]
    trials = (
        planted(arguments.only)
        if arguments.planted
        else to_try(chosen(arguments), each[0], arguments.only is None)
    )
    copies: SimpleQueue[Copy] = SimpleQueue()
    for copy in each:
        copies.put(copy)

    def attempt(trial: Trial) -> tuple[str | None, str]:
        copy = copies.get()
        try:
            killed, words = copy.with_fault(trial)
        finally:
            copies.put(copy)
        late = f" ({TOO_LONG})" if words == TOO_LONG else ""
        print(f"{'killed' if killed else 'SURVIVED':9} {trial.name}{late}", flush=True)
        return killed, words

    with ThreadPoolExecutor(arguments.jobs) as pool:
        killed = _believed(each[0], list(pool.map(attempt, trials)))
    counts, caught = Counter(trial.package for trial in trials), Counter[str]()
    for trial, kind in zip(trials, killed, strict=True):
        caught[trial.package] += kind is not None
    for package in counts:
        print(f"{package:36} {caught[package]:5} of {counts[package]:5} killed")
    for kind, count in Counter(filter(None, killed)).most_common():
        print(f"by {kind:33} {count:5}")
    score = caught.total() / max(len(killed), 1)
    print(f"{'together':36} {caught.total():5} of {len(killed):5} killed: {score:.1%}")
    return 0 if score >= (1.0 if arguments.planted else LEAST) else 1


if __name__ == "__main__":
    sys.exit(main())
