"""One browser for all tests here, and a fresh context for each: no test sees another's cookies,
pages or history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page

from tests.e2e.browsing import DESKTOP, Heard, running_chromium


# Not for the session: tests elsewhere in the same process call asyncio.run, which they could not
# while it runs.
@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    with running_chromium() as browser:
        yield browser


@pytest.fixture
def new_context(chromium: Browser) -> Iterator[Callable[..., BrowserContext]]:
    """Makes contexts, each like a browser of its own; they are closed after the test."""
    made: list[BrowserContext] = []

    def new(**options: Any) -> BrowserContext:
        made.append(chromium.new_context(**{**DESKTOP, **options}))
        return made[-1]

    yield new
    for context in made:
        context.close()


@pytest.fixture
def context(new_context: Callable[..., BrowserContext]) -> BrowserContext:
    return new_context()


@pytest.fixture
def page(context: BrowserContext) -> Page:
    return context.new_page()


@pytest.fixture
def heard(context: BrowserContext) -> Heard:
    return Heard(context)
