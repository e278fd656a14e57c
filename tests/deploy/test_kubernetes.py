"""The Kubernetes manifests: valid for the API, hardened, and about what the services really have.

No cluster and no container engine runs here: they are checked against Kubernetes' own schemas
(``kubernetes-validate``), and against our commands, ports and paths. They were never applied.
"""

from __future__ import annotations

from typing import Any

import kubernetes_validate as validate
import pytest
import typer
import yaml

from hdpmf.cli.main import app
from hdpmf.common.net.sum_servers import HEALTH_PATH
from tests.deploy.page import ROOT

FOLDER = ROOT / "deploy" / "kubernetes"
FIRST = "1.29"  # in which ReadWriteOncePod is no longer in beta
VERSIONS = (FIRST, validate.latest_version())


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FOLDER / f"{name}.yml").read_text("utf-8")))


def of_kind(name: str, kind: str) -> dict[str, Any]:
    (found,) = (each for each in documents(name) if each["kind"] == kind)
    return dict(found)


def pod(name: str) -> dict[str, Any]:
    found = (
        of_kind(name, "Pod")
        if name == "setup"
        else of_kind(name, "StatefulSet")["spec"]["template"]
    )
    return dict(found["spec"])


NAMES = sorted(path.stem for path in FOLDER.glob("*.yml"))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", NAMES)
def test_the_api_takes_every_document_and_no_field_is_unknown(name: str, version: str) -> None:
    for document in documents(name):
        validate.validate(document, version, strict=True)


@pytest.mark.parametrize(("name", "port"), [("aggregator", 9444), ("recommender", 9443)])
def test_a_service_is_one_pod_with_probes_on_a_folder_that_no_other_pod_gets(
    name: str, port: int
) -> None:
    whole = of_kind(name, "StatefulSet")["spec"]
    assert whole["replicas"] == 0  # until it is set up; two would be two servers
    assert whole["selector"]["matchLabels"] == whole["template"]["metadata"]["labels"]
    claim = of_kind(name, "PersistentVolumeClaim")
    assert claim["spec"]["accessModes"] == ["ReadWriteOncePod"]
    (data, _) = pod(name)["volumes"]
    assert data["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    (container,) = pod(name)["containers"]
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert ports["https"] == port
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        (how,) = {"httpGet", "tcpSocket"} & set(container[probe])
        if how == "httpGet":
            assert container[probe][how] == {
                "path": HEALTH_PATH,
                "port": "https",
                "scheme": "HTTPS",
            }
        else:
            assert container[probe][how]["port"] == "https"
    service = of_kind(name, "Service")["spec"]
    assert service["selector"] == whole["selector"]["matchLabels"]
    assert [each["targetPort"] for each in service["ports"]] == ["https"]  # and no metrics


@pytest.mark.parametrize("name", ["aggregator", "recommender"])
def test_what_a_pod_runs_can_be_typed(name: str) -> None:
    (container,) = pod(name)["containers"]
    words = list(container["args"])
    command = typer.main.get_command(app)
    while hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    command.make_context(command.name, words)
