"""Where EDM's policy stays wrong however much data there is, and behavioural cloning's does not.

    python examples/restricted_class.py --out restricted_class.png

Two states, two actions, one parameter t, with w = exp(t):

    f(A) = (0, t)        pi(1|A) = w / (1 + w)
    f(B) = (t, t)        pi(1|B) = 1/2, whatever t is

The demonstrator is in this class, with w = 3/2: at A it takes action 1 with probability 3/5. A share q of the states is
B. Every estimate below is worked out by hand in docs/exact_edm.md.
"""

import argparse
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np

PI = 3 / 5  # pi(1|A) of the demonstrator
FEW = 1 / 10  # how often B is visited
AGREES = 6 / 11  # the only share of B at which the class holds the states too
SIZES = (10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)


def bc(zero: np.ndarray, one: np.ndarray, b: np.ndarray) -> np.ndarray:
    """pi(1|A) of BC from how often (A, 0), (A, 1) and B were recorded: the share of action 1 at A."""
    return one / np.maximum(zero + one, 1)


def edm(zero: np.ndarray, one: np.ndarray, b: np.ndarray) -> np.ndarray:
    """pi(1|A) of exact EDM in the class: w = (one + b) / (3 zero)."""
    w = (one + b) / (3 * np.maximum(zero, 1e-9))
    return w / (1 + w)


def limit(q: np.ndarray | float, pi: float = PI) -> np.ndarray:
    """pi(1|A) of exact EDM from endlessly many decisions."""
    return edm((1 - np.asarray(q)) * (1 - pi), (1 - np.asarray(q)) * pi, np.asarray(q))


def errors(q: float, sizes: tuple[int, ...], repeats: int, seed: int = 0) -> dict[str, np.ndarray]:
    """[sizes, repeats], |pi(1|A) - 3/5| of both estimates from the same draws."""
    rng = np.random.default_rng(seed)
    counts = [rng.multinomial(n, [(1 - q) * (1 - PI), (1 - q) * PI, q], size=repeats) for n in sizes]
    return {
        name: np.array([np.abs(estimate(*drawn.T) - PI) for drawn in counts])
        for name, estimate in (("BC", bc), ("EDM", edm))
    }


def draw(out: Path, sizes: tuple[int, ...], repeats: int) -> None:
    """The figure: the error against the number of decisions, and the limits against q."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    colours = {"BC": "#3b6fb6", "EDM": "#c4572b"}
    labels = {"BC": "BC; and EDM with an unrestricted table", "EDM": "exact EDM in the restricted class"}
    for name, found in errors(FEW, sizes, repeats).items():
        low, middle, high = np.quantile(found, (0.1, 0.5, 0.9), axis=1)
        left.plot(sizes, middle, "o-", color=colours[name], label=labels[name], markersize=4)
        left.fill_between(sizes, low, high, color=colours[name], alpha=0.2, linewidth=0)
    left.axhline(
        PI - limit(FEW), color=colours["EDM"], linestyle=":", label=f"its limit, 3/5 - 16/43 = {PI - limit(FEW):.3f}"
    )
    left.set(xscale="log", yscale="log", xlabel="decisions", ylabel="error of π(1|A)", title="10 % of the states are B")
    left.legend(loc="lower left", fontsize="small")
    q = np.linspace(0, 0.98, 300)
    right.axhline(PI, color=colours["BC"], label="BC: 3/5")
    right.plot(q, limit(q), color=colours["EDM"], label="exact EDM in the restricted class")
    right.axhline(0.5, color="0.6", linestyle="--", linewidth=1, label="below: the wrong action is preferred")
    right.plot(*np.array([[FEW, limit(FEW)], [AGREES, PI]]).T, "o", color=colours["EDM"])
    right.annotate("16/43", (FEW, limit(FEW)), (6, -12), textcoords="offset points")
    right.annotate("q = 6/11", (AGREES, PI), (6, -14), textcoords="offset points")
    right.set(xlabel="q, share of the states that are B", ylabel="π(1|A) from endless data", ylim=(0.2, 1))
    right.set_title("right only where the class also fits the states")
    right.legend(loc="upper left", fontsize="small")
    figure.savefig(out, dpi=120)
    plt.close(figure)


def main(words: list[str] | None = None) -> None:
    """Print the limits and write the figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("restricted_class.png"))
    parser.add_argument("--repeats", type=int, default=2000, help="samples of every size")
    parser.add_argument("--largest", type=int, default=SIZES[-1], help="most decisions of a sample")
    asked = parser.parse_args(words)
    sizes = tuple(size for size in SIZES if size <= asked.largest)
    found = errors(FEW, sizes, asked.repeats)
    print("median error of pi(1|A), 10 % of the states being B\ndecisions       BC      EDM")
    for number, size in enumerate(sizes):
        print(f"{size:9,} {np.median(found['BC'][number]):8.4f} {np.median(found['EDM'][number]):8.4f}")
    print(f"    limit {0:8.4f} {PI - limit(FEW):8.4f}")
    draw(asked.out, sizes, asked.repeats)
    print(f"wrote {asked.out}")


if __name__ == "__main__":
    mpl.use("Agg")
    main()
