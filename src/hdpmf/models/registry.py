"""Models by the names of their methods: make one, add a method of your own."""

from __future__ import annotations

import inspect
import re
from dataclasses import is_dataclass
from typing import Any

from hdpmf.common.methods import METHODS, Form, Method, method_named
from hdpmf.common.methods.method import NO_NOISE, nothing_hidden
from hdpmf.common.methods.registry import AS_CLAIMED
from hdpmf.errors import ConfigError
from hdpmf.models.base import Estimator


def make_model(name: str, **params: Any) -> Estimator:
    """Return an unfitted model of the method ``name``.

    Raises:
        ConfigError: There is no such method, or it does not have such a parameter.
    """
    model: Estimator = method_named(name).configure(**params)
    return model


_ALL = "all ratings"


def add_method(
    name: str,
    estimator: type[Estimator],
    *,
    label: str = "",
    summary: str = "",
    form: Form | None = None,
    **more: Any,
) -> Method:
    """Register an estimator for ``make_model``, the command line, experiments and reports.

    Args:
        name: For commands: small letters, digits and hyphens.
        estimator: A subclass of `Estimator`, a dataclass whose fields are its options.
        label: For tables and figures; the name where it is not given.
        summary: One line for people; the first of the docstring where it is not given.
        form: What leaves devices and what epsilon is worth (`hdpmf.common.methods.Form`). Without
            it the method claims no privacy: it works on ratings given away. With it, everything
            that prints its epsilon says that this is its author's claim.
        **more: Anything else that `hdpmf.common.methods.Method` has.

    Raises:
        ConfigError: It is no `Estimator`, the name cannot be or is taken, or an option has no
            default.
    """
    if not (isinstance(estimator, type) and issubclass(estimator, Estimator)):
        called = (
            estimator.__name__ if isinstance(estimator, type) else repr(type(estimator).__name__)
        )
        raise ConfigError(
            f"{called} is no hdpmf.Estimator; write class {called}(hdpmf.Estimator) with learn and "
            "expect, and give the class itself (docs/own-method.md)"
        )
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", name):
        raise ConfigError(f"a method's name has small letters, digits and hyphens, not {name!r}")
    if estimator.parameter_names() and not is_dataclass(estimator):
        raise ConfigError(
            f"the options of {estimator.__name__} are not known: make it a dataclass, with "
            "a field for each"
        )
    method = Method(
        name=name,
        label=label or name,
        summary=summary or (inspect.getdoc(estimator) or name).splitlines()[0].rstrip("."),
        estimator=estimator,
        configuration=estimator,
        plain=nothing_hidden("The ratings themselves.", _ALL, _ALL, NO_NOISE)
        if form is None
        else form,
        **{"family": "clear", "accounting": "no-noise" if form is None else AS_CLAIMED, **more},
    )
    known = METHODS.get(name)
    if known is not None and _same_class(known.estimator, estimator):
        METHODS.discard(name)  # a notebook's cell that is run again
    return METHODS.add(method)


def _same_class(known: str | type, new: type) -> bool:
    names = (new.__module__, new.__qualname__)
    return isinstance(known, type) and (known.__module__, known.__qualname__) == names
