"""Running the command in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from hdpmf.cli import main

Say = Callable[..., Any]


@pytest.fixture
def say(capfd: pytest.CaptureFixture[str]) -> Say:
    """What ``hdpmf ... --json`` prints; it has to end well."""

    def run(*arguments: object) -> Any:
        capfd.readouterr()
        with pytest.raises(SystemExit) as end:
            main.run([*map(str, arguments), "--json"])
        printed = capfd.readouterr()
        assert not end.value.code, printed.err
        return json.loads(printed.out)

    return run
