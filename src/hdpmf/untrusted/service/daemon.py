"""The recommender's daemon: publishes the newest model, resumes and begins runs.

The operator requests a run (``hdpmf recommender run``, a request in the folder) or ``every`` in
``config.toml`` does. A restart begins nothing.
"""

import math
import secrets
import time
from collections.abc import Callable
from typing import TypeVar

import msgspec

from hdpmf.common.base.files import atomic_write
from hdpmf.errors import (
    ConfigError,
    FederationError,
    HdpmfError,
    RunOverError,
    StorageError,
)
from hdpmf.untrusted.service.folder import ServiceFolder
from hdpmf.untrusted.service.outcome import RunOutcome
from hdpmf.untrusted.service.run import no_log
from hdpmf.untrusted.service.service import Service
from hdpmf.untrusted.service.settings import RUN_BYTES, RunSettings, Trouble, seconds

LONGEST_PAUSE = 3600.0
"""Seconds between attempts at a run that cannot go on."""

_POLL_SECONDS = 60.0  # between looks at what is due

Written = TypeVar("Written")


class _GivenUpError(Exception):
    """The operator gives the run up that is under way."""


class Daemon:
    """Serves a folder until interrupted; after a kill, the next start goes on.

    Args:
        service: Begins and conducts runs. It sleeps by `nap`, so that the operator can give up a
            run that waits.
        report: Called with the outcome of each run.
        log: Called with lines for people.
    """

    def __init__(
        self,
        service: Service,
        *,
        report: Callable[[RunOutcome], None] = lambda outcome: None,
        log: Callable[[str], None] = no_log,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._service = service
        self._folder = service.folder
        self._metrics = service.metrics
        service.sleep = self.nap
        self._report = report
        self._log = log
        self._sleep = sleep
        self._clock = clock
        self._looked = 0.0
        self._said = ""
        self._full = ""
        self._pause = 0.0
        self._conducted: bytes | None = None

    def live(self) -> None:
        """Serve until interrupted."""
        if self._folder.unfinished() is None:
            self._written(self._service.publish)
        while True:
            run = self._folder.unfinished() or self._written(self._begin)
            if run is None:
                self._idle()
            else:
                self._conduct(run)

    def _begin(self) -> bytes | None:
        """Write down the run that the operator or the schedule asks for."""
        request = request_in(self._folder)
        if request is not None:
            run = bytes.fromhex(request.run)
            settings = None if run in self._folder.runs() else request.settings
            begun = None if settings is None else self._begun(settings, "asked for", run)
            drop_request(self._folder)
            return begun
        now = self._clock()
        if now - self._looked < _POLL_SECONDS:
            return None
        self._looked = now
        settings = next_settings(self._folder, now)
        return None if settings is None else self._begun(settings, "due")

    def _begun(self, settings: RunSettings, why: str, run: bytes | None = None) -> bytes | None:
        try:
            run = self._service.begin(settings, run)
        except StorageError:
            raise
        except HdpmfError as error:
            self._metrics.not_begun = f"a run is {why} and cannot begin: {error}"
            self._say(self._metrics.not_begun)
            return None
        self._metrics.not_begun = ""
        self._log(f"run {run.hex()[:12]} begins, since it is {why}")
        return run

    def _conduct(self, run: bytes) -> None:
        self._conducted = run
        try:
            self._attempt(run)
        except _GivenUpError:
            self._written(lambda: self._give_up(run))
        finally:
            self._conducted = None

    def _give_up(self, run: bytes, cause: str = "") -> None:
        self._service.give_up(run, cause)
        drop_request(self._folder)
        self._pause = 0.0
        why = f" ({cause})" if cause else ""
        self._log(
            f"run {run.hex()[:12]} is given up{why}; what devices have paid for it stays paid"
        )

    def _attempt(self, run: bytes) -> None:
        """Bring the run to its end; where it cannot go on, wait before the next attempt."""
        self._heed()
        try:
            outcome = self._service.conduct(run)
        except RunOverError as error:
            cause = error.cause
            self._written(lambda: self._give_up(run, cause))
        except (FederationError, StorageError) as error:
            least = max(self._folder.config.pace.retry, 0.1)
            self._pause = min(max(2 * self._pause, least), LONGEST_PAUSE)
            self._log(f"run {run.hex()[:12]} waits {self._pause:.0f} s: {error}")
            end = self._clock() + self._pause
            trouble = self._trouble(error, end)
            self._written(lambda: self._folder.run_files(run).keep_trouble(trouble))
            self._wait_until(end)
        except HdpmfError as error:
            self._folder.run_files(run).keep_trouble(self._trouble(error))
            raise
        else:
            self._pause = 0.0
            self._report(outcome)

    def _trouble(self, error: HdpmfError, retry: float | None = None) -> Trouble:
        """Return why a run cannot go on, for ``status``."""
        cause = str(error)
        remedy = ""
        if isinstance(error, FederationError):
            cause = error.cause
            remedy = error.remedy
        return Trouble(cause=cause, remedy=remedy, at=self._clock(), retry=retry)

    def _wait_until(self, end: float) -> None:
        self._metrics.until = end
        try:
            while self._clock() < end:
                self._idle()
        finally:
            self._metrics.until = None

    def _idle(self) -> None:
        model = self._folder.model() is not None
        words = (
            "publishing the model" if model else "waiting for a first run (hdpmf recommender run)"
        )
        self._metrics.stage = (
            words if self._conducted is None else "waiting before the run is tried again"
        )
        self._written(self._service.publish_items)
        self._written(self._service.publish_keys)
        self._service.write_state()
        self._say(self._metrics.stage)
        self.nap(max(self._folder.config.pace.pause, 0.1))

    def nap(self, seconds: float) -> None:
        """Sleep, and see meanwhile whether the operator gives up the run under way."""
        for left in range(math.ceil(seconds), 0, -1):
            self._heed()
            self._sleep(seconds - (left - 1) if left == math.ceil(seconds) else 1.0)

    def _heed(self) -> None:
        request = None if self._conducted is None else request_in(self._folder)
        if (
            request is not None
            and self._conducted is not None
            and request == Request(run=self._conducted.hex())
        ):
            raise _GivenUpError

    def _written(self, act: Callable[[], Written]) -> Written | None:
        """Do what needs the disk; where that is full, say so and try again later."""
        try:
            return act()
        except StorageError as error:
            if str(error) != self._full:
                self._log(str(error))
            self._full = str(error)
            self._sleep(max(self._folder.config.pace.pause, 0.1))
            return None

    def _say(self, line: str) -> None:
        """Once, until something else is to be said."""
        if line and line != self._said:
            self._log(line)
        self._said = line or self._said


_FILE = "requested.json"


class Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request of the operator.

    Attributes:
        run: Id (hex) of a new run, so that a request is met once whatever is killed; or of the one
            to give up.
        settings: Of the new run; None to give up.
    """

    run: str
    settings: RunSettings | None = None


def ask_for_run(folder: ServiceFolder, settings: RunSettings) -> str:
    """Leave the request for a run; its id."""
    if request_in(folder) is not None:
        raise ConfigError(
            f"a request waits in {folder.path / _FILE} already; let it be met, or delete the file"
        )
    run = secrets.token_hex(RUN_BYTES)
    _write(folder, Request(run=run, settings=settings))
    return run


def ask_to_give_up(folder: ServiceFolder, run: bytes) -> None:
    """Leave the request to give a run up; it goes before any other."""
    _write(folder, Request(run=run.hex()))


def request_in(folder: ServiceFolder) -> Request | None:
    """The request that waits in a folder."""
    path = folder.path / _FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=Request)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError, HdpmfError) as error:
        raise StorageError(f"{path} cannot be read ({error}); delete it, and ask again") from None


def drop_request(folder: ServiceFolder) -> None:
    """It is met, or cannot be."""
    (folder.path / _FILE).unlink(missing_ok=True)


def _write(folder: ServiceFolder, request: Request) -> None:
    atomic_write(folder.path / _FILE, msgspec.json.format(msgspec.json.encode(request), indent=1))


def next_settings(folder: ServiceFolder, now: float) -> RunSettings | None:
    """Return the settings of the run that is due, or None.

    They are those of the last finished run, which the operator chose by hand.
    """
    every, runs = folder.config.every, folder.runs()
    done = [run for run in runs if folder.run_files(run).load().done]
    if every is None or not done:
        return None
    ended = folder.summary_path(runs[-1]).stat().st_mtime
    return folder.record(done[-1]).settings if now - ended >= seconds(every) else None
