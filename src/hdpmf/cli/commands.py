"""All commands of ``hdpmf``.

Commands import heavy modules inside their functions, so that ``hdpmf --help`` answers at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hdpmf.cli.aggregator import app as aggregator_app
from hdpmf.cli.audit import app as audit_app
from hdpmf.cli.data import app as data_app
from hdpmf.cli.demo import demo
from hdpmf.cli.device.app import app as device_app
from hdpmf.cli.doctor import doctor, health
from hdpmf.cli.experiment import app as experiment_app
from hdpmf.cli.federate import app as federate_app
from hdpmf.cli.methods import app as prior_app
from hdpmf.cli.methods import methods
from hdpmf.cli.model.evaluate import evaluate, tune
from hdpmf.cli.model.inference import fold_in, predict, recommend
from hdpmf.cli.model.release import release
from hdpmf.cli.model.train import train
from hdpmf.cli.options.common import option
from hdpmf.cli.output import hdpmf_version
from hdpmf.cli.paper import app as paper_app
from hdpmf.cli.privacy import app as privacy_app
from hdpmf.cli.recommender.app import app as recommender_app

EPILOG = (
    "Exit codes: 0 done, 1 bug, 2 wrong option, 3 unusable ratings or unknown user, 4 data set, "
    "5 privacy budget or weight, 6 protocol, 7 saved model, 8 disk, 9 missing extra, 10 training "
    "diverged, 11 secure sum, 12 federated run stopped, 13 sum by two servers, 14 answered no, "
    "15 some runs failed, 130 interrupted."
)

app = typer.Typer(
    name="hdpmf",
    help="Recommendations without trusting the recommender: matrix factorization with "
    "heterogeneous differential privacy.",
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
    # Tracebacks stay plain: the pretty ones print local variables, and those hold ratings.
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"hdpmf {hdpmf_version()}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, option("Print the version.", callback=_show_version, is_eager=True)
    ] = False,
    plugin: Annotated[
        list[Path] | None,
        option("A Python file with methods of your own; it may also follow the command.", "FILE"),
    ] = None,
) -> None:
    pass


# In the order of ``hdpmf --help``.
app.add_typer(data_app, name="data")
app.command()(train)
app.command()(release)
app.command()(evaluate)
app.command()(methods)
app.command()(recommend)
app.command()(predict)
app.command("fold-in")(fold_in)
app.command()(tune)
app.add_typer(device_app, name="device")
app.add_typer(privacy_app, name="privacy")
app.add_typer(prior_app, name="prior")
app.add_typer(audit_app, name="audit")
app.add_typer(federate_app, name="federate")
app.add_typer(recommender_app, name="recommender")
app.add_typer(aggregator_app, name="aggregator")
app.add_typer(experiment_app, name="experiment")
app.add_typer(paper_app, name="paper")
app.command()(demo)
app.command()(doctor)
app.command()(health)
