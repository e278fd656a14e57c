"""A method as one frozen value, which everything else reads."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Literal, get_args

from hdpmf.common.base.progress import facts_html
from hdpmf.common.methods.options import Option, options_of
from hdpmf.errors import ConfigError

Family = Literal["factorization", "sums", "bits", "local", "central", "clear"]
"""Rounds of gradients, one round of secure sums, one bit per rating, nothing sent, means and lists
of bare ratings, or training on bare ratings."""

Status = Literal["none", "nominal", "author's claim", "proved"]
"""Nothing is hidden; the paper's number without a guarantee; the word of whoever wrote a method
that is not ours, which nobody here has checked; or a guarantee. The registry decides which methods
are ours."""

AUTHORS_CLAIM: Status = "author's claim"

View = Literal["messages", "sums", "two-servers"]
"""What the recommender sees: each device's messages; only sums over devices; or only sums
that two servers made, with what one of these servers sees. Whoever gets only the finished
model sees less than any."""

_ESTIMATOR = ("fit", "predict", "rank", "privacy", "get_params")
VIEWS: tuple[View, ...] = get_args(View)

_OBSERVERS: dict[str, View] = {view: view for view in VIEWS} | {
    "sums-h-known": "sums",
    "sums-h-hidden": "sums",
}
"""The view that a claim is made for, by the accountant's names, which tell apart who knows h."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The claim for a method's epsilon under one view.

    Attributes:
        status: Proved, nominal or none; of a method that is not ours, the author's claim or none.
        against: What the observer is assumed to see for the claim to mean anything.
        reason: One sentence on what it stands on.
        sees: What the recommender could see, to follow "The recommender sees".
        value: A change of a rating's value costs its weight times epsilon times this; None without
            a bound.
        presence: The same for whether the rating is there at all, of a person below all limits on
            ratings; None where that is in plain sight.
        needs: What has to hold for it.
    """

    status: Status
    against: str
    reason: str
    sees: str
    value: float | None = None
    presence: float | None = None
    needs: str = ""

    @property
    def about(self) -> Literal["value", "presence"]:
        """The subject of its epsilon: presence only, where values are in nothing that is sent."""
        return "presence" if self.value == 0 and self.presence else "value"


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """How a method runs.

    Attributes:
        claims: By view; those that are not here are not offered.
        sent: What leaves the device, in sentences.
        stays_open: What is not protected and what the protection needs, in sentences.
        rounds: How often devices are asked for numbers; None: once in every epoch.
    """

    claims: Mapping[View, Claim]
    sent: str
    stays_open: str
    rounds: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """A method.

    Attributes:
        name: As on the command line.
        label: As in tables and figures.
        summary: One line for people.
        family: How it gets to its model.
        estimator: The class, or ``package.module:Class``, which is imported when it is needed.
        configuration: The dataclass with its options; the estimator inherits it.
        fixed: Parameters that make the method what it is; they are not options.
        defaults: Options whose default differs from the family's.
        rates: The learning rate that suits it, by solver, where none is given.
        mechanism: Name of its mechanism in ``hdpmf.common.privacy.mechanisms``, for methods trained
            by gradients.
        accounting: Name of the rule in ``hdpmf.common.privacy.accounting.rules`` that says what an
            observer sees, or a function of that kind; ``as-claimed`` counts what the claims say.
        form: How it runs.
        headline: The view that its epsilon is stated for.
        views: What is seen where it runs between machines: sums of two servers, or all messages by
            Flower's SuperLink. Empty: it does not.
        lists_only: It orders items for lists and predicts no ratings of its own.
        has_h: Whether the recommender draws a part of the noise, so that it matters who knows it.
        audited: Whether the audit has a game for it.
        colour: In figures; empty for one that is chosen.
        tuning: Values to try for each hyper-parameter, where the usual ones do not suit it.
        tuned_like: Another method whose hyper-parameters it takes over, because the training is the
            same.
        version: Raised when its results change, so that stored results of the old code are not
            counted.
    """

    name: str
    label: str
    summary: str
    family: Family
    estimator: str | type
    configuration: type
    accounting: str | Callable[..., Any]
    form: Form
    headline: View = "messages"
    fixed: Mapping[str, Any] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    rates: Mapping[str, float] = field(default_factory=dict)
    mechanism: str | None = None
    views: tuple[View, ...] = ()
    lists_only: bool = False
    has_h: bool = False
    audited: bool = False
    colour: str = ""
    tuning: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    tuned_like: str = ""
    version: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.estimator, type):
            missing = [name for name in _ESTIMATOR if not hasattr(self.estimator, name)]
            if missing:
                raise ConfigError(
                    f"{self.estimator.__name__}, the estimator of {self.name}, is no "
                    f"hdpmf.Estimator (it has no {missing[0]}); subclass that"
                )
        known = options_of(self.configuration)
        wrong = sorted({*self.fixed, *self.defaults} - set(known))
        if wrong:
            raise ConfigError(
                f"the method {self.name} fixes {wrong[0]!r}, which its configuration does not have"
            )

    @property
    def options(self) -> Mapping[str, Option]:
        """The options by parameter name."""
        return options_of(self.configuration, frozenset(self.fixed))

    @property
    def model(self) -> Any:
        """The estimator's class."""
        if isinstance(self.estimator, str):
            module, _, name = self.estimator.partition(":")
            return getattr(import_module(module), name)
        return self.estimator

    @property
    def trains(self) -> bool:
        """True if it is trained in rounds of gradients."""
        return self.family == "factorization"

    @property
    def one_round(self) -> bool:
        """True if devices answer a survey instead of training rounds."""
        return self.family in ("sums", "bits")

    @property
    def unit(self) -> str:
        """Whose its epsilon is: a ``rating``'s, or, where a delta goes with it, a ``person``'s."""
        return "person" if "delta" in self.options else "rating"

    @property
    def is_baseline(self) -> bool:
        """True for the trivial predictions that every method has to beat."""
        return self.family in ("local", "central")

    @property
    def has_lists(self) -> bool:
        """True if its lists differ from the order of the catalogue."""
        return self.lists_only or not self.is_baseline

    def claim(self, view: str | None = None) -> Claim:
        """Return the claim under a view (by default the one that its epsilon is stated for).

        Sums are sums, whoever knows h (``sums-h-known``, ``sums-h-hidden``); who gets only the
        finished model (``final``) has no more than the claim of the view that the epsilon is stated
        for.

        Raises:
            ConfigError: There is no such view, or the method is not offered under it.
        """
        if view is None or view == "final":
            return self.form.claims[self.headline]
        if view not in _OBSERVERS:
            raise ConfigError(f"there is no view {view!r}; choose from {', '.join(VIEWS)}, final")
        return self.form.claims[self.require_view(_OBSERVERS[view])]

    @property
    def offered(self) -> tuple[View, ...]:
        """The views that it makes a claim for, in the library or between machines."""
        return tuple(view for view in VIEWS if view in self.form.claims)

    def require_view(self, view: View) -> View:
        """The same view; ConfigError where the method is not offered under it."""
        if view not in self.offered:
            raise ConfigError(
                f"{self.name} is not offered under the view {view}; it has "
                f"{', '.join(self.offered)}"
            )
        return view

    def default(self, name: str, **chosen: Any) -> Any:
        """Return an option's default, given other choices: rates depend on the solver."""
        if name == "learning_rate" and self.rates:
            solver = "batch"
            if "solver" in self.options:
                solver = chosen.get("solver") or self.default("solver")
            return self.rates.get(solver, self.options[name].default)
        return self.defaults.get(name, self.options[name].default)

    def parameters(self, **chosen: Any) -> dict[str, Any]:
        """Return the estimator's arguments: choices, the method's defaults and what it fixes.

        Raises:
            ConfigError: The method has no option of that name.
        """
        for name in chosen:
            self.require(name)
        own = {name: self.default(name) for name in self.defaults if name not in chosen}
        if self.rates and "learning_rate" not in chosen and "learning_rate" not in own:
            own["learning_rate"] = self.default("learning_rate", **{**own, **chosen})
        return {**own, **chosen, **self.fixed}

    def own(self, **shared: Any) -> dict[str, Any]:
        """Of settings that several methods share, those that this one has an option for."""
        return {name: value for name, value in shared.items() if name in self.options}

    def require(self, name: str, called: str | None = None) -> Option:
        """The option of that name.

        Args:
            name: Of the parameter.
            called: How whoever asks calls it: a flag of the command line.

        Raises:
            ConfigError: There is none; the message names those that there are.
        """
        if name in self.options:
            return self.options[name]
        have = [known.name if called is None else known.flag for known in self.options.values()]
        there_are = f"its options are {', '.join(have)}" if have else "it has no options"
        if name in self.fixed:
            raise ConfigError(
                f"{self.name} has {called or name} = {self.fixed[name]} and no other; {there_are}"
            )
        raise ConfigError(f"{self.name} has no option {called or repr(name)}; {there_are}")

    def configure(self, **chosen: Any) -> Any:
        """A model of this method, ready to be fitted."""
        return self.model(**self.parameters(**chosen))


ALL_MESSAGES, SUMS_OVER_USERS = "all messages", "sums over users (secure aggregation)"

SECURE_SUMS = "secure sums that work: nobody sees what is added up"

WHOLE_NOISE = "; whoever adds up adds the whole noise, once"
TWO_SERVERS = "the recommender and one of the two servers, with any number of devices"

HONEST_SERVER = (
    "one of the two servers is honest: it does not work with the other, keeps its keys, adds its "
    "whole noise, and counts each report once"
)

NO_NOISE = "ratings are used without any noise"

SUM_SEEN_ALONE = Claim(
    status="none",
    against=ALL_MESSAGES,
    reason="a single device's numbers have no noise: it is added to their sum",
    sees="every device's coded ratings and weights, without noise",
)


def nothing_hidden(sent: str, sees: str, sums: str, reason: str) -> Form:
    """A method that hides nothing."""
    return Form(
        claims={
            "messages": Claim(status="none", against="everything", reason=reason, sees=sees),
            "sums": Claim(status="none", against="everything", reason=reason, sees=sums),
        },
        sent=sent,
        stays_open="Nothing is protected.",
    )


@dataclass(frozen=True, slots=True)
class PrivacyClaim:
    """An epsilon together with what it stands on. Wherever epsilon is printed, this is printed.

    Attributes:
        epsilon: The largest budget of any rating (a rating's own is W_ij times this), or of a
            person; None without privacy.
        status: ``none`` (no protection), ``nominal`` (the paper's number, not a guarantee),
            ``author's claim`` (of a method that is not ours) or ``proved``.
        view: What the observer is assumed to see for the claim to mean anything.
        reason: One sentence.
        honest: For a nominal epsilon: what an observer of the training gets, from the accountant.
        noise: ``simulated`` where it came from a seed, as all of this library's does: the law is
            that of the claim, but whoever has the seed has the noise. Nothing to publish.
        items: ``rated`` where the items of a model of this library are those that somebody rated:
            which ones there are tells that somebody did, and epsilon does not cover that.
            ``stated`` where they are a public list (``Ratings.over``). Empty where a recommender
            stated them, as in a federation.
        unit: Whose epsilon it is: a ``rating``'s of weight 1, or a whole ``person``'s.
    """

    epsilon: float | None
    status: Status
    view: str
    reason: str
    honest: str = ""
    noise: str = ""
    items: str = ""
    unit: str = "rating"

    @property
    def standing(self) -> str:
        """The status, and that epsilon is a whole person's where it is."""
        return self.status if self.unit == "rating" else f"{self.status}, per {self.unit}"

    @property
    def worth(self) -> str:
        """The standing, and that the noise was simulated where it was."""
        return f"{self.standing}, {self.noise}" if self.noise else self.standing

    def __str__(self) -> str:
        if self.epsilon is None:
            return f"no privacy ({self.reason})"
        return f"epsilon {self.epsilon:g} ({self.worth}; {self.view})"

    def _repr_html_(self) -> str:
        """The claim for notebooks: never an epsilon without what it stands on."""
        items = {"rated": "those that somebody rated; that is not covered", "stated": "public list"}
        return facts_html(
            "Privacy",
            {
                "epsilon": "none" if self.epsilon is None else f"{self.epsilon:g} per {self.unit}",
                "status": self.status.upper(),
                "against an observer of": self.view,
                "because": self.reason,
                "what it really costs": self.honest,
                "noise": self.noise
                and f"{self.noise.upper()}: anyone who has the seed can subtract it",
                "items": items.get(self.items, ""),
            },
        )


def claim_of(method: Method | None, epsilon: float) -> PrivacyClaim:
    """Return the claim for a model of this method; nothing for a model of no registered method."""
    if method is None:
        return PrivacyClaim(
            None, "none", "everything", "it is not registered as a method, so nothing is claimed"
        )
    claim = method.claim()
    stated = (
        None
        if claim.status == "none"
        else 0.0
        if claim.value == 0 and not claim.presence
        else epsilon
    )
    return PrivacyClaim(stated, claim.status, claim.against, claim.reason, unit=method.unit)
