"""Options for federated runs, shared by ``recommender run`` and ``federate``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from hdpmf.cli.options.common import model_option, privacy_option
from hdpmf.cli.options.methods import MethodOptions
from hdpmf.common.methods import METHODS, federated, method_named
from hdpmf.errors import ConfigError

if TYPE_CHECKING:
    from hdpmf.untrusted.service.settings import RunSettings

DEFAULT_SHARE = 0.75
"""The share of users that must be in every round by default."""

SUMS = {"masks": "sums", "two-servers": "two-servers"}
"""The values of ``--sums``, and the view that each gives."""

Method = Annotated[
    str, model_option(f"One of: {', '.join(federated())}.", "METHOD", "--method", words=federated())
]
Minimum = Annotated[
    int | None,
    privacy_option(
        "Users, at least, in every round; in a secure sum a device counts for --credit of them.",
        "N",
        "--minimum",
        default="three quarters",
    ),
]


class FederatedOptions(MethodOptions):
    """The options of methods that a federated run has."""

    only = (
        "n_factors",
        "learning_rate",
        "reg",
        "epsilon",
        "threshold",
        "coding",
        "design",
        "labels",
        "patterns",
        "list_model",
        "prior",
    )


def _by_messages() -> str:
    return ", ".join(name for name in federated() if METHODS[name].views[0] == "messages")


@dataclass(frozen=True)
class RunOptions:
    """Rounds, and the view of the recommender."""

    rounds: Annotated[
        int | None,
        model_option(
            "Rounds of training.",
            "T",
            default="100; 10 for hdpmf-paid; the one-round designs have 1, or 2 with --labels",
        ),
    ] = None
    secure_sum: Annotated[
        bool | None,
        privacy_option(
            "The recommender sees only sums over devices, with real masking, or every message.",
            None,
            "--secure-sum/--messages",
            default=f"sums, but for {_by_messages()}",
        ),
    ] = None
    sums: Annotated[
        str | None,
        privacy_option(
            "How sums are made: two-servers (two servers of different organisations; "
            "recommended between machines) or masks (among devices, all online together).",
            "HOW",
            default="two-servers where a pair of servers is pinned, else masks",
            words=SUMS,
        ),
    ] = None
    colluding: Annotated[
        float,
        privacy_option(
            "Part of the roster that may know each other's noise; the rest of --minimum makes it.",
            "PART",
        ),
    ] = 0.05
    credit: Annotated[
        int,
        privacy_option("Users, at most, that one device counts for in a secure sum.", "N", min=1),
    ] = 1

    def view(self, method: str, *, two_servers: bool = False) -> str:
        """Return the view of the recommender.

        Args:
            method: Its name.
            two_servers: A pair of servers is pinned; it is used by default.

        Raises:
            ConfigError: The options contradict each other.
        """
        if self.sums is None:
            if self.secure_sum is not None:
                return "sums" if self.secure_sum else "messages"
            views = method_named(method).views
            if two_servers and "two-servers" in views:
                return "two-servers"
            return next(iter(views), "messages")
        if self.sums not in SUMS:
            raise ConfigError(f"--sums must be {' or '.join(SUMS)}, not {self.sums!r}")
        if self.secure_sum is False or (self.secure_sum and self.sums != "masks"):
            other = "--secure-sum" if self.secure_sum else "--messages"
            raise ConfigError(f"--sums {self.sums} contradicts {other}")
        return SUMS[self.sums]

    def settings(
        self,
        method: str,
        options: FederatedOptions,
        users: int,
        minimum: int | None = None,
        usual_rounds: int | None = None,
        *,
        two_servers: bool = False,
        **more: Any,
    ) -> RunSettings:
        """Return the settings of a run; defaults suit the method.

        Args:
            method: Its name.
            options: Its options.
            users: Users who can be asked; in secure sums, devices.
            minimum: Users, at least, in every round.
            usual_rounds: Rounds of training by default, if the method has no number of its own.
            two_servers: A pair of servers is pinned; it is used by default.
            more: More of the run's settings.
        """
        from hdpmf.untrusted.service.settings import RunSettings

        if method not in federated():
            raise ConfigError(
                f"a federation cannot run {method!r}; choose from {', '.join(federated())}"
            )
        known = method_named(method)
        view = self.view(method, two_servers=two_servers)
        given = options.chosen(method)
        if "n_factors" in given:
            given["factors"] = given.pop("n_factors")
        if known.trains:
            given.setdefault("learning_rate", known.default("learning_rate"))
        prior = _shipped(given.pop("prior", None))
        labels = given.pop("labels", False)
        rounds: Any = self.rounds
        if rounds is None and known.trains:
            rounds = known.defaults.get("epochs", usual_rounds or known.default("epochs"))
        elif rounds is None:
            rounds = known.form(labels).rounds or 1
        if minimum is None:
            minimum = max(2 if view == "two-servers" else 1, int(DEFAULT_SHARE * users))
        return RunSettings(
            method=method,
            view=view,  # type: ignore[arg-type]  # checked there
            minimum=minimum,
            rounds=rounds,
            max_colluding=self.colluding,
            credit=self.credit,
            labels=_label_score(prior) if labels else None,
            prior=prior,
            **given,
            **more,
        )


def _shipped(prior: str | None) -> str | None:
    """Return a prior's name if devices have it: only those that come with this software."""
    from hdpmf.common.model.priors import SHIPPED

    if prior is not None and prior not in SHIPPED:
        raise ConfigError(f"devices have no prior {prior!r}; choose from {', '.join(SHIPPED)}")
    return prior


def _label_score(prior: str | None) -> dict[str, float]:
    """Return the public score that devices draw labels by."""
    from hdpmf.common.model.priors import load_prior

    found = load_prior(prior)
    if found is None or found.labels is None:
        raise ConfigError(
            "taste labels are drawn by a public score that comes with a prior: give --prior"
        )
    return dict(found.labels.score)
