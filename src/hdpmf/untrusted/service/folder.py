"""The recommender's folder, owned by its operator. It holds no ratings.

::

    folder/
      config.toml           name, pace; made once, edited by hand
      format                version of this layout
      catalogue.json        the items, with all their versions
      catalogue.key         signing key of the catalogue (secret); devices pin its public half
      participants.sqlite   who takes part (``participants``)
      invitations.key       makes the secrets of invitations (secret)
      tls/                  certificates of a trial, and the key
      runs/ID/number              number of the run, from 1
      runs/ID/settings.json       settings of the run, and who may take part
      runs/ID/checkpoint.msgpack  progress of the run
      runs/ID/.tokens-*.sqlite    who has a token, while a task is under way
      runs/ID/trouble.json        why the run cannot go on, while that is so
      runs/ID/summary.json        outcome of the run
      runs/ID/model/              its result
      model                 link to the model of the last finished run
      servers.json          the two servers, if they are pinned
      collector-card.json   public card for their operators; its keys are in ``collector/``
      public/               files that devices fetch (``publish``)
      requested.json        requests of the operator to the serving process
      state.json            current activity, for ``hdpmf recommender status``
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from hdpmf.common.base.files import (
    FolderLayout,
    atomic_write,
    lock_file,
    read_config,
    read_file,
    storage_errors,
)
from hdpmf.common.data.ids import IdIndex
from hdpmf.common.data.items import read_item_table
from hdpmf.common.model.public_model import PublicModel
from hdpmf.common.protocol import CatalogueTable, CatalogueVersion
from hdpmf.common.protocol.catalogue import (
    KnownItems,
    known_items,
    read_catalogue,
    signed_first,
)
from hdpmf.errors import ConfigError, HdpmfError, StorageError
from hdpmf.untrusted.service.keys import CATALOGUE, make_catalogue_key
from hdpmf.untrusted.service.participants import FILE, LOGIN, EnrolmentRules, Participants
from hdpmf.untrusted.service.settings import Pace, RunFiles, RunSettings, seconds

_APP = re.compile(r"(https://|http://localhost[:/])[^\s#?\"]+", re.ASCII)

UNNAMED = "recommender"
"""The name of a recommender whose operator gave none; invitations leave it out."""


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The service's own settings.

    Attributes:
        names: Host names and addresses under which participants reach it.
        proxy: TLS ends at a proxy in front of it, with a public certificate, at port 443 of the
            first name; otherwise it has an authority of its own, for trials.
        app: Address of the app that invitations open in; empty for none.
        pace: Waiting times.
        enrolment: Who may enrol.
        every: Time after the end of a run at which the last one is repeated, as 7d; None: never.
    """

    name: str
    host: str = "127.0.0.1"
    port: int = 9443
    names: tuple[str, ...] = ("localhost", "127.0.0.1")
    proxy: bool = False
    app: str = ""
    pace: Pace = Pace()
    enrolment: EnrolmentRules = EnrolmentRules()
    every: str | None = None

    @property
    def address(self) -> str:
        """The address for participants, by the first name."""
        return f"https://{self.names[0]}" + ("" if self.proxy else f":{self.port}")

    def authority(self, folder: Path) -> str:
        """Return the authority (PEM) of its certificate; empty for the public ones."""
        return "" if self.proxy else read_file(folder / "tls" / "authority.pem").decode("ascii")

    def __post_init__(self) -> None:
        if not 0 <= self.port < 1 << 16:
            raise ConfigError(f"port must be from 0 to 65535, not {self.port}")
        if not self.names:
            raise ConfigError(
                "names must have at least one host name or address for devices to reach"
            )
        if self.app and not _APP.fullmatch(self.app):
            raise ConfigError(f"app is an address like https://app.example/, not {self.app!r}")
        if self.every is not None and seconds(self.every) == 0:
            raise ConfigError("runs every 0 s would never end; write it as 7d")


class RunRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run as it was begun.

    Attributes:
        people: How many were enrolled at that time.
        catalogue: The version of the catalogue that it is about, whatever is added meanwhile.
    """

    settings: RunSettings
    people: int
    catalogue: int = 1


class ServiceFolder:
    """The folder of a service that was set up with ``create``."""

    def __init__(self, folder: Path) -> None:
        LAYOUT.check(folder)
        self.path = folder
        missing = f"{folder} is no recommender; set one up with: hdpmf recommender init"
        self.config = read_config(folder / "config.toml", Config, missing)

    @classmethod
    def create(
        cls,
        folder: Path,
        config: Config,
        catalogue: CatalogueTable,
        prepare: Callable[[ServiceFolder], None] = lambda _: None,
    ) -> ServiceFolder:
        """Set up a new service, whole or not at all; a folder that is in use is refused.

        Args:
            folder: Not there yet, or empty.
            catalogue: Its items; they become the first version.
            prepare: Makes what else belongs to it, such as certificates.
        """
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise ConfigError(
                f"{folder} is not empty; give a new folder, or use the service that is there"
            )
        done = False
        try:
            (folder / "runs").mkdir(parents=True)
            LAYOUT.mark(folder)
            key = make_catalogue_key(folder)
            atomic_write(
                folder / CATALOGUE, signed_first(catalogue, key.sign, key.public).to_bytes()
            )
            atomic_write(folder / "config.toml", _toml(config))
            made = cls(folder)
            prepare(made)
            done = True
        except OSError as error:
            raise StorageError(f"could not make {folder}: {error.strerror}") from error
        finally:
            if not done:
                shutil.rmtree(folder, ignore_errors=True)
        return made

    @property
    def items(self) -> CatalogueVersion:
        """The items, with all versions of the catalogue."""
        return read_catalogue(self._read(CATALOGUE))

    def items_of(self, run: bytes) -> CatalogueVersion:
        """The items that a run is about."""
        return self.items.at(self.record(run).catalogue)

    @property
    def current_items(self) -> CatalogueVersion:
        """The items that devices are shown: those of the run under way, if any."""
        run = self.unfinished()
        return self.items if run is None else self.items_of(run)

    @property
    def catalogue(self) -> CatalogueTable:
        """All items that there are."""
        return self.items.table

    @property
    def known(self) -> KnownItems:
        """The items, to compute with."""
        return known_items(self.items)

    def public_popularity(self, items: IdIndex) -> NDArray[np.float64] | None:
        """Read what the operator knows publicly of popularity, from a file in the folder, if any.

        Raises:
            RatingsError: The file is no item table.
        """
        path = self.path / POPULARITY
        return read_item_table(path).public_popularity(items) if path.exists() else None

    @property
    def tls_folder(self) -> Path:
        """Folder of the certificates and their keys."""
        return self.path / "tls"

    def participants(self) -> Participants:
        """Open the database of participants."""
        return Participants(self.path / FILE)

    @property
    def people(self) -> int:
        """How many are enrolled."""
        with self.participants() as found:
            return len(found)

    def begin_run(self, run: bytes, record: RunRecord) -> RunFiles:
        """A folder for a new run."""
        folder = self.path / "runs" / run.hex()
        if (folder / "settings.json").exists():
            raise StorageError(f"there is a run {run.hex()} already")
        with storage_errors(f"could not make {folder}"):
            folder.mkdir(exist_ok=True)  # of a beginning that was killed, or had no room
        number = 1 + max(map(number_of, begun_runs(self.path)), default=0)
        atomic_write(folder / NUMBER, f"{number}\n".encode())
        atomic_write(
            folder / "settings.json", msgspec.json.format(msgspec.json.encode(record), indent=1)
        )
        return RunFiles(folder)

    def run_files(self, run: bytes) -> RunFiles:
        """The folder of a run."""
        return RunFiles(self.path / "runs" / run.hex())

    def record(self, run: bytes) -> RunRecord:
        """Return the settings that a run was begun with."""
        data = self._read(f"runs/{run.hex()}/settings.json")
        try:
            return msgspec.json.decode(data, type=RunRecord)
        except (msgspec.MsgspecError, HdpmfError) as error:
            raise StorageError(f"the settings of run {run.hex()} are damaged ({error})") from error

    def runs(self) -> list[bytes]:
        """All runs that were begun, the oldest first."""
        return [bytes.fromhex(run.name) for run in sorted(begun_runs(self.path), key=number_of)]

    def unfinished(self) -> bytes | None:
        """The run that was begun last, if it has not ended."""
        runs = self.runs()
        return runs[-1] if runs and not self.summary_path(runs[-1]).exists() else None

    def summary_path(self, run: bytes) -> Path:
        """Path of a run's summary."""
        return self.path / "runs" / run.hex() / "summary.json"

    def summary(self, run: bytes) -> dict[str, Any] | None:
        """Return the summary of a run; None if it has not ended."""
        path = self.summary_path(run)
        try:
            return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError) as error:
            raise StorageError(f"{path} cannot be read ({error}); restore a backup") from None

    def finish(self, run: bytes, model: PublicModel | None, summary: bytes) -> None:
        """The run is over: its result becomes the service's, then its summary is written."""
        folder = self.path / "runs" / run.hex()
        if model is not None:
            model.save(folder / "model")
            link = self.path / f".model.{run.hex()}"
            with storage_errors("could not put the model in place"):
                link.unlink(missing_ok=True)
                link.symlink_to(Path("runs") / run.hex() / "model", target_is_directory=True)
                os.replace(link, self.path / "model")
        atomic_write(self.summary_path(run), summary)

    def model(self) -> PublicModel | None:
        """The result of the last run that was finished."""
        return PublicModel.load(self.path / "model") if (self.path / "model").exists() else None

    def state(self) -> dict[str, Any] | None:
        """Return the last state that the service wrote: ``Metrics.as_dict``."""
        path = self.path / "state.json"
        if not path.exists():
            return None
        try:
            state: dict[str, Any] = msgspec.json.decode(
                self._read("state.json"), type=dict[str, Any]
            )
        except msgspec.MsgspecError:
            state = {}
        if "stage" not in state:
            raise StorageError(
                f"{path} is damaged. It only says what the service was doing last: delete it, "
                "and the service writes a new one"
            )
        return state

    def write_state(self, state: bytes) -> None:
        """Write the state of the service."""
        atomic_write(self.path / "state.json", state)

    def is_serving(self) -> bool:
        """Return whether a process serves this folder; takes a shared lock for a moment."""
        try:
            with (self.path / ".serving").open() as stream:
                lock_file(stream.fileno(), shared=True)
        except FileNotFoundError:
            return False
        except OSError:  # somebody has it, or it is somebody else's
            return True
        return False

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Lock the folder while inside: two services would tell devices different things.

        Raises:
            ConfigError: Another process serves it.
        """
        with (self.path / ".serving").open("w") as stream:
            try:
                lock_file(stream.fileno())
            except OSError as error:
                raise ConfigError(
                    f"another process serves {self.path}; let it end first"
                ) from error
            yield

    def _read(self, name: str) -> bytes:
        with storage_errors(f"cannot read {self.path / name}"):
            return (self.path / name).read_bytes()


def _toml(config: Config) -> bytes:
    pace = config.pace
    lines = [
        "# A recommender that nobody has to trust. Read at every start.",
        f"name = {_quoted(config.name)}",
        "# Where it listens, and the names under which people reach it.",
        f"host = {_quoted(config.host)}",
        f"port = {config.port}",
        f"names = [{', '.join(map(_quoted, config.names))}]",
        "# true: TLS ends at a proxy in front of it, with a public certificate; false: for trials.",
        f"proxy = {'true' if config.proxy else 'false'}",
        "# The app that invitations open in, as https://app.example/; with none people paste the "
        "link into theirs.",
        f"app = {_quoted(config.app)}",
        "# Runs begin by hand (hdpmf recommender run). With this the last one is repeated so long "
        "after its end:",
        f"every = {_quoted(config.every)}" if config.every is not None else '# every = "7d"',
        "",
        "# Who may enrol, besides those whose invitation has a secret: people with a token (JWT) "
        "of a login,",
        f"# by its issuer, whose public key is in {LOGIN}; or everybody, so many a minute.",
        "[enrolment]",
        f"issuer = {_quoted(config.enrolment.issuer)}",
        f"open = {config.enrolment.open}",
        "",
        "[pace]",
        "# Seconds between tries to reach the two servers.",
        f"pause = {pace.pause}",
        "# Seconds, at least, before a run that could not go on is tried again.",
        f"retry = {pace.retry}",
        "",
    ]
    return "\n".join(lines).encode()


def _quoted(text: str) -> str:
    """A basic string of TOML, which JSON's are."""
    return msgspec.json.encode(text).decode()


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


def begun_runs(folder: Path) -> list[Path]:
    """The folders of all runs that were begun, in no order."""
    return [path.parent for path in (folder / "runs").glob("*/settings.json") if path.is_file()]


POPULARITY = "popularity.csv"
"""Where the operator puts what is publicly known: columns ``item`` and ``popularity``."""

LAYOUT = FolderLayout(5)
