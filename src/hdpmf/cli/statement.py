"""``hdpmf privacy statement`` and ``hdpmf privacy compare``: evidence to hand over."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from hdpmf.cli.options.common import argument, command, option, privacy_option
from hdpmf.cli.output import Block, Paragraph, Result, command_text
from hdpmf.errors import ConfigError, StorageError

if TYPE_CHECKING:
    from hdpmf.common.privacy.accounting import Setting
    from hdpmf.common.privacy.statement import Audit, PrivacyStatement


@dataclass(frozen=True)
class StatementOptions:
    """What a statement counts, and what it leaves out."""

    weights: Annotated[
        list[Path] | None,
        privacy_option(
            "Of a model: the file of privacy weights that it was trained with, where weights were "
            "of single ratings or had levels; repeatable.",
            "FILE",
        ),
    ] = None
    missing_weight: Annotated[
        float | None, privacy_option("Weight of everybody whom that file does not name.", "W")
    ] = None
    tried: Annotated[
        int,
        privacy_option(
            "Trainings on the same ratings before this one, as tuning does: each pays again. "
            "hdpmf tune names their number.",
            "N",
            min=0,
        ),
    ] = 0
    budget: Annotated[
        float | None,
        privacy_option("Of a model: what a rating of weight 1 may spend in its whole life.", "E"),
    ] = None
    audit: Annotated[
        Path | None, option("The result of an audit: what hdpmf audit ... --json printed.", "FILE")
    ] = None
    delta: Annotated[float, privacy_option("Of numbers with a star.", "D")] = 1e-5
    public: Annotated[
        bool, privacy_option("Leave out what is exact about private ratings and wishes.")
    ] = False


@command
def statement(
    path: Annotated[
        Path,
        argument(
            "A saved model, a recommender's folder, or one of its runs (FOLDER/runs/ID).",
            "MODEL|FOLDER|RUN",
        ),
    ],
    options: StatementOptions,
    out: Annotated[
        list[Path] | None,
        option("Write it there: .html, .md or .json; repeatable.", "FILE", "--out", "-o"),
    ] = None,
) -> Result:
    """Write a privacy statement: who sees what, at which cost, and what is not protected.

    Every number is computed from what was spent and rounded up. Without --out it is printed.
    """
    from hdpmf.common.base.files import atomic_write
    from hdpmf.common.privacy.statement import render

    made = _statement_of(path, options)
    pages = {file: render(made, file) for file in out or ()}  # all of them, before one is written
    for file, page in pages.items():
        atomic_write(file, page)
    fields = {**msgspec.to_builtins(made), "out": [str(file) for file in pages]}
    return Result(fields, _text(made, list(pages)))


def _text(made: PrivacyStatement, files: list[Path]) -> Iterator[Block]:
    from hdpmf.common.privacy.statement import render

    if not files:
        yield from render(made, "statement.md").decode().splitlines()
        return
    for warning in made.warnings:
        yield Paragraph(f"Warning. {warning}")
    if made.confidential:
        yield "CONFIDENTIAL: it is exact about private ratings; --public leaves that out."
    for file in files:
        yield f"privacy statement of {made.name}: {file}"


def _statement_of(path: Path, options: StatementOptions) -> PrivacyStatement:
    if (path / "config.toml").is_file():
        return _of_recommender(path, None, options)
    if (path / "settings.json").is_file() and (path.parent.parent / "config.toml").is_file():
        return _of_recommender(path.resolve().parent.parent, path.resolve().name, options)
    if (path / "recommender" / "model.json").is_file() or (path / "model.json").is_file():
        return _of_model(path, options)
    raise ConfigError(
        f"{path} is no saved model, no recommender's folder and no run in one (FOLDER/runs/ID)"
    )


def _of_model(path: Path, options: StatementOptions) -> PrivacyStatement:
    from hdpmf.common.methods import method_named
    from hdpmf.models import load_model
    from hdpmf.models.privacy_statement import setting_of, statement_of_model, weights_of

    whole = (path / "devices").is_dir()
    if options.weights and not whole:
        raise ConfigError(f"{path} has no people, so --weights has nobody to be for")
    model = load_model(path, public_only=not whole)
    audit = None
    if options.audit is not None:
        setting = setting_of(model)
        audit = read_audit(options.audit, setting, method_named(setting.method).headline)
    return statement_of_model(
        model,
        path.resolve().name,
        command_text(),
        folder=path if (path / "recommender").is_dir() else path.parent,
        weights=weights_of(model, options.weights, options.missing_weight)
        if options.weights
        else None,
        public=options.public,
        tried=options.tried,
        budget=options.budget,
        delta=options.delta,
        audit=audit,
    )


def _of_recommender(path: Path, run: str | None, options: StatementOptions) -> PrivacyStatement:
    from hdpmf.private.device.policy import Policy
    from hdpmf.untrusted.service.folder import ServiceFolder
    from hdpmf.untrusted.service.outcome import setting_of
    from hdpmf.untrusted.service.privacy_statement import statement_of_recommender

    for given, flag in ((options.weights, "--weights"), (options.budget, "--budget")):
        if given is not None:
            raise ConfigError(f"{flag} is for models: a recommender knows no weights and budgets")
    folder = ServiceFolder(path, only_read=True)
    runs = folder.runs()
    audit = None
    if options.audit is not None and runs:
        settings = folder.record(runs[-1] if run is None else bytes.fromhex(run)).settings
        audit = read_audit(options.audit, setting_of(settings, folder.known.scale), settings.view)
    return statement_of_recommender(
        folder,
        command_text(),
        run=None if run is None else bytes.fromhex(run),
        tried=options.tried,
        lifetime=Policy().epsilon,
        delta=options.delta,
        audit=audit,
    )


def read_audit(file: Path, setting: Setting, view: str) -> Audit:
    """Return the result of an audit of a method as it was run, from what audits print.

    Raises:
        StorageError: The file cannot be read, or is no result of an audit.
        ConfigError: It is about something else.
    """
    from hdpmf.common.privacy.statement import Audit

    try:
        document = json.loads(file.read_text("utf-8"))
        found = list(_results(document))
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise StorageError(
            f"{file} is no result of an audit ({type(error).__name__}); write one with: hdpmf "
            "audit run ... --json"
        ) from error
    wanted = _about(setting.method, view, setting.epsilon, setting.labels)
    fitting = [each for each in found if each["about"] == wanted]
    if not fitting:
        others = "; ".join(sorted({each["about"] for each in found})) or "nothing"
        raise ConfigError(f"{file} audits {others}; this statement is about {wanted}")
    worst = max(fitting, key=lambda each: float(each["at_least"] - (each["claimed"] or 0.0)))
    return Audit(
        date=str(document.get("date", "")),
        command=str(document.get("command", "")),
        **{
            name: worst[name]
            for name in ("adjacency", "claimed", "at_least", "confidence", "verdict", "runs")
        },
    )


def _results(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield every result of a document of ``hdpmf audit``, under the same names."""
    for each in document.get("results", [document]):
        found = each.get("result") or each.get("sums") or each
        settings = found.get("audit") or found["settings"]
        method = found.get("method") or settings.get("method", "hdp-sum")
        view = found.get("view") or settings.get("view", "two-servers")
        yield {
            "about": _about(method, view, settings["epsilon"], settings["labels"]),
            "adjacency": settings["adjacency"],
            "claimed": found["epsilon_claimed"],
            "at_least": found["epsilon_lower_bound"],
            "confidence": found.get("confidence") or settings["confidence"],
            "verdict": found["verdict"],
            "runs": found.get("runs") or settings["canaries"],
        }


def _about(method: str, view: str, epsilon: float, labels: bool) -> str:
    return f"{method}{' with labels' if labels else ''}, {view}, epsilon {epsilon:g}"
