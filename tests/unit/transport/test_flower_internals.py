"""The contract with Flower: every internal of it that ``hdpmf.common.net.flower`` uses, checked
against this release.

Flower promises none of these names. A release that changes one fails here, with a sentence that
says which; then ``docs/transport.md`` says what it is used for, and the versions in
``pyproject.toml`` are those that are known to work.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

import hdpmf
from hdpmf.common.net.flower import gate
from hdpmf.common.net.flower.environment import needs_flower

SOURCE = Path(hdpmf.__file__).parent
FLOWER = SOURCE / "common" / "net" / "flower"
PAGE = Path(__file__).parents[3] / "docs" / "transport.md"
ANY = object()
"""Stands for whatever is passed."""


def check(internal: str, holds: bool, change: str) -> None:
    if not holds:
        pytest.fail(
            f"Flower {version('flwr')} changed an internal that hdpmf uses: {internal} "
            f"{change}. docs/transport.md "
            "says what it is for; adapt hdpmf/common/net/flower, or narrow the versions of "
            "flwr in pyproject.toml",
            pytrace=False,
        )


def find(internal: str) -> Any:
    """What a dotted name stands for."""
    module, _, name = internal.rpartition(".")
    try:
        return getattr(importlib.import_module(module), name)
    except (ModuleNotFoundError, AttributeError):
        pass
    try:
        return importlib.import_module(internal)
    except ModuleNotFoundError:
        check(internal, False, "is gone")


def takes(*positional: Any, **keywords: Any) -> Callable[[str], None]:
    """It can be called as we call it: a new required argument is as bad as one that is gone."""

    def checked(internal: str) -> None:
        signature = inspect.signature(find(internal))
        try:
            signature.bind(*positional, **keywords)
        except TypeError as error:
            check(
                internal, False, f"cannot be called as before ({error}); it now takes {signature}"
            )

    return checked


def has(*names: str) -> Callable[[str], None]:
    """It has these methods and attributes."""

    def checked(internal: str) -> None:
        thing = find(internal)
        for name in names:
            check(f"{internal}.{name}", hasattr(thing, name), "is gone")

    return checked


def fields(*names: str) -> Callable[[str], None]:
    """The protocol buffer has these fields."""

    def checked(internal: str) -> None:
        known = find(internal).DESCRIPTOR.fields_by_name
        for name in names:
            check(internal, name in known, f"has no field {name!r} any more")

    return checked


def both(*checks: Callable[[str], None]) -> Callable[[str], None]:
    def checked(internal: str) -> None:
        for each in checks:
            each(internal)

    return checked


def is_text(internal: str) -> None:
    check(internal, isinstance(find(internal), str), "is not a text any more")


def keywords(*names: str) -> dict[str, object]:
    return dict.fromkeys(names, ANY)


P = "flwr.proto."
HTTP = takes("https://localhost", **keywords("interceptors"))
HTTP_VERIFIED = takes("https://localhost", **keywords("interceptors", "verify"))
OF_DEVICE, OF_DEVICE_STORE = (
    takes(**keywords("request", "state")),
    takes(**keywords("request", "state", "store")),
)
OF_SERVER = takes(**keywords("request", "state", "task"))
OBJECTS = "flwr.supercore.inflatable.inflatable_object."
FLEET_HANDLERS = "flwr.superlink.servicer.fleet.fleet_handlers"
RUNTIME_HANDLERS = "flwr.superlink.servicer.runtime.runtime_handlers"

INTERNALS: dict[str, Callable[[str], None]] = {
    # Messages
    "flwr.app.Message": both(
        takes(ANY, ANY, ANY, **keywords("ttl", "group_id")),
        takes(ANY, **keywords("reply_to")),
        has("object_id", "metadata", "content", "has_content"),
    ),
    "flwr.app.RecordDict": both(takes(ANY), has("config_records")),
    "flwr.app.ConfigRecord": both(takes(ANY), has("get", "inflate", "deflate")),
    "flwr.app.error.Error": takes(**keywords("code", "reason")),
    "flwr.app.message.remove_content_from_message": takes(ANY),
    "flwr.common.constant.ErrorCode": has("CLIENT_APP_RAISED_EXCEPTION"),
    "flwr.common.serde.message_from_proto": takes(ANY),
    "flwr.common.serde.message_to_proto": takes(ANY),
    "flwr.common.serde.run_from_proto": takes(ANY),
    OBJECTS + "get_all_nested_objects": takes(ANY),
    OBJECTS + "get_object_tree": takes(ANY),
    OBJECTS + "no_object_id_recompute": takes(),
    "flwr.supercore.task_identity.TaskIdentity": has("_task_id", "_run_id", "_node_id"),
    # A device's calls, and how it says who it is
    "flwr.supernode.fleet_http_client.FleetHttpClient": both(
        HTTP_VERIFIED,
        has(
            "ActivateNode",
            "DeactivateNode",
            "SendNodeHeartbeat",
            "PullMessages",
            "PushMessages",
            "PullObject",
            "PushObject",
            "ConfirmMessageReceived",
        ),
    ),
    "flwr.common.constant.TIMESTAMP_HEADER": is_text,
    "flwr.supercore.constant.FLEET_HTTP_PUBLIC_KEY_HEADER": is_text,
    "flwr.supercore.constant.FLEET_HTTP_SIGNATURE_HEADER": is_text,
    # The server's app, played by the recommender's process
    "flwr.superlink.grid.HttpGrid": both(
        takes(**keywords("runtime_api_address", "token")),
        has("get_nodes", "push_messages", "set_run", "run", "_connect", "_runtime_client"),
    ),
    "flwr.supercore.control.control_http_client.ControlHttpClient": both(
        HTTP, has("RegisterNode", "StartRun", "StopRun")
    ),
    "flwr.supercore.runtime.RuntimeHttpClient": both(
        HTTP,
        has(
            "AcquireTask",
            "PullTaskInput",
            "SendTaskHeartbeat",
            "PullMessages",
            "PullObject",
            "ConfirmMessageReceived",
        ),
    ),
    "flwr.supercore.interceptors.RuntimeTokenHttpInterceptor": takes(**keywords("token")),
    "flwr.supercore.interceptors.RuntimeVersionHttpInterceptor": takes(
        **keywords("component_name")
    ),
    "flwr.supercore.constant.TaskType": has("SERVER_APP"),
    "flwr.supercore.constant.TASK_TOKEN_HEADER": is_text,
    # The SuperLink in our process, and the fast lane into it
    "flwr.superlink.main.create_app": takes(ANY, ANY),
    "flwr.superlink.cli.flower_superlink.SuperLinkLifespan": takes(ANY, ANY),
    "flwr.superlink.config_loader.SuperLinkLifespanConfig": takes(
        **keywords(
            "control_address",
            "health_server_address",
            "host",
            "port",
            "insecure",
            "certificates",
            "superexec_auth_secret",
            "authn_plugin",
            "event_log_plugin",
            "fleet_event_log_plugin",
            "enable_event_log",
            "artifact_provider",
            "enable_supernode_auth",
            "fleet_api_type",
            "fleet_api_address",
            "simulation",
            "ssl_ca_certfile",
            "ssl_certfile",
            "ssl_keyfile",
            "database",
            "isolation",
            "runtime_dependency_install",
        )
    ),
    "flwr.superlink.auth_plugin.NoOpControlAuthnPlugin": takes(),
    "flwr.supercore.protobuf.constants.PROTOBUF_MEDIA_TYPE": is_text,
    "flwr.supercore.dependencies.task.authenticate_task": takes(ANY, ANY, ANY),
    FLEET_HANDLERS: has("HEARTBEAT_MIN_INTERVAL"),
    "flwr.supercore.error.ApiErrorCode": has("FLEET_RUN_STATUS_NOT_ALLOWED"),
    "flwr.supercore.error.FlowerError": takes(ANY, ANY),
    OBJECTS + "iterate_object_tree": takes(ANY),
    "flwr.supercore.object_store.NoObjectInStoreError": takes(ANY),
    "flwr.server.superlink.linkstate.in_memory_linkstate.InMemoryLinkState": has(
        "acknowledge_node_heartbeat", "get_node_id_by_public_key", "object_store"
    ),
    FLEET_HANDLERS + ".activate_node": OF_DEVICE,
    FLEET_HANDLERS + ".deactivate_node": OF_DEVICE,
    FLEET_HANDLERS + ".send_node_heartbeat": OF_DEVICE,
    FLEET_HANDLERS + ".pull_messages": OF_DEVICE_STORE,
    FLEET_HANDLERS + ".push_messages": OF_DEVICE,
    FLEET_HANDLERS + ".pull_object": OF_DEVICE,
    FLEET_HANDLERS + ".push_object": OF_DEVICE,
    FLEET_HANDLERS + ".confirm_message_received": OF_DEVICE_STORE,
    RUNTIME_HANDLERS: has("get_nodes"),
    RUNTIME_HANDLERS + ".get_nodes": OF_SERVER,
    RUNTIME_HANDLERS + ".pull_messages": OF_SERVER,
    RUNTIME_HANDLERS + ".push_messages": OF_SERVER,
    RUNTIME_HANDLERS + ".pull_object": OF_SERVER,
    RUNTIME_HANDLERS + ".push_object": OF_SERVER,
    RUNTIME_HANDLERS + ".confirm_message_received": OF_SERVER,
    # What the calls carry
    P + "control_pb2.RegisterNodeRequest": fields("public_key"),
    P + "control_pb2.StartRunRequest": fields("fab"),
    P + "control_pb2.StartRunResponse": fields("run_id"),
    P + "control_pb2.StopRunRequest": fields("run_id"),
    P + "fab_pb2.Fab": fields("content"),
    P + "fleet_pb2.ActivateNodeRequest": fields("public_key", "heartbeat_interval"),
    P + "fleet_pb2.ActivateNodeResponse": fields("node_id"),
    P + "fleet_pb2.DeactivateNodeRequest": fields("node_id"),
    P + "fleet_pb2.PullMessagesRequest": fields("node"),
    P + "fleet_pb2.PullMessagesResponse": fields("messages_list", "message_object_trees"),
    P + "fleet_pb2.PushMessagesRequest": fields(
        "node", "messages_list", "message_object_trees", "clientapp_runtime_list"
    ),
    P + "fleet_pb2.PushMessagesResponse": fields("objects_to_push", "session_id"),
    P + "heartbeat_pb2.SendNodeHeartbeatRequest": fields("node", "heartbeat_interval"),
    P + "heartbeat_pb2.SendNodeHeartbeatResponse": fields("success"),
    P + "message_pb2.ConfirmMessageReceivedRequest": fields("node", "run_id", "message_object_id"),
    P + "message_pb2.Metadata": fields("run_id", "message_id", "reply_to_message_id", "group_id"),
    P + "message_pb2.ObjectTree": fields("object_id", "children"),
    P + "message_pb2.PullObjectRequest": fields("node", "run_id", "object_id"),
    P + "message_pb2.PullObjectResponse": fields(
        "object_found", "object_available", "object_content"
    ),
    P + "message_pb2.PushObjectRequest": fields(
        "node", "run_id", "session_id", "object_id", "object_content"
    ),
    P + "node_pb2.Node": fields("node_id"),
    P + "node_pb2.NodeInfo": fields("node_id", "public_key"),
    P + "runtime_pb2.AcquireTaskRequest": fields("supported_task_types"),
    P + "runtime_pb2.AcquireTaskResponse": fields("token", "task"),
    P + "runtime_pb2.GetNodesRequest": fields(),
    P + "runtime_pb2.PullAppMessagesRequest": fields("message_ids"),
    P + "runtime_pb2.PullAppMessagesResponse": fields("messages_list", "message_object_trees"),
    P + "runtime_pb2.PullTaskInputRequest": fields(),
    P + "runtime_pb2.PullTaskInputResponse": fields("task_id", "run", "context"),
    P + "runtime_pb2.PushAppMessagesRequest": fields("messages_list", "message_object_trees"),
    P + "runtime_pb2.SendTaskHeartbeatRequest": fields(),
    P + "runtime_pb2.SendTaskHeartbeatResponse": fields("success"),
    # Simulation on a Ray cluster
    "flwr.clientapp.ClientApp": both(takes(), has("query")),
    "flwr.serverapp.ServerApp": both(takes(), has("main")),
    "flwr.simulation.run_simulation": takes(
        **keywords("server_app", "client_app", "num_supernodes", "backend_config")
    ),
}


@pytest.mark.parametrize("internal", INTERNALS)
def test_flower_still_has_what_we_use(internal: str):
    INTERNALS[internal](internal)


def test_a_change_is_told_in_a_sentence():
    told = (
        rf"^Flower {re.escape(version('flwr'))} changed an internal that hdpmf uses: "
        r"flwr.app.Gone is gone"
    )
    with pytest.raises(pytest.fail.Exception, match=told):
        has("any")("flwr.app.Gone")
    with pytest.raises(
        pytest.fail.Exception, match=r"flwr\.app\.error\.Error cannot be called as before"
    ):
        takes(**keywords("code", "colour"))("flwr.app.error.Error")
    with pytest.raises(pytest.fail.Exception, match=r"fab_pb2\.Fab has no field 'colour' any more"):
        fields("colour")("flwr.proto.fab_pb2.Fab")


def test_the_clients_hold_an_http_client_that_can_be_replaced():
    for name in (
        "flwr.supernode.fleet_http_client.FleetHttpClient",
        "flwr.supercore.control.control_http_client.ControlHttpClient",
        "flwr.supercore.runtime.RuntimeHttpClient",
    ):
        client = find(name)("https://localhost")
        held = getattr(client, "_client", None)
        check(
            f"{name}._client",
            all(hasattr(held, part) for part in ("close", "timeout", "headers")),
            "is gone",
        )
        client.close()


def test_a_messages_id_can_be_set_as_flowers_own_node_does():
    with needs_flower():
        from flwr.app import Message, RecordDict
        from flwr.supercore.task_identity import TaskIdentity
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
    message = Message(RecordDict(), 1, "query")
    message.metadata.__dict__["_message_id"] = "ours"
    check(
        "flwr.app.Metadata._message_id",
        message.metadata.message_id == "ours",
        "is not where the id is any more",
    )


def test_the_shortest_heartbeat_is_read_where_we_set_it():
    handlers = find(FLEET_HANDLERS)
    readers = [code for code in vars(handlers).values() if inspect.isfunction(code)]
    name = "HEARTBEAT_MIN_INTERVAL"
    read = any(name in reader.__code__.co_names for reader in readers)
    check(f"{FLEET_HANDLERS}.{name}", read, "is not read by any handler there any more")


def test_the_fast_lane_gives_flowers_checks_all_that_they_look_at():
    """What stands in for a web request has one attribute; if more were wanted, every call would
    go the long way.
    """
    given = {"headers"}
    for name in ("flwr.supercore.dependencies.task.authenticate_task",):
        wanted = {
            node.attr
            for node in ast.walk(ast.parse(inspect.getsource(find(name))))
            if isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "request"
        }
        check(
            name,
            wanted <= given,
            f"now looks at request.{', request.'.join(sorted(wanted - given))}",
        )


def test_the_state_keeps_messages_and_replies_where_the_lane_looks():
    from hdpmf.common.net.flower.link import superlink_app

    state = superlink_app(10.0).state.linkstate_factory.state()
    for name in ("message_ins_store", "message_ins_id_to_message_res_id", "nodes"):
        check(f"InMemoryLinkState.{name}", isinstance(getattr(state, name, None), dict), "is gone")


def test_a_question_is_a_sign_of_life_and_hanging_up_after_a_goodbye_is_none():
    from hdpmf.common.net.flower.lane import FastLane
    from hdpmf.common.net.flower.link import superlink_app

    app = superlink_app(10.0)
    lane, state = FastLane(app), app.state.linkstate_factory.state()
    number = state.create_node("", "", b"a key", 10.0)
    state.activate_node(number, 10.0)
    for wait in (15.0, 0.0):
        lane.is_here(number, 10.0, wait)
        assert abs(state.nodes[number].online_until - time.time() - 20 - wait) < 2
    state.deactivate_node(number)
    lane.is_here(number, 10.0, 0.0)
    assert state.nodes[number].online_until < time.time() + 1
    assert state.activate_node(number, 10.0)  # it may come back at once
    lane.is_here(999, 10.0, 15.0)  # of nobody


def test_the_superlink_answers_on_the_paths_that_the_gate_and_the_lane_know():
    from starlette.routing import Match

    from hdpmf.common.net.flower.lane import FastLane
    from hdpmf.common.net.flower.link import superlink_app

    try:
        app = superlink_app(10.0)
        lane = FastLane(app)
    except AttributeError as error:
        check("flwr.superlink.main.create_app", False, f"makes an app without its state ({error})")
    ours = {gate.AUTHORITIES}  # answered at the gate
    for path in sorted(
        {*gate.DEVICE_CALLS, gate.TO_DEVICES, gate.TO_RECOMMENDER, *lane.calls} - ours
    ):
        scope = {"type": "http", "method": "POST", "path": path, "root_path": "", "headers": []}
        found = any(route.matches(dict(scope))[0] is Match.FULL for route in app.routes)
        check(f"the route {path}", found, "is gone")


def test_only_this_folder_imports_flower_and_every_import_is_in_the_contract():
    uncovered, strays = [], []
    for path in sorted(SOURCE.rglob("*.py")):
        names = _imported(path)
        if names and FLOWER not in path.parents:
            strays.append(f"{path.relative_to(SOURCE)} imports {names[0]}")
        uncovered += [f"{path.name}: {name}" for name in names if name not in INTERNALS]
    assert not strays, f"only hdpmf.common.net.flower may import flwr: {strays}"
    assert not uncovered, (
        f"internals that no contract checks; add them here and to docs/transport.md: {uncovered}"
    )


def test_the_page_names_every_internal_that_is_imported():
    text = PAGE.read_text()
    names = {name for path in FLOWER.rglob("*.py") for name in _imported(path)}
    missing = sorted(
        name
        for name in names
        if not name.startswith(P) and f"`{name.rpartition('.')[2]}" not in text
    )
    assert not missing, f"docs/transport.md does not say what these are for: {missing}"


def _imported(path: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.split(".")[0] == "flwr"]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "flwr":
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return found
