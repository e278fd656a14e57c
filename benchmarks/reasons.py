"""Reasons in lists of ten: how many are personal, and what they name.

    python benchmarks/reasons.py                      # hdp-sum on ML-100K and ML-1M
    python benchmarks/reasons.py --data ml-100k --method hdp-bit --examples 3

Trained on all ratings, with the paper's weights and epsilon 1. Everybody gets a list, and each
reason is read as a person would read it. One reason can name a genre, a period and own titles, so
these shares overlap.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from lists import find_data

if TYPE_CHECKING:
    from hdpmf.private.client.ranking import Recommendation

COMMON = ("popular", "many people choose it")
_TITLES = re.compile(r"because you (?:rated|liked|chose) |, as in |, like .+ that you rated ")
_PERIOD = re.compile(r"\b\d{3}0s\b|\bbefore \d{4}\b|\b\d{4} or later\b")


def named(found: Recommendation) -> set[str]:
    """The kinds of things that a reason names."""
    text = found.reason
    if text is None:
        return {"none"}
    if text in COMMON:
        return {"popular"}
    if text.startswith("people like you"):
        return {"stars"}
    kinds = {"personal"}
    if _TITLES.search(text):
        kinds.add("own title")
    if any(re.search(rf"[,:] {re.escape(genre)}(?:,|$)", text) for genre in found.genres):
        kinds.add("genre")
    if _PERIOD.search(text):
        kinds.add("period")
    if kinds == {"personal"}:
        kinds.add("neither genre, period nor title")
    return kinds


def measure(data: str, given: argparse.Namespace) -> dict[str, Any]:
    """Shares over all items of all lists, and over people."""
    from hdpmf import PrivacySpec, load_dataset, make_model

    ratings = load_dataset(data)
    weights = PrivacySpec().draw(ratings, rng=0)
    model = make_model(given.method, rng=0).fit(ratings, weights)
    if given.as_released:
        model._popularity = lambda: model.facts_.popularity.astype(float)
    kinds: Counter[str] = Counter()
    people: Counter[int] = Counter()
    texts = n_items = 0
    shown = []
    for _, found in model.recommend_each(ratings.users.ids.tolist(), given.n):
        told = [named(entry) for entry in found]
        for kind in told:
            kinds.update(kind)
        people[sum("popular" in kind for kind in told)] += 1
        texts += len({entry.reason for entry in found})
        n_items += len(found)
        if len(shown) < given.examples:
            shown.append([(entry.title, entry.genres, entry.reason) for entry in found])
    people_total = sum(people.values())
    return {
        "data": data,
        "method": given.method,
        "share": {kind: count / n_items for kind, count in kinds.most_common()},
        "people with only popular": people[given.n] / people_total,
        "personal without a genre": 1 - kinds["genre"] / max(kinds["personal"], 1),
        "different reasons in a list": texts / people_total,
        "examples": shown,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="*", default=["ml-100k", "ml-1m"])
    parser.add_argument("--method", default="hdp-sum")
    parser.add_argument("--n", type=int, default=10, help="items in a list")
    parser.add_argument("--examples", type=int, default=0, help="lists to show")
    parser.add_argument(
        "--as-released",
        action="store_true",
        help="popularity is not corrected for item weights, as on devices of a federation",
    )
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    find_data()
    rows = [measure(data, given) for data in given.data]
    if given.json:
        print(json.dumps(rows))
        return
    for row in rows:
        print(f"{row['data']}, {row['method']}")
        for kind, share in row["share"].items():
            print(f"  {kind:32} {share:6.1%}")
        for name in ("people with only popular", "personal without a genre"):
            print(f"  {name:32} {row[name]:6.1%}")
        print(f"  {'different reasons in a list':32} {row['different reasons in a list']:6.1f}")
        for example in row["examples"]:
            for title, genres, reason in example:
                print(f"    {title} [{', '.join(genres)}]: {reason}")
            print()


if __name__ == "__main__":
    main()
