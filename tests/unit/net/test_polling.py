"""A device that polls a recommender: over TLS on loopback, and by scripted answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from hdpmf.common.aggregation.masks import DeviceIdentity
from hdpmf.common.net import polling
from hdpmf.common.net.carrier import Answer
from hdpmf.common.net.https import HttpsAnswer
from hdpmf.common.net.polling import PollingDevice, drawn_pause
from hdpmf.common.net.signing import CLOCK_HEADER, FILES_HEADER, OFFER_HEADER, PAUSE_HEADER
from hdpmf.errors import TransportError
from tests.federation.deployed import recommender


def test_every_offer_is_answered_once(tmp_path: Path) -> None:
    identity, stop = DeviceIdentity.generate(), threading.Event()
    name, asked = identity.public.hex(), []

    def answer(data: bytes) -> bytes:
        asked.append(data)
        return data.upper()

    with recommender(tmp_path, [identity]) as made:
        device = PollingDevice(made.address, made.authority, identity)
        thread = threading.Thread(target=device.serve, args=(answer, stop), daemon=True)
        thread.start()
        for message in (b"first", b"second"):
            heard = [reply.data for reply in made.mailbox.exchange({name: message}, 30.0)]
            assert heard == [message.upper()]
        stop.set()
        thread.join(30.0)
        assert not thread.is_alive()
    assert asked == [b"first", b"second"]  # each once


class Scripted:
    """In the place of the client: gives answers one after the other and notes the requests."""

    def __init__(self, answers: Iterable[HttpsAnswer | Exception]) -> None:
        self.answers, self.requests = list(answers), list[tuple[str, str, bytes]]()

    def __enter__(self) -> Scripted:
        return self

    def __exit__(self, *_: object) -> None: ...

    def close(self) -> None: ...

    def request(
        self, method: str, url: str, *, most: int, headers: dict[str, str], body: bytes
    ) -> HttpsAnswer:
        self.requests.append((method, url.removeprefix(ADDRESS), body))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


class Watch(threading.Event):
    """A stop that nobody waits for: pauses of the device are noted, and it ends with its script."""

    def __init__(self, client: Scripted) -> None:
        super().__init__()
        self.client, self.pauses = client, list[float]()

    def wait(self, timeout: float | None = None) -> bool:
        if threading.current_thread().name == "departure":
            return super().wait(timeout)
        self.pauses.append(timeout or 0.0)
        if not self.client.answers:
            self.set()
        return self.is_set()


ADDRESS = "https://films.example.org"
NOTHING = HttpsAnswer(204, {}, b"")


def offer(name: str, body: bytes = b"hello", **headers: str) -> HttpsAnswer:
    return HttpsAnswer(200, {OFFER_HEADER: name, **headers}, body)


def served(
    monkeypatch: pytest.MonkeyPatch,
    *answers: HttpsAnswer | Exception,
    answer: Answer = bytes.upper,
    max_bytes: int = 1000,
    look: Callable[[str], object] = lambda version: None,
) -> tuple[list[str], list[tuple[str, str, bytes]], list[float]]:
    """What the owner is told, what was requested, and how long it waited after each turn."""
    client, said = Scripted(answers), list[str]()
    monkeypatch.setattr(polling, "HttpsClient", lambda *_, **__: client)
    monkeypatch.setattr(polling, "backoff", lambda tries, first, longest: (tries, longest))
    monkeypatch.setattr(polling, "drawn_pause", lambda suggested, shortest: (suggested, shortest))
    device = PollingDevice(
        ADDRESS,
        b"",
        DeviceIdentity.generate(),
        max_bytes=max_bytes,
        look=look,
        log=said.append,
        shortest=3.0,
    )
    watch = Watch(client)
    device.serve(answer, watch)
    return said, client.requests, watch.pauses


def test_what_is_the_same_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = HttpsAnswer(503, {}, b"")
    said, _, pauses = served(monkeypatch, NOTHING, NOTHING, busy, busy, NOTHING)
    connected = f"connected to {ADDRESS}"
    words = "the recommender is busy, starting or stopping; trying again"
    assert said == [connected, words, connected]
    again = polling._LONGEST_RETRY
    assert pauses == [("", 3.0), ("", 3.0), (0, again), (1, again), ("", 3.0)]


def test_who_is_refused_waits_longer_each_time_until_it_is_let_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refused = HttpsAnswer(401, {}, b"")
    suggested = HttpsAnswer(204, {PAUSE_HEADER: "12"}, b"")
    _, _, pauses = served(monkeypatch, refused, refused, suggested, refused)
    longest = polling.REFUSED_PAUSE
    assert pauses == [(0, longest), (1, longest), ("12", 3.0), (0, longest)]


@pytest.mark.parametrize(
    ("status", "seconds", "words"),
    [
        (401, None, "refused: this device is not enrolled"),
        (401, "soon", "refused: this device is not enrolled"),
        (401, "nan", "refused: this device is not enrolled"),
        (401, "inf", "refused: this device is not enrolled"),
        (401, 1299.0, "refused: this device is not enrolled"),
        (401, 701.0, "refused: this device is not enrolled"),
        (401, 1300.0, "refused: this machine's clock is 300 s behind the recommender's"),
        (401, 700.0, "refused: this machine's clock is 300 s ahead of the recommender's"),
        (403, 700.0, "the recommender refused with status 403"),
        (499, None, "the recommender refused with status 499"),
        (500, None, "the recommender cannot answer at the moment (status 500)"),
        *((status, None, "the recommender is busy") for status in (429, 502, 503, 504)),
    ],
)
def test_the_owner_is_told_why_it_is_refused(
    monkeypatch: pytest.MonkeyPatch, status: int, seconds: object, words: str
) -> None:
    monkeypatch.setattr(polling.time, "time", lambda: 1000.0)
    headers = {} if seconds is None else {CLOCK_HEADER: str(seconds)}
    said, _, _ = served(monkeypatch, HttpsAnswer(status, headers, b""))
    assert len(said) == 1
    assert said[0].startswith(words)
    assert said[0].endswith("; trying again")


def test_an_answer_that_was_not_taken_is_sent_again_and_not_made_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    def answer(data: bytes) -> bytes:
        asked.append(data)
        return data.upper()

    lost = TransportError("the recommender cannot be reached")
    taken = HttpsAnswer(201, {}, b"")
    said, requests, _ = served(
        monkeypatch, offer("one"), lost, offer("one"), taken, offer("two"), taken, answer=answer
    )
    assert asked == [b"hello", b"hello"]
    put = ("PUT", "/contributions/one", b"HELLO")
    assert [each for each in requests if each[0] != "GET"] == [
        put, put, ("PUT", "/contributions/two", b"HELLO"),
    ]  # fmt: skip
    assert said[1] == "the recommender cannot be reached; trying again"


@pytest.mark.parametrize("status", [201, 204, 409, 410, 413, 400])
def test_what_a_recommender_says_to_an_answer(monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    said, _, _ = served(monkeypatch, offer("one"), HttpsAnswer(status, {}, b""))
    words = {
        413: ["refused: the reply is longer than the recommender's limit"],
        400: ["the recommender refused with status 400; trying again"],
    }
    assert said[1:] == words.get(status, [])


@pytest.mark.parametrize("name", ["", "a/b", "é", "x" * 65])
def test_an_offer_without_an_id_is_not_answered(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    said, requests, _ = served(monkeypatch, offer(name))
    assert said[-1] == "the recommender sent an offer without an id; trying again"
    assert [method for method, _, _ in requests] == ["GET"]


def test_an_id_may_have_64_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    _, requests, _ = served(monkeypatch, offer("x" * 64), HttpsAnswer(201, {}, b""))
    assert requests[-1][1] == f"/contributions/{'x' * 64}"


@pytest.mark.parametrize(("length", "sent"), [(1000, ("PUT", 1000)), (1001, ("DELETE", 0))])
def test_a_reply_that_is_too_long_stays_here(
    monkeypatch: pytest.MonkeyPatch, length: int, sent: tuple[str, int]
) -> None:
    taken = HttpsAnswer(204, {}, b"")
    _, requests, _ = served(
        monkeypatch, offer("one"), taken, answer=lambda data: bytes(length), max_bytes=1000
    )
    method, path, body = requests[-1]
    assert (method, len(body), path) == (*sent, "/contributions/one")


def test_a_fault_of_ours_tells_nobody_its_words(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def answer(data: bytes) -> bytes:
        raise ValueError("rated 5 stars")

    taken = HttpsAnswer(204, {}, b"")
    said, requests, _ = served(monkeypatch, offer("one"), taken, NOTHING, answer=answer)
    assert requests[1] == ("DELETE", "/contributions/one", b"")
    assert len(requests) == 3
    assert "ValueError" in caplog.text
    assert "5 stars" not in caplog.text + "".join(said)


def test_files_are_looked_at_before_each_poll_and_before_an_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    order = []

    def answer(data: bytes) -> bytes:
        order.append("answer")
        return data

    versions = {FILES_HEADER: "v" * 300}
    polled = offer("one", **versions)
    served(monkeypatch, polled, HttpsAnswer(201, {}, b""), answer=answer, look=order.append)
    assert order == ["", "v" * 200, "answer"]


@pytest.mark.parametrize(
    ("suggested", "low", "high"),
    [("12", 6.0, 18.0), ("0", 1.0, 3.0), ("1e9", 300.0, 900.0), ("nan", 15.0, 45.0),
     ("inf", 15.0, 45.0), ("", 15.0, 45.0), ("soon", 15.0, 45.0)],
)  # fmt: skip
def test_pauses_are_drawn_around_what_is_suggested(suggested: str, low: float, high: float) -> None:
    """Bounds hold whatever it says, so that no pause singles out a device."""
    assert drawn_pause(suggested, 2.0, lambda: 0.0) == low
    assert drawn_pause(suggested, 2.0, lambda: 1.0) == high
