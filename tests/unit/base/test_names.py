"""Names that somebody gives themselves: what is shown, and what could mislead."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdpmf.common.base.names import LONGEST_NAME, claimed_name
from hdpmf.errors import ConfigError


@pytest.mark.parametrize(
    ("given_name", "shown"),
    [
        ("Film club", "Film club"),
        ("  Film \u00a0 club\u2003", "Film club"),
        ("Cafe\u0301 & Kino 24/7", "Café & Kino 24/7"),
        ("Dr. No Films, Inc.", "Dr. No Films, Inc."),
        ("Кино клуб", "Кино клуб"),
        ("סרטים", "סרטים"),
        ("映画の会", "映画の会"),
        ("x" * LONGEST_NAME, "x" * LONGEST_NAME),
    ],
)
def test_a_name_is_shown_as_it_is(given_name: str, shown: str) -> None:
    assert claimed_name(given_name) == shown
    assert claimed_name(shown) == shown


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "1 to 60"),
        ("...", "1 to 60"),
        ("x" * (LONGEST_NAME + 1), "1 to 60"),
        ("Film\nclub", "cannot be seen"),
        ("Film\tclub", "cannot be seen"),
        ("Film\u202eclub", "cannot be seen"),
        ("Film\u2066club", "cannot be seen"),
        ("Film\u200bclub", "cannot be seen"),
        ("Film\u3164club", "cannot be seen"),
        ("Film\x00club", "cannot be seen"),
        ("Film\ue000club", "cannot be seen"),
        ("e" + "\u0323" * 9, "cannot be seen"),
        ("Fіlm club", "mixes letters"),
        ("films.example", "looks like an address"),
        ("https://films", "looks like an address"),
        ("Film club ｆilms．example", "looks like an address"),
        ("me@films", "looks like an address"),
    ],
)
def test_a_name_that_could_mislead_is_refused(name: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        claimed_name(name)


@pytest.mark.slow
@given(st.text(max_size=80))
def test_what_is_taken_is_short_visible_and_stays_as_it_is(text: str) -> None:
    try:
        name = claimed_name(text)
    except ConfigError:
        return
    assert 1 <= len(name) <= LONGEST_NAME
    assert claimed_name(name) == name == unicodedata.normalize("NFC", name).strip()
    assert name.isprintable()
