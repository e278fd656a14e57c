"""The page is for one browser of one person: everybody else gets nothing, and nothing private
lies about.
"""

from __future__ import annotations

import asyncio
import json

import pytest

from hdpmf.common.web import local_server
from hdpmf.common.web.local_server import AttemptLimit
from hdpmf.errors import PrivacyError
from hdpmf.private.device.device_identity import new_device
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.private.page import http

from .conftest import ORIGIN, PASSPHRASE, Person, address_of, fill

PAGES = sorted(http._PAGES)
POSTS = sorted(
    {
        **http._ACTIONS,
        **http._QUESTIONS,
        **http._FILES,
        "/lock": None,
        "/unlock": None,
        "/welcome": None,
    }
)
PRIVATE = ("Zombie", "Quiet", "4.5", "data-item")


def says_nothing(text: str) -> bool:
    return not any(word in text for word in PRIVATE)


@pytest.mark.parametrize("path", ["/", *PAGES, "/unlock", "/welcome"])
def test_without_a_cookie_no_page_is_shown(person: Person, path):
    assert "Zombie" in person.get("/rate").text  # there is something to be seen
    person.client.cookies.clear()
    answer = person.get(path)
    assert answer.status_code == 403
    assert says_nothing(answer.text)


@pytest.mark.parametrize("path", POSTS)
def test_without_the_pages_own_token_nothing_is_done(person: Person, path):
    fields = {
        "item": "1",
        "value": "",
        "words": "zombie",
        "what": "everything",
        "sure": "yes",
        "weight": "0.5",
    }
    before = person.owner.path.read_bytes()
    for token in ("", "wrong", person.csrf[:-1]):
        headers = {"origin": ORIGIN}
        form = person.client.post(
            path, data=fields | {"csrf": token}, headers=headers, follow_redirects=False
        )
        script = person.client.post(
            path, json=fields, headers=headers | {"x-csrf": token}, follow_redirects=False
        )
        file = person.client.post(
            path,
            content=b"item,rating\n3,5\n",
            headers=headers
            | {
                "x-csrf": token,
                "content-type": "application/octet-stream",
                "x-fields": json.dumps(fields | {"kind": "csv"}),
            },
            follow_redirects=False,
        )
        for answer in (form, script, file):
            assert answer.status_code in ((403, 303) if path in ("/unlock", "/welcome") else (403,))
            assert says_nothing(answer.text)
    assert person.owner.path.read_bytes() == before
    with person.owner.store() as store:
        assert store.n_ratings == 2


def test_a_link_works_once_and_its_cookie_is_for_our_own_pages_only(outside: Person):
    token = outside.sessions.token()
    answer = outside.enter(token)
    flags = answer.headers["set-cookie"].lower()
    assert "httponly" in flags
    assert "samesite=strict" in flags
    assert "domain" not in flags
    outside.client.cookies.clear()
    assert outside.enter(token).status_code == 403
    assert "set-cookie" not in outside.enter(token).headers
    for nonsense in (b"", b"[]", b"{", b'{"token": 1}', b'{"token": null}', b"x" * 5000):
        answer = outside.client.post("/enter", content=nonsense, headers={"origin": ORIGIN})
        assert answer.status_code == 403


def test_a_page_of_another_site_gets_nothing_although_the_browser_is_let_in(person: Person):
    foreign = {"origin": "http://evil.example", "sec-fetch-site": "cross-site"}
    for path in PAGES:
        assert person.client.get(path, headers=foreign).status_code == 403
        assert person.client.get(path, headers={"sec-fetch-site": "cross-site"}).status_code == 403
        assert person.client.get(path, headers={"host": "evil.example"}).status_code == 403
    for path in POSTS:
        answer = person.client.post(path, data={"csrf": person.csrf}, headers=foreign)
        assert answer.status_code == 403
        assert says_nothing(answer.text)


def test_no_answer_may_be_kept_embedded_or_read_elsewhere(person: Person):
    answers = [
        person.get(path) for path in (*PAGES, "/nothing", "/static/page.css", "/static/nothing")
    ]
    answers += [
        person.ask("/rate/find", {"words": "quiet"}),
        person.post("/disclosures/export", {}),
    ]
    for answer in answers:
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")
        assert answer.headers["x-frame-options"] == "DENY"
        assert "access-control-allow-origin" not in answer.headers


def test_a_title_is_no_script(person: Person):
    for path in PAGES:
        text = person.get(path).text
        assert "<script>alert" not in text
        assert " style=" not in text
        assert " onclick" not in text
    assert "&lt;script&gt;alert" in person.get("/rate").text


def test_paths_and_titles_say_nothing(person: Person):
    for path in PAGES:
        text = person.get(path).text
        assert says_nothing(text.partition("<title>")[2].partition("</title>")[0])
        assert 'method="get"' not in text.lower()
        for form in text.split("<form")[1:]:
            assert 'method="post"' in form.split(">")[0] or "data-action" in form.split(">")[0]
    for path, fields in (
        ("/rate/set", {"item": "1", "value": "3"}),
        ("/recommendations/hide", {"item": "1", "hidden": "yes"}),
    ):
        place = person.post(path, fields).headers.get("location", "")
        assert "?" not in place
        assert says_nothing(place)


def test_nothing_private_is_logged(person: Person, capfd, caplog):
    caplog.set_level(0)
    for path in PAGES:
        person.get(path)
    person.ask("/rate/find", {"words": "Zombie"})
    person.ask("/rate/set", {"item": "1", "value": "5"})
    person.ask("/rate/set", {"item": "1", "value": "77"})
    told = capfd.readouterr()
    ours = [
        record.getMessage()
        for record in caplog.records
        if record.name.split(".")[0] not in ("httpx", "asyncio")
    ]
    assert says_nothing(told.out + told.err + "".join(person.log) + "".join(ours))
    assert says_nothing(repr(person.owner) + repr(person.owner.background) + repr(person.sessions))


def test_after_a_while_nothing_is_shown_and_without_a_passphrase_a_new_link_is_the_key(
    person: Person,
):
    person.clock.now += 59
    assert person.get("/rate").status_code == 200
    csrf = person.csrf
    person.clock.now += 61
    answer = person.get("/rate")
    assert (answer.status_code, answer.headers["location"]) == (303, "/unlock")
    assert (
        person.client.post(
            "/rate/find", json={"words": "zombie"}, headers={"origin": ORIGIN, "x-csrf": csrf}
        ).status_code
        == 403
    )
    answer = person.get("/unlock")
    assert answer.status_code == 403
    assert says_nothing(answer.text)
    assert person.links == [True]
    assert person.get("/rate").status_code == 403
    person.enter()
    assert "Zombie" in person.get("/rate").text


def test_an_encrypted_store_is_asked_for_its_passphrase_and_not_at_will(outside: Person):
    with new_device(outside.path, passphrase=PASSPHRASE) as store:
        fill(store)
    outside.enter()
    assert outside.get("/rate").headers["location"] == "/unlock"
    page = outside.get("/unlock")
    assert page.status_code == 200
    assert says_nothing(page.text)
    csrf = page.text.partition('data-csrf="')[2].partition('"')[0]

    def unlock(passphrase: str):
        return outside.client.post(
            "/unlock",
            data={"csrf": csrf, "passphrase": passphrase},
            headers={"origin": ORIGIN},
            follow_redirects=False,
        )

    outside.owner.attempts = AttemptLimit(outside.clock)
    for _ in range(3):
        assert unlock("wrong").status_code == 403
    answer = unlock(PASSPHRASE)  # the right one, too early
    assert answer.status_code == 403
    assert "too many" in answer.text
    assert not outside.owner.is_open
    outside.clock.now += outside.owner.attempts.wait
    assert unlock(PASSPHRASE).headers["location"] == "/"
    assert "Zombie" in outside.get("/rate").text
    assert outside.post("/lock", {}).headers["location"] == "/unlock"
    assert outside.get("/rate").headers["location"] == "/unlock"


def test_the_old_passphrase_is_not_tried_at_will_when_a_new_one_is_given(outside: Person):
    """Whoever sits at an open page has the same few tries as somebody before a closed one."""
    with new_device(outside.path, passphrase=PASSPHRASE) as store:
        fill(store)
    outside.enter()
    owner = outside.owner
    owner.attempts = AttemptLimit(outside.clock)
    owner.open(PASSPHRASE)
    for _ in range(3):
        with pytest.raises(PrivacyError, match="passphrase is wrong"):
            owner.change_passphrase("a guess", "mine now")
    assert owner.attempts.wait > 0
    for guess in ("a guess", PASSPHRASE):  # the right one, too early
        with pytest.raises(PrivacyError, match="too many wrong passphrases"):
            owner.change_passphrase(guess, "mine now")
    with pytest.raises(PrivacyError, match="too many"):  # one count for both places
        owner.open(PASSPHRASE)
    outside.clock.now += owner.attempts.wait
    owner.change_passphrase(PASSPHRASE, "another one")
    DeviceStore.open(outside.path, passphrase="another one").close()


def test_a_store_that_nobody_looks_at_is_closed(person: Person):

    class Twice:
        turns = 0

        def wait(self, seconds: float) -> bool:
            self.turns += 1
            return self.turns > 1

    page = http.OwnerPage(person.owner, address_of(person.path), person.sessions, lambda: None)
    page.watch(Twice())  # type: ignore[arg-type]
    assert person.owner.is_open
    person.clock.now += 1000
    page.watch(Twice())  # type: ignore[arg-type]
    assert not person.owner.is_open


def test_the_file_is_for_its_owner_only(person: Person):
    assert person.path.stat().st_mode & 0o077 == 0
    with DeviceStore.open(person.path) as store:
        assert store.n_ratings == 2


def test_what_is_too_long_is_not_kept(person: Person, monkeypatch):
    monkeypatch.setattr(http, "MOST_BYTES", 100)
    assert person.upload("/rate/file", b"x" * 101).json()["next"] == "/rate"
    assert "error" in person.get("/rate").text


@pytest.mark.parametrize(
    "body",
    [b"[" * 990, b'{"token": "\\ud800"}', b'{"token": ["a"]}', b"\xff", b"", b'{"token": 1e999}'],
)
def test_no_token_breaks_the_entrance(outside: Person, body: bytes):
    answer = outside.client.post("/enter", content=body, headers={"origin": ORIGIN})
    assert answer.status_code == 403


def test_no_form_breaks_the_page(person: Person):
    token, own = person.csrf, {"origin": ORIGIN}
    form, script = (
        {"content-type": f"application/{kind}"} for kind in ("x-www-form-urlencoded", "json")
    )
    many = "&".join(f"a{number}=1" for number in range(60))
    assert (
        person.client.post(
            "/privacy/ask", content=f"{many}&csrf={token}", headers=own | form
        ).status_code
        == 403
    )
    for body in (b"[" * 100_000, b'{"csrf": "\\ud800"}'):
        assert (
            person.client.post("/rate/set", content=body, headers=own | script).status_code == 403
        )
    odd = person.client.post(
        "/rate/set",
        content=b'{"item": "\\ud800", "value": "4"}',
        headers=own | script | {"x-csrf": token},
    )
    assert odd.status_code == 400


def test_a_body_that_never_ends_is_not_waited_for(person: Person, monkeypatch):
    monkeypatch.setattr(local_server, "BODY_SECONDS", 0.05)

    async def drips():
        while True:
            yield b" "
            await asyncio.sleep(0.02)

    assert (
        person.client.post("/enter", content=drips(), headers={"origin": ORIGIN}).status_code == 403
    )
