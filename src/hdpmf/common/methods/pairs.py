"""hdp-sum-pairs: what hdp-sum releases, and who rates what with whom."""

from __future__ import annotations

from dataclasses import replace

from hdpmf.common.methods.method import Form, Method

_PRESENCE = 1.75  # three quarters for the sums of hdp-sum, and 1 for the sums of pairs
_DELTA = 1e-6


def with_pairs(plain: Method) -> Method:
    """The method beside ``plain`` that also releases pairs, for presence alone. A claim of its
    own: it has a delta.
    """
    alone, sums = plain.plain.claims["messages"], plain.plain.claims["sums"]
    return replace(
        plain,
        name="hdp-sum-pairs",
        label="HDP-Sum, pairs",
        summary="hdp-sum, then who rates what with whom where it pays; for lists, proved with "
        "a delta, library only",
        fixed={"pairs": True, "labels": False},
        accounting="sums-and-pairs",
        plain=Form(
            claims={
                "messages": alone,
                "sums": replace(
                    sums,
                    reason="what hdp-sum releases, and then, of presence alone, sums over users "
                    "of which much-rated "
                    "items go together, with discrete Gaussian noise: presence costs 1.75 epsilon "
                    "at delta 1e-6",
                    sees="what hdp-sum shows, and for every pair of some much-rated items a sum "
                    "over users of the "
                    "product of their two privacy weights, with noise; not which items a device "
                    "rated",
                    presence=_PRESENCE,
                    delta=_DELTA,
                    needs=sums.needs
                    + "; and one place that sums pairs, is trusted with them and adds their noise",
                ),
            },
            sent="What hdp-sum sends. Then, where the released popularity says that it pays, "
            "for every pair of some "
            "much-rated items a whole number, made of privacy weights alone, and only into "
            "a sum over all users.",
            stays_open="Visible: who takes part. Needs: what hdp-sum needs, and one place that "
            "sums pairs and adds "
            "their noise: no devices answer that between machines. Which items a user "
            "rated costs 1.75 times epsilon "
            "at a delta of 1e-6, a value no more than with hdp-sum.",
            rounds=2,
            sums=2,
        ),
        labelled=None,
        views=(),
        lists_only=True,  # predicted ratings are those of hdp-sum
        audited=False,  # it has an audit of its own: hdpmf audit pairs
        version=0,
    )
