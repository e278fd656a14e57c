"""The audit's one figure: what every method claims, and what an attacker proved, for each view."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hdpmf.common.methods import METHODS
from hdpmf.lab.audit.game import HIDDEN_H, VIEWS, AuditResult
from hdpmf.lab.audit.scores import BROKEN, NO_CLAIM, STANDS
from hdpmf.lab.plots import (
    BAD,
    FAINT,
    GOOD,
    INK,
    NEUTRAL,
    add_title,
    figure_bytes,
    new_figure,
    strip_frame,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DIAMOND: dict[str, Any] = {
    "marker": "D",
    "linestyle": "",
    "markeredgecolor": INK,
    "markeredgewidth": 1.3,
}
_COLOURS = {BROKEN: BAD, STANDS: GOOD, NO_CLAIM: NEUTRAL}
_TITLES = {
    "messages": ("messages", "the recommender sees what every user sends"),
    "sums": ("sums", "secure aggregation: only sums over users are seen"),
    HIDDEN_H: ("sums, h hidden", "sums, by somebody who does not know h"),
    "final": ("final", "only what is published at the end is seen"),
}


def audit_png(results: Sequence[AuditResult], subtitle: str) -> bytes:
    """Draw a panel per view, a row per method: its claim as a diamond, the lower bound as a bar."""
    import matplotlib as mpl

    names = list(dict.fromkeys(row_of(result) for result in results))[::-1]
    views = [view for view in VIEWS if any(result.view == view for result in results)]
    top = max(result.ceiling for result in results)
    with mpl.rc_context():
        mpl.rcdefaults()
        figure = new_figure(
            3.55 * len(views) + 2.45, 0.46 * len(names) + 2.35, dpi=150, facecolor="white"
        )
        height = figure.get_figheight()
        panels = figure.subplots(1, len(views), sharey=True, squeeze=False)[0]
        left = 2.3 / figure.get_figwidth()
        figure.subplots_adjust(
            left=left, right=0.985, wspace=0.07, top=1 - 1.3 / height, bottom=0.95 / height
        )
        for axes, view in zip(panels, views, strict=True):
            shown = {row_of(result): result for result in results if result.view == view}
            _panel(axes, shown, names, top)
            title, meaning = _TITLES[view]
            axes.set_title(title, loc="left", fontsize=12, fontweight="bold", color=INK, pad=20)
            axes.text(0, 1.02, meaning, transform=axes.transAxes, fontsize=8, color=FAINT)
        panels[0].set_yticks(range(len(names)), names, fontsize=10.5, color=INK)
        panels[0].tick_params(axis="y", pad=9)
        title = "What each method claims, and what an attack proves"
        add_title(figure, 0.012, 1 - 0.14 / height, title, fontsize=14.5)
        figure.text(0.012, 1 - 0.47 / height, subtitle, fontsize=9.2, color=FAINT, va="top")
        _legend(figure, top)
        return figure_bytes(figure)


def row_of(result: AuditResult) -> str:
    """Return the row of the figure that a result is in."""
    parts = [METHODS[result.method].label]
    parts += ["presence"] if result.settings["adjacency"] == "presence" else []
    return ", ".join(parts)


def _panel(axes: Axes, results: dict[str, AuditResult], names: list[str], top: float) -> None:
    hidden_h = any(result.view == HIDDEN_H for result in results.values())
    axes.axvline(top, color=FAINT, linewidth=1.0, linestyle=(0, (2, 2)), zorder=1)
    for position, name in enumerate(names):
        if name not in results:
            why = "no h: as in sums" if hidden_h else "not audited"
            axes.annotate(why, (0, position), (4, 0), textcoords="offset points", va="center",
                          fontsize=8.5, color=FAINT)  # fmt: skip
            continue
        result = results[name]
        colour = _COLOURS[result.verdict]
        bound = result.epsilon_lower_bound
        axes.barh(position, bound, height=0.56, color=colour, zorder=2)
        text = f"≥ {bound:.2f}" if bound > 0 else "0"
        beside = max(bound, result.epsilon_claimed or 0.0) if bound < 0.72 * top else bound
        inside = bound >= 0.72 * top
        axes.annotate(
            text, (beside, position), (-5 if inside else 8, 0), textcoords="offset points",
            ha="right" if inside else "left", va="center", fontsize=9,
            color="white" if inside else INK, zorder=4,
        )  # fmt: skip
        if result.epsilon_claimed is not None:
            covered = result.claim_covers_view
            face = INK if covered and result.claim_status == "proved" else "white"
            axes.plot(
                result.epsilon_claimed, position, markersize=7.5, markerfacecolor=face,
                alpha=1.0 if covered else 0.45, clip_on=False, zorder=5, **_DIAMOND,
            )  # fmt: skip
    claims = [result.epsilon_claimed or 0.0 for result in results.values()]
    axes.set_xlim(0, max(top, *claims) * 1.04)
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.set_xlabel("epsilon of one rating", fontsize=9, color=FAINT)
    axes.tick_params(labelsize=9)
    strip_frame(axes)


def _legend(figure: Any, top: float) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles = [
        Patch(color=_COLOURS[BROKEN], label="proved by attack: above the claim"),
        Patch(color=_COLOURS[STANDS], label="proved by attack: within the claim"),
        Patch(color=_COLOURS[NO_CLAIM], label="no claim"),
        Line2D([], [], **_DIAMOND, markerfacecolor=INK, label="claim, proved for this view"),
        Line2D([], [], **_DIAMOND, markerfacecolor="white", label="claim, nominal"),
        Line2D(
            [], [], **_DIAMOND, markerfacecolor="white", alpha=0.45,
            label="claim made for another view only",
        ),
        Line2D(
            [], [], color=FAINT, linestyle=(0, (2, 2)),
            label=f"most that so many runs can prove ({top:.1f})",
        ),
    ]  # fmt: skip
    figure.legend(
        handles=handles, loc="lower center", ncols=4, frameon=False, fontsize=8.3, labelcolor=INK
    )
