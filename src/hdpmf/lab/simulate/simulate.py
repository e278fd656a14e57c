"""A whole federation in memory: every user a participant with a report, and both servers."""

import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from hdpmf.common.aggregation.two_servers.dap.messages import REPORT_ID_SIZE, HpkeConfig
from hdpmf.common.data import IdIndex, Ratings
from hdpmf.common.privacy import PrivacyWeights
from hdpmf.common.privacy.sampling import SeededNoise
from hdpmf.common.protocol import ItemFacts
from hdpmf.common.protocol.catalogue import catalogue_table, signed_first
from hdpmf.common.protocol.documents import to_base64
from hdpmf.common.protocol.identity import Identity, PartyKey
from hdpmf.common.protocol.key_list import PublishedKeys, config_of
from hdpmf.common.protocol.servers import Server, Servers
from hdpmf.common.protocol.task import is_asked, read_task, task_id
from hdpmf.errors import FederationError
from hdpmf.models import Estimator, make_model
from hdpmf.models.hdp_pairs import HDPPairs
from hdpmf.private.client.pairs import histories, row_of, sealed_report
from hdpmf.untrusted.aggregator.datastore import ServerDatabase
from hdpmf.untrusted.aggregator.helper import Helper
from hdpmf.untrusted.aggregator.hpke_keys import HpkeKeyRing
from hdpmf.untrusted.aggregator.leader import Leader
from hdpmf.untrusted.aggregator.report_writer import Upload
from hdpmf.untrusted.aggregator.tasks import ServerKeys, SimulationRules
from hdpmf.untrusted.service.keys import CollectorKeys
from hdpmf.untrusted.service.metrics import Metrics
from hdpmf.untrusted.service.outcome import RunOutcome
from hdpmf.untrusted.service.publish import public_files
from hdpmf.untrusted.service.run import Run, no_log
from hdpmf.untrusted.service.settings import METHOD, Pace, RunSettings

BEGIN = 1_000_000_000.0
"""When simulated time begins."""

_LEADER_STREAM, _HELPER_STREAM = 2, 3
_AT_A_TIME = 64
"""Reports that are written with one commit, and checked together: bounds the memory."""


def only_users(ratings: Ratings, chosen: np.ndarray) -> Ratings:
    """The ratings of some users (a mask), over the same items."""
    part = ratings.take(chosen[ratings.user_codes])
    codes = (np.cumsum(chosen) - 1).astype(np.int32)
    return replace(
        part, users=IdIndex(ratings.users.ids[chosen]), user_codes=codes[part.user_codes]
    )


def deal(ratings: Ratings, weights: PrivacyWeights) -> list[tuple[Ratings, PrivacyWeights]]:
    """Deal every user's ratings and weights to a device of their own."""
    order = np.argsort(ratings.user_codes, kind="stable")
    rows = np.split(order, np.cumsum(np.bincount(ratings.user_codes, minlength=ratings.n_users)))
    beta, gamma = weights.for_users(ratings.users), weights.for_items(ratings.items)
    me = IdIndex(np.array(["me"]))
    parts = []
    for user, own in enumerate(rows[:-1]):
        part = Ratings(
            users=me,
            items=ratings.items,
            user_codes=np.zeros(len(own), np.int32),
            item_codes=ratings.item_codes[own],
            values=ratings.values[own],
            timestamps=None,
            scale=ratings.scale,
            item_table=None,
            name=ratings.name,
        )
        parts.append((part, PrivacyWeights(me, ratings.items, beta[user : user + 1], gamma)))
    return parts


class ServersHere:
    """``SumServers`` in this process; asking for the sum makes the leader prepare reports."""

    def __init__(self, leader: Leader, helper: Helper) -> None:
        self._leader = leader
        self._helper = helper

    def add_task(self, document: bytes) -> None:
        """Give a task to both servers."""
        self._helper.add_task(document)
        self._leader.add_task(document)

    def collect(self, task_id: bytes, request: bytes) -> bytes | None:
        """Ask the leader for the sum of a task; None while it is not ready."""
        while self._leader.aggregate():
            pass
        return self._leader.collect(task_id, request)

    def signed_keys(self) -> PublishedKeys:
        """The lists of both servers' keys."""
        return PublishedKeys.of(self._leader.signed_keys(), self._helper.signed_keys())

    def close(self) -> None:
        """Do nothing: no connection is open."""


class ServersInProcess:
    """Both servers in this process, in memory, with seeded noise."""

    def __init__(self, seed: int) -> None:
        self.now = BEGIN
        parties = [PartyKey.generate(), PartyKey.generate()]
        signing = [Identity.generate(), Identity.generate()]
        cards = [
            Server(
                organisation=name,
                url=f"https://{name}.invalid",
                identity=party.public,
                signing=to_base64(key.public),
            )
            for name, party, key in zip(("leader", "helper"), parties, signing, strict=True)
        ]
        self.servers = Servers(leader=cards[0], helper=cards[1])
        rules = SimulationRules(minimum=2)
        self._databases = [ServerDatabase(), ServerDatabase()]
        self._folder = TemporaryDirectory()
        states = [Path(self._folder.name, name) for name in ("leader", "helper")]
        for state in states:
            state.mkdir()
        hpke = [HpkeKeyRing(state, key) for state, key in zip(states, signing, strict=True)]
        helper = Helper(
            ServerKeys("helper", parties[1], hpke[1], cards[1], cards[0]),
            self._databases[1],
            states[1],
            clock=lambda: self.now,
            noise=SeededNoise(seed, _HELPER_STREAM),
            rules=rules,
        )
        self.leader = Leader(
            ServerKeys("leader", parties[0], hpke[0], cards[0], cards[1]),
            self._databases[0],
            states[0],
            helper,
            clock=lambda: self.now,
            noise=SeededNoise(seed, _LEADER_STREAM),
            rules=rules,
        )
        self.sum_servers = ServersHere(self.leader, helper)

    def configs(self) -> tuple[HpkeConfig, HpkeConfig]:
        """Return the keys of leader and helper that reports are encrypted to."""
        keys, cards = self.sum_servers.signed_keys(), self.servers
        return (
            config_of(cards.leader, keys.leader, self.now),
            config_of(cards.helper, keys.helper, self.now),
        )

    def take(self, name: bytes, reports: Sequence[bytes]) -> None:
        """Take reports for a task, and check them together."""
        uploads = [Upload(name, report) for report in reports]
        refused = [error for error in self.leader.upload_many(uploads) if error is not None]
        if refused:
            raise FederationError(f"the leader refused a simulated device's report: {refused[0]}")
        while self.leader.aggregate(_AT_A_TIME):
            pass

    def close(self) -> None:
        """Let all of it go."""
        for database in self._databases:
            database.close()
        self._folder.cleanup()


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """The numbers of a simulated federation.

    Attributes:
        bytes_up: From a device.
        bytes_down: To a device.
        mse: Mean squared error on the test ratings; None without any.
        epsilon: The budget of a person.
        ndcg: Of lists of ten, NDCG@10 on the test ratings.
        user_mean_mse: Of every user's own mean, which needs no recommender.
        seconds: All of it, setting up the devices included.
        sees: What the recommender could see, in words.
    """

    method: str
    view: str
    epsilon: float | None
    status: str
    devices: int
    n: int
    mse: float | None
    mae: float | None
    ndcg: float | None
    user_mean_mse: float | None
    user_mean_mae: float | None
    bytes_up: float
    bytes_down: float
    seconds: float
    sees: str
    guarantee: str

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True, repr=False)
class Simulation:
    """A simulation that has ended.

    ``model`` has all devices' models as one, to look into.
    """

    result: SimulationResult
    model: Estimator
    outcome: RunOutcome


def simulate(
    train: Ratings,
    settings: RunSettings,
    weights: PrivacyWeights | None = None,
    *,
    test: Ratings | None = None,
    seed: int = 0,
    metrics: Metrics | None = None,
    log: Callable[[str], None] = no_log,
) -> Simulation:
    """Run a federation of simulated devices, one for each user.

    Args:
        train: Their ratings.
        settings: Of the run.
        weights: Privacy weights; without them every rating has weight 1.
        test: Ratings to measure the devices' predictions by.
        seed: Of all draws.
        metrics: Counts what happens.
        log: Called with lines for people.
    """
    begin = time.perf_counter()
    if weights is None:
        weights = PrivacyWeights.uniform(train)
    items, key = catalogue_table(train.items, train.scale, train.item_table), Identity.generate()
    table = signed_first(items, key.sign, key.public)
    up = down = 0
    with closing(ServersInProcess(seed)) as pair:

        def publish(document: bytes | None) -> None:
            nonlocal up, down
            if document is None:
                return
            task, name = read_task(document), task_id(document)
            pair.now = max(pair.now, float(task.begin))
            published = pair.sum_servers.signed_keys()
            files = public_files(table, task=document, keys=published.to_bytes())
            down += train.n_users * sum(map(len, files.values()))
            configs = pair.configs()
            waiting: list[bytes] = []
            for number, (ratings, own) in enumerate(deal(train, weights)):
                if not is_asked(task, name, _secret(seed, number)):
                    continue
                report = report_of(document, ratings, own, configs)
                up += len(report)
                waiting.append(report)
                if len(waiting) == _AT_A_TIME:
                    pair.take(name, waiting)
                    waiting = []
            pair.take(name, waiting)
            log(f"{train.n_items:,} items, {train.n_users:,} reports")

        def sleep(seconds: float) -> None:
            pair.now += max(seconds, 1.0)

        outcome = Run(
            settings=settings,
            table=table,
            people=train.n_users,
            servers=pair.servers,
            keys=CollectorKeys.generate("simulation"),
            sum_servers=pair.sum_servers,
            publish=publish,
            pace=Pace(pause=0.0),
            metrics=Metrics() if metrics is None else metrics,
            log=log,
            sleep=sleep,
            clock=lambda: pair.now,
        ).conduct()
    model = _everyones_model(settings, train, weights, outcome)
    score: dict[str, float | int] = {}
    baseline: dict[str, float | int] = {}
    if test is not None and not train.implicit:
        score = model.score(test)
        baseline = make_model("user-mean").fit(train).score(test)
    stated = outcome.statement
    result = SimulationResult(
        method=METHOD,
        view=stated.view,
        epsilon=stated.epsilon,
        status=stated.status,
        devices=train.n_users,
        n=0 if test is None else len(test),
        mse=score.get("mse"),
        mae=score.get("mae"),
        ndcg=None if test is None else float(model.rank(test, 10)["ndcg"]),
        user_mean_mse=baseline.get("mse"),
        user_mean_mae=baseline.get("mae"),
        bytes_up=up / train.n_users,
        bytes_down=down / train.n_users,
        seconds=time.perf_counter() - begin,
        sees=stated.sees,
        guarantee=stated.guarantee,
    )
    return Simulation(result, model, outcome)


def _secret(seed: int, number: int) -> bytes:
    """By which a simulated participant draws whether it is asked."""
    return sha256(f"{seed} {number}".encode()).digest()


def report_of(
    document: bytes,
    ratings: Ratings,
    weights: PrivacyWeights,
    configs: tuple[HpkeConfig, HpkeConfig],
) -> bytes:
    """Return a simulated participant's sealed report for a task, as a device uploads it.

    Args:
        document: The task.
        ratings: One person's.
        weights: The same person's.
        configs: Keys of leader and helper.
    """
    task, name = read_task(document), task_id(document)
    row = row_of(task.sums, histories(ratings, weights), ratings.n_items)
    report_id = secrets.token_bytes(REPORT_ID_SIZE)
    return sealed_report(task, name, row, report_id, at=task.begin, configs=configs)


def _everyones_model(
    settings: RunSettings, train: Ratings, weights: PrivacyWeights, outcome: RunOutcome
) -> Estimator:
    """Return one model of all devices' lists and stars, to measure it like the library's."""
    model = make_model(METHOD, **settings.model_params())
    facts, lists = outcome.model.numbers, outcome.model.lists
    if not isinstance(model, HDPPairs) or not isinstance(facts, ItemFacts) or lists is None:
        raise FederationError(f"{METHOD} has no use for what the run released")
    return model.with_model(train, weights, facts, lists)
