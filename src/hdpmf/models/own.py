"""Methods of the user's own: an `Estimator` under a name that every command and experiment knows."""

from __future__ import annotations

import inspect
import re
from dataclasses import is_dataclass
from typing import Any

from hdpmf.errors import ConfigError
from hdpmf.methods import METHODS, Form, Method
from hdpmf.methods.claims import NO_NOISE, nothing_hidden
from hdpmf.models.base import Estimator

_ALL = "all ratings"


def add_method(
    name: str, estimator: type[Estimator], *, label: str = "", summary: str = "", form: Form | None = None, **more: Any
) -> Method:
    """Make an estimator a method: for ``make_model``, the command line, experiments and their reports.

    Args:
        name: For commands: small letters, digits and hyphens.
        estimator: A subclass of `Estimator`, a dataclass whose fields are its options.
        label: For tables and figures; the name where it is not given.
        summary: One line for people; the first of the docstring where it is not given.
        form: What leaves devices and what epsilon is worth (`hdpmf.methods.Form`). Without it the method claims no
            privacy: it works on ratings given away.
        **more: Anything else that `hdpmf.methods.Method` has.

    Raises:
        ConfigError: It is no `Estimator`, the name cannot be or is taken, or an option has no default.
    """
    if not (isinstance(estimator, type) and issubclass(estimator, Estimator)):
        called = estimator.__name__ if isinstance(estimator, type) else repr(type(estimator).__name__)
        raise ConfigError(
            f"{called} is no hdpmf.Estimator; write class {called}(hdpmf.Estimator) with learn and expect, and give "
            "the class itself (docs/own-method.md)"
        )
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", name):
        raise ConfigError(f"a method's name has small letters, digits and hyphens, not {name!r}")
    if estimator.parameter_names() and not is_dataclass(estimator):
        raise ConfigError(
            f"the options of {estimator.__name__} are not known: make it a dataclass, with a field for each"
        )
    method = Method(
        name=name,
        label=label or name,
        summary=summary or (inspect.getdoc(estimator) or name).splitlines()[0].rstrip("."),
        estimator=estimator,
        configuration=estimator,
        plain=nothing_hidden("The ratings themselves.", _ALL, _ALL, NO_NOISE) if form is None else form,
        **{"family": "clear", "accounting": "no-noise", **more},
    )
    known = METHODS.get(name)
    if known is not None and _same_class(known.estimator, estimator):
        METHODS.discard(name)  # a notebook's cell that is run again
    return METHODS.add(method)


def _same_class(known: str | type, new: type) -> bool:
    return isinstance(known, type) and (known.__module__, known.__qualname__) == (new.__module__, new.__qualname__)
