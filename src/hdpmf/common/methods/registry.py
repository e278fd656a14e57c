"""All methods by name, and words about their claims.

Methods are built in, or come from entry points (``hdpmf.methods``) and plugin files.
"""

import math
import sys
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from hdpmf.common.base.names import Registry
from hdpmf.common.methods.builtin import BUILTIN
from hdpmf.common.methods.method import AUTHORS_CLAIM, Method
from hdpmf.errors import ConfigError, HdpmfError

ENTRY_POINT = "hdpmf.methods"


class Methods(Registry[Method]):
    """The registered methods, by name, in the order in which tables show them."""

    def _checked(self, method: Method) -> Method:
        """Nobody here has checked what a method claims that is not ours: label it as such."""
        return method if self.is_ours(method) else _as_its_authors(method)


_WITHOUT_NOISE = ("no-noise", "raw-mean")
"""Rules of the accountant by which nothing is hidden."""


def _as_its_authors(method: Method) -> Method:
    """Return a method whose claims are labelled as its author's.

    Raises:
        ConfigError: Its claims and its accounting contradict each other.
    """
    claimed = any(claim.status != "none" for claim in method.form.claims.values())
    if method.accounting in _WITHOUT_NOISE and claimed:
        raise ConfigError(
            f"{method.name} claims an epsilon, but its accounting is {method.accounting!r}, by "
            "which nothing is hidden; leave accounting out, or claim nothing"
        )
    if not claimed and method.accounting not in (*_WITHOUT_NOISE, AS_CLAIMED):
        raise ConfigError(
            f"{method.name} claims nothing, but its accounting is {method.accounting!r}; leave "
            "accounting out, or say in its form what it claims"
        )
    claims = {
        view: claim if claim.status == "none" else replace(claim, status=AUTHORS_CLAIM)
        for view, claim in method.form.claims.items()
    }
    return replace(method, form=replace(method.form, claims=claims))


AS_CLAIMED = "as-claimed"
"""The accountant's rule for methods of others: what their claims say, and no more."""


METHODS = Methods(Method, "method", ENTRY_POINT, BUILTIN)
"""Everything that evaluates, compares, explains, accounts, runs or reports looks here."""


def method_named(name: str) -> Method:
    """The method of that name.

    Raises:
        ConfigError: There is none.
    """
    return METHODS.named(name)


def method_of(model: object) -> Method | None:
    """Return the method of an estimator, by its class and the parameters that methods fix."""
    for kind in type(model).__mro__:
        path = f"{kind.__module__}:{kind.__qualname__}"
        for method in METHODS.values():
            same = method.estimator is kind or method.estimator == path
            if same and all(
                getattr(model, name, None) == value for name, value in method.fixed.items()
            ):
                return method
    return None


PLUGINS: list[Path] = []
"""The files that were loaded here, so that other processes can load them too."""


def load_plugin(file: str | Path) -> None:
    """Run a Python file that adds methods (``hdpmf.add_method``), once.

    Raises:
        ConfigError: It is not there, fails, or adds no method.
    """
    path = Path(file).resolve()
    if path in PLUGINS:
        return
    spec = None
    if path.suffix == ".py" and path.is_file():
        spec = spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.stem.isidentifier():
        raise ConfigError(f"{file} is no Python file with a method; docs/own-method.md has one")
    if path.stem in sys.modules:
        raise ConfigError(
            f"{file}: there is a module {path.stem!r} already; give the file another name"
        )
    before = set(METHODS)
    folder = str(path.parent)
    if folder not in sys.path:
        sys.path.append(folder)  # last, so that a file beside it hides nothing of anybody's
    module = sys.modules[path.stem] = module_from_spec(spec)
    # Bytecode is known by seconds and size: a file changed at once would run as it was before.
    writes_none, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[path.stem]
        if isinstance(error, HdpmfError):
            raise
        raise ConfigError(f"{file} cannot be loaded: {type(error).__name__}: {error}") from error
    finally:
        sys.dont_write_bytecode = writes_none
    if set(METHODS) == before:
        raise ConfigError(f"{file} adds no method; let it call hdpmf.add_method(name, estimator)")
    PLUGINS.append(path)


OBSERVERS = {
    "messages": "Sees every message of every device",
    "sums": "Sees only sums over users",
    "sums-h-known": "Sees only sums over users, but made half of the noise (h): the recommender",
    "sums-h-hidden": "Sees only sums over users, and none of the noise: somebody else",
    "two-servers": "Is the recommender together with one of the two servers that sum",
    "final": "Is anybody who downloads the finished model",
}
"""Who looks, by the accountant's views."""

MEANING = {
    "proved": "PROVED: holds against everything that this observer sees, whatever else it knows.",
    "nominal": "NOMINAL: counts the rating's own messages only, in a typical run. No guarantee: "
    "the true cost may be higher.",
    AUTHORS_CLAIM: "AUTHOR'S CLAIM: the author of the method says so; hdpmf has not checked it. "
    "'hdpmf audit run' puts it to the test.",
    "no guarantee": "NO GUARANTEE: nothing keeps this observer from being certain.",
}
"""What the accountant's verdicts mean."""


def observer(view: str, has_h: bool) -> str:
    """The name of a view for people: where there is no h, knowing it makes no difference."""
    return view if has_h else view.removesuffix("-h-known").removesuffix("-h-hidden")


SURE = 0.9995
"""From here on a guess is as good as certain."""


def percent(part: float) -> str:
    """A probability for people, to the nearest; certainty is only said where it is."""
    if part >= SURE:
        return "> 99.9 %"
    return f"{100 * part:.0f} %" if part < 0.95 else f"{100 * part:.1f} %"


def at_most(part: float) -> str:
    """A bound for people, to stand behind "at most": rounded up, so that it is never too low."""
    return _rounded(part, math.ceil)


def at_least(part: float) -> str:
    """A bound for people, to stand behind "at least": rounded down."""
    return _rounded(part, math.floor)


def _rounded(part: float, rounding: Callable[[Fraction], int]) -> str:
    # Next to 50 and to 100 a tenth of a percent is what matters.
    steps = 100 if 0.55 <= part < 0.95 else 1000
    return f"{100 * rounding(Fraction(part) * steps) / steps:g} %"
