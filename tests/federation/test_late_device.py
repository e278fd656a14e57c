"""A device that is enrolled while the recommender stays: the model comes to it, and it gives
nothing.
"""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from hdpmf.cli import main
from hdpmf.common.protocol import encode
from hdpmf.common.protocol.lists import digest_of
from hdpmf.lab.simulate.deploy import Deployment, free_port
from hdpmf.models import HDPBit
from hdpmf.untrusted.recommender.release import Release
from hdpmf.untrusted.service.folder import ServiceFolder
from tests.federation.deployed import wait_until


def _hdpmf(*arguments: object) -> dict:
    """A command, in this process: thirty interpreters took longer than the federation."""
    told = io.StringIO()
    with redirect_stdout(told), pytest.raises(SystemExit) as end:
        main.run([*map(str, arguments), "--json"])
    assert end.value.code in (0, None), told.getvalue()
    return json.loads(told.getvalue())


def test_a_late_device_gets_the_model_and_recommends_at_once(tmp_path: Path) -> None:
    items, service = tmp_path / "items.csv", tmp_path / "recommender"
    items.write_text(
        "item,title\n" + "".join(f"{number},Film {number}\n" for number in range(1, 21))
    )
    port = free_port()
    _hdpmf("recommender", "init", service, "--items", items, "--port", port)
    stores = [tmp_path / f"{name}.sqlite" for name in ("ana", "ben", "cleo", "late")]
    policy = tmp_path / "policy.toml"
    policy.write_text('methods = ["hdp-bit"]\nrequire_sums = false\n')
    for store in stores:
        # The late one keeps the default, which refuses this method: to take a model it need not
        # agree to anything.
        _hdpmf("device", "init", store, *(() if store is stores[3] else ("--policy", policy)))
        for item, value in ((1, 5), (2, 4), (3, 1)):
            _hdpmf("device", "rate", store, item, value)

    def enroll(*enrolled: Path) -> None:
        _hdpmf(
            "recommender",
            "enroll",
            service,
            *(store.with_name(store.name + ".card.json") for store in enrolled),
        )

    invitation = _hdpmf("recommender", "invite", service)["file"]
    join = ("--invitation", invitation, "--once")
    enroll(*stores[:3])
    with Deployment(tmp_path / "logs") as deployment:
        deployment.recommender(service)
        wait_until(lambda: ServiceFolder(service).is_serving(), "it serves")
        assert _hdpmf("recommender", "run", service, "--method", "hdp-bit")["requested"]
        for store in stores[:3]:
            deployment.device(store.stem, store, *join)
        for store in stores[:3]:
            deployment.wait(store.stem, seconds=120)
        wait_until(lambda: (service / "model").exists(), "the model is there")
        enroll(stores[3])
        deployment.device("late", stores[3], *join)
        deployment.wait("late", seconds=120)
    assert len(_hdpmf("device", "recommend", stores[3], "-n", 5)["items"]) == 5
    # The model for lists is with everybody, and what it was trained on with the recommender.
    lists = [_hdpmf("device", "status", store)["model"]["lists"] for store in stores]
    assert lists[0]["kind"] == "ease"
    assert lists == [lists[0]] * 4
    (release,) = service.glob("runs/*/ratings.release")
    again = HDPBit.from_release(Release.load(release))
    assert again.lists_ is not None
    assert digest_of(encode(again.lists_.table())) == lists[0]["sha256"]
    assert _hdpmf("device", "ledger", stores[3])["entries"] == []
    told = _hdpmf("device", "ledger", stores[0])["entries"]
    assert [entry["action"] for entry in told] == ["sent", "received"]
