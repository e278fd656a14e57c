"""What we use inside Flower on the recommender's machine: the SuperLink's application, and the
calls that drive it.

The run that every message belongs to is started with an application bundle that contains no code.
Its server side is this process: it takes the run's task, as Flower's own launcher would, and
exchanges messages as that task.
"""

from __future__ import annotations

import io
import logging
import ssl
import time
import zipfile
from collections.abc import Iterable, Sequence
from typing import Any

from hdpmf.common.net.flower.environment import needs_flower
from hdpmf.common.net.flower.gate import OPEN, RING, SECRET_HEADER
from hdpmf.common.net.flower.http import bounded_client, said_plainly
from hdpmf.common.net.flower.messages import Incoming, Outgoing, bytes_in_part, data_part
from hdpmf.errors import TransportError

_log = logging.getLogger(__name__)

with needs_flower():
    import httpx
    from flwr.common.serde import run_from_proto
    from flwr.proto.control_pb2 import RegisterNodeRequest, StartRunRequest, StopRunRequest
    from flwr.proto.fab_pb2 import Fab
    from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, PullObjectRequest
    from flwr.proto.runtime_pb2 import (
        AcquireTaskRequest,
        PullAppMessagesRequest,
        PullTaskInputRequest,
        SendTaskHeartbeatRequest,
    )
    from flwr.supercore.constant import TaskType
    from flwr.supercore.control.control_http_client import ControlHttpClient
    from flwr.supercore.interceptors import (
        RuntimeTokenHttpInterceptor,
        RuntimeVersionHttpInterceptor,
    )
    from flwr.supercore.runtime import RuntimeHttpClient
    from flwr.supercore.task_identity import TaskIdentity
    from flwr.superlink.grid import HttpGrid

_BUNDLE = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "hdpmf-recommender"
version = "1.0.0"
description = "No code: both sides run what is installed on them."
license = "Apache-2.0"

[tool.flwr.app]
publisher = "hdpmf"

[tool.flwr.app.components]
serverapp = "hdpmf:installed"
clientapp = "hdpmf:installed"
"""
_AGAIN = 0.02
_LEFT_REPLY = 4 * 1024 * 1024  # a late reply is taken for as large
_PATIENCE = 15.0  # with a SuperLink on this machine: if it hangs, an exchange ends so much late


def superlink_app(shortest_heartbeat: float) -> Any:
    """Flower's SuperLink as an ASGI application: everything in memory, devices authenticated, no
    app is launched.
    """
    from flwr.superlink.auth_plugin import NoOpControlAuthnPlugin
    from flwr.superlink.cli.flower_superlink import SuperLinkLifespan
    from flwr.superlink.config_loader import SuperLinkLifespanConfig
    from flwr.superlink.main import create_app
    from flwr.superlink.servicer.fleet import fleet_handlers

    # Flower's least is 10 s; a device that crashed may come back after two missed signs of life.
    setattr(fleet_handlers, "HEARTBEAT_MIN_INTERVAL", shortest_heartbeat)  # noqa: B010 - not exported, says mypy
    config = SuperLinkLifespanConfig(
        control_address="",
        health_server_address=None,
        host="",
        port=0,
        insecure=False,
        certificates=None,  # TLS is the web server's affair
        superexec_auth_secret=None,
        authn_plugin=NoOpControlAuthnPlugin(),  # the gate in front asks for the secret
        event_log_plugin=None,
        fleet_event_log_plugin=None,
        enable_event_log=False,
        artifact_provider=None,
        enable_supernode_auth=True,
        fleet_api_type="grpc-rere",
        fleet_api_address=None,
        simulation=False,
        ssl_ca_certfile=None,
        ssl_certfile=None,
        ssl_keyfile=None,
        database=":flwr-in-memory:",
        isolation="process",
        runtime_dependency_install=False,
    )
    return create_app(config, SuperLinkLifespan)


def empty_bundle() -> bytes:
    """An application bundle as Flower wants one, without an application."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("pyproject.toml", _BUNDLE)
        archive.writestr(".info/CONTENT", "")
    return packed.getvalue()


class Link(HttpGrid):
    """The recommender's connection to a SuperLink: one run, and the task that is its server side.

    Args:
        address: ``host:port`` of the SuperLink.
        trust: How its certificate is checked.
        secret: Of its gate; empty for a SuperLink without one.
        max_bytes: No answer may be longer.
        bundle: What the run is started with.

    Attributes:
        leftover: Bytes, about, that unanswered messages and late replies take in the SuperLink's
            memory.
    """

    def __init__(
        self,
        address: str,
        trust: ssl.SSLContext,
        secret: str,
        *,
        max_bytes: int,
        bundle: bytes | None = None,
    ) -> None:
        super().__init__(runtime_api_address=address, token="none yet")  # noqa: S106 - replaced below
        self._base = f"https://{address}"
        self._http = bounded_client(trust, max_bytes, {SECRET_HEADER: secret}, _PATIENCE)
        self._version = RuntimeVersionHttpInterceptor(component_name="flwr-serverapp")
        self._control = self._over_our_http(
            ControlHttpClient(self._base, interceptors=[self._version])
        )
        self._incomplete: list[tuple[Any, Any]] = []
        self.leftover = 0
        try:
            self._start(empty_bundle() if bundle is None else bundle)
        except BaseException:
            self._http.close()
            raise

    def register(self, public: str) -> None:
        """Let the device with this key connect. Flower refuses a key that it knows already."""
        with said_plainly():
            self._control.RegisterNode(RegisterNodeRequest(public_key=public.encode("ascii")))

    def let_devices_in(self) -> None:
        """All who were enrolled are registered: nobody is turned away by mistake."""
        with said_plainly():
            self._http.post(self._base + OPEN, content=b"")

    def online(self) -> dict[str, int]:
        """Flower's number of every device that is connected now, by its public key."""
        with said_plainly():
            return {
                bytes(node.public_key).decode("ascii"): node.node_id for node in self.get_nodes()
            }

    def beat(self) -> None:
        """A sign of life of the task, without which Flower would end the run."""
        with said_plainly():
            if not self._runtime_client.SendTaskHeartbeat(SendTaskHeartbeatRequest()).success:
                raise TransportError("the SuperLink has ended the run")

    def send(self, outgoing: Sequence[Outgoing], seconds: float) -> list[str]:
        """Send messages that are forgotten after ``seconds``; the message's id for each, empty
        if it was refused.
        """
        # Flower's messages take their run and sender from here when they are made.
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = self._identity
        messages = [message.to_flower(seconds) for message in outgoing]
        with said_plainly():
            ids = list(self.push_messages(messages))
            # All parts are there: wake the devices that they are for.
            self._http.post(self._base + RING, json=[message.node for message in outgoing])
        return ids

    def pull(self, ids: Iterable[str], wait: float) -> list[Incoming]:
        """Replies to the messages ``ids`` that have come since; waits up to ``wait`` seconds for
        one.
        """
        if self._incomplete:
            # Parts of a reply are still on their way, and the bell will not ring for them: ask
            # again soon.
            time.sleep(_AGAIN)
            wait = 0.0
        # To a question for a message that was answered already Flower makes up an error.
        begun = {message.metadata.reply_to_message_id for message, _ in self._incomplete}
        open_ids = [name for name in ids if name not in begun]
        self._http.headers["prefer"] = f"wait={wait:g}"
        self._http.timeout = wait + _PATIENCE
        with said_plainly():
            if open_ids:
                answer = self._runtime_client.PullMessages(
                    PullAppMessagesRequest(message_ids=open_ids)
                )
                self._incomplete += zip(
                    answer.messages_list, answer.message_object_trees, strict=True
                )
            complete: list[Incoming] = []
            self._incomplete = [
                reply for reply in self._incomplete if not self._fetched(*reply, complete)
            ]
        return complete

    def _fetched(self, message: Any, tree: Any, complete: list[Incoming]) -> bool:
        """Whether nothing more is to be done about a reply: it went to ``complete``, or it will
        never be whole.
        """
        meta = message.metadata
        try:
            part = data_part(tree)
        except ValueError:
            complete.append(Incoming(meta.reply_to_message_id, meta.group_id, None))
            return True
        data = None
        try:
            answer = self._runtime_client.PullObject(
                PullObjectRequest(node=self.node, run_id=self.run.run_id, object_id=part)
            )
            if answer.object_found and not answer.object_available:
                return False  # the device is still sending it
            self._confirm(meta.message_id)
            data = bytes_in_part(answer.object_content)
        except httpx.TransportError:
            raise  # the SuperLink is gone; everything else is wrong with this reply alone
        except Exception as error:
            _log.debug("a reply could not be opened (%s)", type(error).__name__)
        complete.append(Incoming(meta.reply_to_message_id, meta.group_id, data))
        return True

    def _confirm(self, message: str) -> None:
        self._runtime_client.ConfirmMessageReceived(
            ConfirmMessageReceivedRequest(
                node=self.node, run_id=self.run.run_id, message_object_id=message
            )
        )

    def forget(self, unanswered: Iterable[Outgoing]) -> None:
        """The exchange is over; what was not answered stays in the SuperLink's memory until the
        run ends.
        """
        self._incomplete = []
        self.leftover += sum(max(len(message.data), _LEFT_REPLY) for message in unanswered)

    def close(self) -> None:
        """End the run and hang up."""
        try:
            self._http.timeout = 2.0
            # Not "completed": only a run that is stopped is taken out of the SuperLink's memory.
            self._control.StopRun(StopRunRequest(run_id=self.run.run_id))
        except Exception as error:  # whatever it is: a SuperLink that is gone has no run to end
            _log.debug("the run was not ended in order (%s)", type(error).__name__)
        finally:
            self._http.close()

    def _connect(self) -> None:
        token = RuntimeTokenHttpInterceptor(token=self._token)
        self._client = self._over_our_http(
            RuntimeHttpClient(self._base, interceptors=[self._version, token])
        )

    def _over_our_http(self, client: Any) -> Any:
        client._client.close()
        client._client = self._http
        return client

    def _start(self, bundle: bytes) -> None:
        with said_plainly():
            started = self._control.StartRun(StartRunRequest(fab=Fab(content=bundle)))
            launcher = self._over_our_http(
                RuntimeHttpClient(self._base, interceptors=[self._version])
            )
            task = launcher.AcquireTask(
                AcquireTaskRequest(supported_task_types=[TaskType.SERVER_APP])
            )
            if not task.token or task.task.run_id != started.run_id:
                raise TransportError(
                    "the SuperLink gave us another run's task: is it used by somebody else?"
                )
            self._token = task.token
            given = self._runtime_client.PullTaskInput(PullTaskInputRequest())
        self._identity = (given.task_id, given.run.run_id, given.context.node_id)
        self.set_run(run_from_proto(given.run))
