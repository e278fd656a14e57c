"""``hdpmf device open`` and ``service``: the owner's page, now or at every login, without root."""

from __future__ import annotations

import os
import plistlib
import re
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from hdpmf.cli.device.store import FILE_VARIABLE, StorePath, first_line
from hdpmf.cli.options import argument, command, option
from hdpmf.cli.output import Result, emit, note
from hdpmf.common.base.files import atomic_write, storage_errors
from hdpmf.errors import ConfigError, StorageError

if TYPE_CHECKING:
    from hdpmf.common.web.local_server import OneTimeLink
    from hdpmf.private.page.address import PageAddress


@command
def open_(
    store: Annotated[
        Path | None, argument("The device's file; without it the usual one of yours.", "[STORE]")
    ] = None,
    port: Annotated[
        int, option("Port on this machine; 0: one is chosen.", "N", min=0, max=65535)
    ] = 0,
    browser: Annotated[
        bool, option("Open the page, or only print its link.", None, "--browser/--no-browser")
    ] = True,
    idle: Annotated[
        float, option("Lock the page after so long without use.", "MINUTES", min=0.1, max=1440)
    ] = 15.0,
    background: Annotated[
        bool, option("As a service: print no link, open no browser.", None, "--background")
    ] = False,
) -> None:
    """Open your own page in the browser: rate, see your list, set your privacy, decide what leaves.

    The page is served by this machine to itself. Its link works once; whoever else is on this
    machine cannot use it. The page's address stays the same, so that you can bookmark it, or
    install it as an app. Where there is no store yet, the page makes one, or takes in one that you
    bring from another machine. Recommenders that you have joined are answered until this command
    ends; if it runs already, a second one opens the page once more.
    """
    from hdpmf.common.web.local_server import browser_opener
    from hdpmf.private.page.address import PageAddress
    from hdpmf.private.page.serving import PageServing, default_store, only_server

    path = store or default_store()
    secret = os.environ.get(FILE_VARIABLE)
    with only_server(path) as running:
        if running is not None and background:
            raise ConfigError(f"the page of {path} is served already")
        if running is not None:
            _show_running(running, PageAddress.of(path), path, port, browser)
            return
        serving = PageServing(
            port=port,
            idle=idle * 60,
            passphrase=None if secret is None else first_line(Path(secret)),
            log=note,
            relink=(lambda link: None) if background else _say_link,
        )
        with browser_opener(browser and not background) as show:

            def ready(link: OneTimeLink, address: PageAddress) -> None:
                if background:  # logs are read by others, too
                    note(f"The page of {path} is at http://{address.host}/")
                    return
                once = link.make()
                text = [
                    f"Your page: {once}",
                    "The link works once. Ctrl-C ends it; nothing is lost by that.",
                ]
                emit(Result(_link_fields(once, address, path), text))
                show(once)

            serving.serve(path, ready)


def _say_link(link: str) -> None:
    """Print a new link after the page was locked."""
    note(f"The page was locked. Open it again: {link}")


def _show_running(link: str, address: PageAddress, store: Path, port: int, browser: bool) -> None:
    """Open a page that another process serves."""
    from hdpmf.common.web.local_server import browser_opener
    from hdpmf.private.page.serving import BROWSER_SECONDS

    if port not in (0, address.port):
        raise ConfigError(
            f"the page of {store} is open already, at port {address.port}; end that one first, or "
            "leave out --port"
        )
    emit(
        Result(
            _link_fields(link, address, store),
            [f"Your page is open already: {link}", "The link works once."],
        )
    )
    with browser_opener(browser, BROWSER_SECONDS) as show:
        show(link)


def _link_fields(link: str, address: PageAddress, store: Path) -> dict[str, object]:
    return {
        "link": link,
        "address": f"http://{address.host}/",
        "port": address.port,
        "store": str(store),
    }


_SECONDS = 30.0

_UNIT = """\
[Unit]
Description=hdpmf: {store}
After=network-online.target

[Service]
ExecStart={command}
Restart=on-failure
RestartSec=30
NoNewPrivileges=yes

[Install]
WantedBy=default.target
"""


@dataclass(frozen=True)
class LoginService:
    """A program that the user's own session starts.

    Attributes:
        file: The file that describes it.
        start: Commands that start it, now and at every login.
        stop: Commands that end it for good, before its file is deleted.
    """

    file: Path
    content: bytes
    start: tuple[tuple[str, ...], ...]
    stop: tuple[tuple[str, ...], ...]


def _systemd_unit(store: Path, name: str) -> LoginService:
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    words = " ".join(_quoted(word) for word in _command_line(store))
    systemctl = ("systemctl", "--user")
    unit = f"{name}.service"
    return LoginService(
        file=Path(home) / "systemd" / "user" / unit,
        content=_UNIT.format(store=str(store).replace("%", "%%"), command=words).encode(),
        start=((*systemctl, "daemon-reload"), (*systemctl, "enable", "--now", unit)),
        stop=((*systemctl, "disable", "--now", unit),),
    )


def _launch_agent(store: Path, name: str) -> LoginService:
    label = f"org.{name}"
    file = Path.home() / "Library" / "LaunchAgents" / f"{label}.plist"
    domain = f"gui/{os.getuid()}"
    return LoginService(
        file=file,
        content=plistlib.dumps(
            {
                "Label": label,
                "ProgramArguments": _command_line(store),
                "RunAtLoad": True,
                "KeepAlive": {"SuccessfulExit": False},
                "ThrottleInterval": 30,
            }
        ),
        start=(("launchctl", "bootstrap", domain, str(file)),),
        stop=(("launchctl", "bootout", f"{domain}/{label}"),),
    )


@command
def service(
    path: StorePath,
    remove: Annotated[bool, option("End the service; the store stays.")] = False,
) -> Result:
    """Start this device now and at every login, in the background.

    It is a service of your own user: a systemd unit, or a launch agent on macOS. It prints no
    links; open the page with hdpmf device open, or from a bookmark. A store with a passphrase
    answers nobody before you have unlocked it on the page.
    """
    return _remove(path) if remove else _install(path)


def _install(path: Path) -> Result:
    if not path.is_file():
        raise ConfigError(f"there is no store at {path}; make one with hdpmf device open {path}")
    store = path.absolute()
    service = _service(store)
    if service.file.exists():
        with suppress(ConfigError):  # an earlier one, perhaps of another Python, runs or does not
            for words in service.stop:
                _run(words, "it was not ended")
    try:
        service.file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"could not make {service.file.parent}: {error.strerror or error}"
        ) from None
    atomic_write(service.file, service.content)
    for words in service.start:
        _run(words, f"{service.file} is there, but could not be started")
    return Result(
        {"service": service.file.stem, "file": str(service.file)},
        [
            f"{service.file} starts {store} for you. It runs now, and at every login.",
            f"Open its page: hdpmf device open {path}. Take it away: hdpmf device service {path} "
            "--remove",
        ],
    )


def _remove(path: Path) -> Result:
    service = _service(path.absolute())
    if not service.file.exists():
        raise ConfigError(f"{path} has no service: there is no {service.file}")
    for words in service.stop:
        _run(words, f"the service could not be ended, so {service.file} is still there")
    with storage_errors(f"could not delete {service.file}"):
        service.file.unlink()
    return Result(
        {"service": service.file.stem, "file": str(service.file)},
        [f"The service of {path} has ended and does not start again. {path} is as it was."],
    )


def _service(store: Path) -> LoginService:
    stem = re.sub(r"[^A-Za-z0-9]+", "-", store.stem).strip("-")[:40] or "device"
    name = f"hdpmf-{stem}-{sha256(str(store).encode()).hexdigest()[:8]}"
    if sys.platform == "darwin":
        return _launch_agent(store, name)
    if sys.platform.startswith("linux"):
        return _systemd_unit(store, name)
    raise ConfigError(
        f"services are for Linux and macOS; on {sys.platform} let the system run this at login: "
        + " ".join(_command_line(store))
    )


def _command_line(store: Path) -> list[str]:
    return [sys.executable, "-m", "hdpmf", "device", "open", str(store), "--background"]


def _quoted(word: str) -> str:
    """Quote a word for a unit, where % and $ stand for other things."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"'


def _run(words: tuple[str, ...], problem: str) -> None:
    try:
        done = subprocess.run(  # noqa: S603 - words of our own, by no shell
            words, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"{problem}: {words[0]}: {error}") from None
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise ConfigError(f"{problem}: {' '.join(words)}: {said[-1] if said else done.returncode}")
