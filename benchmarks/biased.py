"""The constants of biased-mf, by validation within training parts: ten ratings of each user are
held out of it.

python benchmarks/biased.py
python benchmarks/biased.py --data ml-1m --factors 50 --rates 0.005 0.01 --regs 0.05 0.1 --epochs 20
40

What docs/designs.md says about them is from these two; each took under a minute.
"""

from __future__ import annotations

import argparse
import itertools

from hdpmf import BiasedMF, load_dataset, load_split


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="ml-100k")
    parser.add_argument("--factors", type=int, nargs="+", default=[10, 20, 50])
    parser.add_argument("--rates", type=float, nargs="+", default=[0.005, 0.01, 0.02])
    parser.add_argument("--regs", type=float, nargs="+", default=[0.02, 0.05, 0.1, 0.15])
    parser.add_argument("--epochs", type=int, nargs="+", default=[20, 40, 80])
    chosen = parser.parse_args()
    whole = chosen.data != "ml-100k"
    train, _ = load_dataset(chosen.data).hold_out(10, rng=0) if whole else load_split(chosen.data)
    learning, validation = train.hold_out(10, rng=1)
    for factors, rate, reg, epochs in itertools.product(
        chosen.factors, chosen.rates, chosen.regs, chosen.epochs
    ):
        model = BiasedMF(factors, rate, reg, epochs, rng=0).fit(learning)
        print(
            f"K={factors} lr={rate:g} reg={reg:g} epochs={epochs}: "
            f"{model.score(validation)['mse']:.4f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
