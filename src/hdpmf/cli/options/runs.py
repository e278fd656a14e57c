"""Options for federated runs, shared by ``recommender run`` and ``federate``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from hdpmf.cli.options.common import completion, model_option, privacy_option
from hdpmf.cli.options.methods import MethodOptions
from hdpmf.common.methods import METHODS, federated, method_named
from hdpmf.errors import ConfigError

if TYPE_CHECKING:
    from hdpmf.untrusted.service.settings import RunSettings

DEFAULT_SHARE = 0.75
"""Of the users must be in every round, unless said otherwise."""

SUMS = {"masks": "sums", "two-servers": "two-servers"}
"""How sums are made, on the command line, and the view that it gives."""

_FIELDS = {"n_factors": "factors"}  # what the run calls a parameter

Method = Annotated[
    str,
    model_option(
        "--method",
        metavar="METHOD",
        help=f"One of: {', '.join(federated())}.",
        autocompletion=completion(federated()),
    ),
]
Minimum = Annotated[
    int | None,
    privacy_option(
        "--minimum",
        metavar="N",
        help="Users, at least, in every round; in a secure sum a device counts for --credit "
        "of them.",
        show_default="three quarters",
    ),
]


class FederatedOptions(MethodOptions):
    """What a run between machines can be told."""

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
    """How often devices are asked, and what the recommender sees."""

    rounds: Annotated[
        int | None,
        model_option(
            "--rounds",
            metavar="T",
            help="Rounds of training.",
            show_default="100; 10 for hdpmf-paid; the one-round designs have 1, or 2 with --labels",
        ),
    ] = None
    secure_sum: Annotated[
        bool | None,
        privacy_option(
            "--secure-sum/--messages",
            help="Whether the recommender sees only sums over devices, with real masking, or "
            "every message.",
            show_default=f"sums, but for {_by_messages()}",
        ),
    ] = None
    sums: Annotated[
        str | None,
        privacy_option(
            "--sums",
            metavar="HOW",
            help="How sums are made: two-servers (two servers of different organisations; "
            "recommended between "
            "machines) or masks (among devices, all online together).",
            autocompletion=completion(SUMS),
            show_default="two-servers where a pair of servers is pinned, else masks",
        ),
    ] = None
    colluding: Annotated[
        float,
        privacy_option(
            "--colluding",
            metavar="PART",
            help="Part of the roster that may know each other's noise; the rest of --minimum "
            "makes it.",
        ),
    ] = 0.05
    credit: Annotated[
        int,
        privacy_option(
            "--credit",
            metavar="N",
            help="Users, at most, that one device counts for in a secure sum.",
            min=1,
        ),
    ] = 1

    def view(self, method: str, *, two_servers: bool = False) -> str:
        """What the recommender sees; ``two_servers``: there is a pair of servers, which is used
        unless said otherwise.

        Raises:
            ConfigError: The options contradict each other.
        """
        if self.sums is None:
            if self.secure_sum is not None:
                return "sums" if self.secure_sum else "messages"
            views = method_named(method).views
            return (
                "two-servers"
                if two_servers and "two-servers" in views
                else next(iter(views), "messages")
            )
        if self.sums not in SUMS:
            raise ConfigError(f"--sums must be {' or '.join(SUMS)}, not {self.sums!r}")
        if self.secure_sum is False or (self.secure_sum and self.sums != "masks"):
            raise ConfigError(
                f"--sums {self.sums} contradicts "
                f"{'--secure-sum' if self.secure_sum else '--messages'}"
            )
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
        """The settings of a run; what is not given suits the method.

        Args:
            method: Its name.
            options: What was given of its options.
            users: Users who can be asked; in secure sums, devices.
            minimum: Users, at least, in every round.
            usual_rounds: Rounds of training where none are given and the method has no number of
                its own.
            two_servers: There is a pair of servers, which is used unless said otherwise.
            more: Of the run's settings.
        """
        from hdpmf.untrusted.service.settings import RunSettings

        if method not in federated():
            raise ConfigError(
                f"a federation cannot run {method!r}; choose from {', '.join(federated())}"
            )
        known, view = method_named(method), self.view(method, two_servers=two_servers)
        given = {_FIELDS.get(name, name): value for name, value in options.chosen(method).items()}
        if known.trains:
            given.setdefault("learning_rate", known.default("learning_rate"))
        prior, labels = _shipped(given.pop("prior", None)), given.pop("labels", False)
        rounds: Any = self.rounds
        if rounds is None and known.trains:
            rounds = known.defaults.get("epochs", usual_rounds or known.default("epochs"))
        elif rounds is None:
            rounds = known.form(labels).rounds or 1
        return RunSettings(
            method=method,
            view=view,  # type: ignore[arg-type]  # checked there
            minimum=max(2 if view == "two-servers" else 1, int(DEFAULT_SHARE * users))
            if minimum is None
            else minimum,
            rounds=rounds,
            max_colluding=self.colluding,
            credit=self.credit,
            labels=_score(prior) if labels else None,
            prior=prior,
            **given,
            **more,
        )


def _shipped(prior: str | None) -> str | None:
    """Devices know priors by name, and have only those that come with this software."""
    from hdpmf.common.model.priors import SHIPPED

    if prior is not None and prior not in SHIPPED:
        raise ConfigError(f"devices have no prior {prior!r}; choose from {', '.join(SHIPPED)}")
    return prior


def _score(prior: str | None) -> dict[str, float]:
    """What counts in the public score that devices draw labels by."""
    from hdpmf.common.model.priors import load_prior

    found = load_prior(prior)
    if found is None or found.labels is None:
        raise ConfigError(
            "taste labels are drawn by a public score that comes with a prior: give --prior"
        )
    return dict(found.labels.score)
