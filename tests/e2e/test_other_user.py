"""Another user of the same machine gets nothing of a page that is open: neither through the port
nor from files.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from hdpmf.common.data import RatingScale
from hdpmf.private.device.device_identity import new_device
from tests.e2e.served_pages import owner_page

pytestmark = pytest.mark.slow

NOBODY = 65534

# What somebody can do who knows everything that a machine shows to all its users: ports, processes,
# file names.
SNOOP = """
import encodings.idna, http.client, os, sys  # what cannot be read later
from pathlib import Path
os.setgid({nobody}); os.setuid({nobody})
port, store, link = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
found = []
for process in Path("/proc").iterdir():
    if process.name.isdigit():
        for name in ("cmdline", "environ"):
            try:
                text = (process / name).read_bytes()
            except OSError:
                continue
            if int(process.name) != os.getpid() and link.partition("#")[2].encode() in text:
                found.append("the token is in " + name)
for file in store.parent.iterdir():
    try:
        file.read_bytes()
        found.append("can read " + file.name)
    except OSError:
        pass
host = link.split("/")[2]
for name in (host, f"127.0.0.1:{{port}}"):
    for path in (
        "/", "/rate", "/recommendations", "/settings", "/disclosures", "/enter", "/static/page.js",
    ):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        connection.request("GET", path, headers={{"Host": name}})
        answer = connection.getresponse()
        body = answer.read().decode()
        if "Zombie" in body or "data-item" in body or answer.getheader("set-cookie"):
            found.append(path)
        if answer.status != 403 and path not in ("/enter", "/static/page.js"):
            found.append(path + " " + str(answer.status))
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    head = {{"Host": name, "Origin": "http://" + host, "Content-Type": "application/json"}}
    connection.request("POST", "/enter", b'{{"token": "guessed"}}', head)
    if connection.getresponse().status != 403:
        found.append("came in")
print(found)
"""


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder that everybody may look into, so that only its files hide something; pytest's own
    is for one user.
    """
    with TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.skipif(os.getuid() != 0, reason="to act as another user takes root")
def test_another_user_of_the_machine_gets_nothing(home: Path):
    folder = home / "store"
    folder.mkdir()
    folder.chmod(0o755)
    store = folder / "me.sqlite"
    (home / "films.csv").write_text("item,title\n1,Zombie Opera\n")
    with new_device(store, scale=RatingScale(1.0, 5.0, 1.0)) as made:
        from hdpmf.private.device.own_items import load_catalogue

        load_catalogue(made, home / "films.csv")
        made.rate("1", 5.0)
    with owner_page(store) as page:
        port = int(page.origin.rpartition(":")[2])
        code = SNOOP.format(nobody=NOBODY)
        # Only here the other user is told the link's host; the token is given to look for it, never
        # used.
        told = subprocess.run(
            [sys.executable, "-I", "-S", "-c", code, str(port), str(store), page.link],
            capture_output=True,
            text=True,
            cwd="/",
            timeout=60,
        )
        assert told.returncode == 0, told.stderr
        assert told.stdout.strip() == "[]"
        store.chmod(0o644)  # were it readable, this test would say so
        told = subprocess.run(
            [sys.executable, "-I", "-S", "-c", code, str(port), str(store), page.link],
            capture_output=True,
            text=True,
            cwd="/",
            timeout=60,
        )
        assert "can read me.sqlite" in told.stdout
