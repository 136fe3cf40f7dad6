"""The study of EDM's remedies: its runs, its tables and its figure of diagnostics.

python results/remedies.py runs/    take the cells of a folder that `python -m sbil.experiments.remedies` filled
python results/remedies.py          write the tables of docs/understanding_edm.md and the figure
python results/remedies.py --check  fail if the tables are not what the runs say

Kept of a run: its mean return, how it met unseen decisions, when it diverged; of the methods that the figure shows also
the diagnostics along training. One file an environment, in remedies/.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from publish import inserted

from sbil.experiments import Result
from sbil.experiments.remedies import BARE, LISTS, SETTINGS, SIZES, WARM
from sbil.experiments.store import read, read_all, write
from sbil.reports import figures
from sbil.reports.statistics import estimate, sign_flip

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "understanding_edm.md"
FIGURE = HERE.parent / "docs" / "figures" / "remedies.png"
PRINTED, SQUARED, DEFAULT = f"{BARE}+square=0", BARE, "edm_robust"
DIAGNOSED = {PRINTED: "as printed", SQUARED: "with the square", DEFAULT: "the default of edm_robust"}
COLUMNS = {
    "CartPole-v1-dqn-greedy-thin20": "CartPole, DQN, 20th",
    "CartPole-v1-ppo-sampled-thin20": "CartPole, PPO, 20th",
    "Acrobot-v1-ppo-sampled-thin1": "Acrobot",
    "Acrobot-v1-ppo-sampled-thin5": "Acrobot, 5th",
    "Acrobot-v1-ppo-sampled-thin20": "Acrobot, 20th",
    "LunarLander-v3-ppo-greedy-thin1": "LunarLander",
    "LunarLander-v3-ppo-greedy-thin5": "LunarLander, 5th",
}
WORDS = {
    "controls": "Controls: no state term",
    "chains": "One by one: chains",
    "other-chains": "One by one: other chains",
    "without-chains": "One by one: without chains",
    "together": "Together",
}
Cells = dict[str, dict[tuple[str, int], Result]]  # by method, then setting and size


def take(folders: Sequence[str]) -> None:
    """Add cells of folders to the files, in place of older ones, but not those that today's settings would not give."""
    found = [r for r in read_all(map(Path, folders), episodes=False) if r.fingerprint == r.cell.fingerprint]
    for environment in sorted({result.cell.environment for result in found}):
        path = HERE / "remedies" / f"{environment}.parquet"
        old = list(read(path)) if path.exists() else []
        new = [r for r in found if r.cell.environment == environment]
        kept = {str(result.cell): slim(result) for result in (*old, *new)}
        path.parent.mkdir(exist_ok=True)
        write(path, [kept[name] for name in sorted(kept)])
        print(f"{path.name}: {len(new)} cells of {len(kept)}")


def slim(result: Result) -> Result:
    """A result without what neither tables nor figure need."""
    if str(result.cell.method) in DIAGNOSED:
        return result
    return replace(result, curves={}, points=np.array([], int))


def load() -> Cells:
    """Every cell of the study."""
    cells: Cells = {}
    for environment in SETTINGS:
        for result in read(HERE / "remedies" / f"{environment}.parquet"):
            if result.cell.seed or result.cell.every_state or result.cell.unlabelled:
                continue  # no part of the study by which the default was chosen
            cells.setdefault(str(result.cell.method), {})[result.cell.setting, result.cell.size] = result
    return cells


def errors(result: Result) -> np.ndarray:
    """[draws, initialisations], the share of unseen decisions that a run would have taken otherwise."""
    return result.held_out["error"].reshape(result.scores.shape)


def clear(values: np.ndarray) -> int:
    """1 or -1 where differences [draws, initialisations] are clearly above or below 0, else 0."""
    found = estimate(values)
    if sign_flip(values.mean(axis=1)) >= 0.05 or found.low <= 0 <= found.high:
        return 0
    return 1 if found.mean > 0 else -1


def ratio(cells: dict[tuple[str, int], Result], bc: dict[tuple[str, int], Result], keys: Sequence[object]) -> float:
    """The geometric mean over cells of a method's error over BC's; NaN where one is missing."""
    if any(key not in cells for key in keys):
        return np.nan
    return float(np.exp(np.mean([np.log(errors(cells[key]).mean() / errors(bc[key]).mean()) for key in keys])))


def table(cells: Cells, measure: str) -> str:
    """Methods down, settings across: of each the mean over sizes; and in how many cells the difference is clear."""
    bc = cells["bc"]
    better, worse = ("below", "above") if measure == "error" else ("above", "below")
    head = ["method", *COLUMNS.values(), "all", f"clearly {better} BC", f"clearly {worse} BC", "diverged"]
    lines = [head, ["---"] + ["---:"] * (len(head) - 1)]
    for name, methods in LISTS.items():
        lines.append([f"**{WORDS[name]}**"] + [""] * (len(head) - 1))
        for method in methods:
            lines.append([spoken(method), *row(cells.get(method, {}), bc, measure)])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def row(mine: dict[tuple[str, int], Result], bc: dict[tuple[str, int], Result], measure: str) -> list[str]:
    """The entries of a method."""
    every = [[(setting, size) for size in SIZES] for setting in COLUMNS]
    every.append([key for keys in every for key in keys])
    if measure == "error":
        values = [ratio(mine, bc, keys) for keys in every]
        words = ["" if np.isnan(value) else f"{value:.0%}" for value in values]
        found = [clear(errors(mine[key]) - errors(bc[key])) for key in mine if mine is not bc]
        better, worse = found.count(-1), found.count(1)
    else:
        means = [
            [(mine[key].scores - bc[key].scores).mean() if key in mine else np.nan for key in keys] for keys in every
        ]
        words = ["" if np.isnan(some).any() else f"{np.mean(some):+.3f}" for some in means]
        found = [clear(mine[key].scores - bc[key].scores) for key in mine if mine is not bc]
        better, worse = found.count(1), found.count(-1)
    if not mine:
        return [*words, "", "", ""]
    runs = sum(result.returns.shape[0] for result in mine.values())
    diverged = sum(result.diverged for result in mine.values())
    return [
        *words,
        f"{better} of {len(mine)}",
        f"{worse} of {len(mine)}",
        f"{diverged} of {runs:,}" if diverged else "0",
    ]


def spoken(method: str) -> str:
    """A method as a reader knows it."""
    plain = method.replace(WARM, "temperature 1, steps in spreads")
    if "+weight=0+" in plain:
        return "bc, " + plain.split("+weight=0+")[1]
    if plain.startswith(BARE):
        rest = plain.removeprefix(BARE).strip("+").replace("+", ", ")
        return "EDM with the square" + (f", {rest}" if rest else "")
    return plain.replace("+", ", ")


def tables() -> list[tuple[str, str]]:
    """What stands between the marks of the page."""
    cells = load()
    return [("counts", counts(cells)), ("errors", table(cells, "error")), ("scores", table(cells, "score"))]


def counts(cells: Cells) -> str:
    """How many runs there are, and how many of them diverged."""
    printed = list(cells[PRINTED].values())
    others = [result for method, mine in cells.items() if method != PRINTED for result in mine.values()]
    runs = [sum(result.returns.shape[0] for result in some) for some in (printed, others)]
    diverged = [sum(result.diverged for result in some) for some in (printed, others)]
    methods = {
        method for method in cells if method != PRINTED and "+weight=0+" not in method and not method.startswith("bc")
    }
    return (
        f"Runs: {sum(runs):,}. As printed, {diverged[0]:,} of {runs[0]:,} diverge; of the {runs[1]:,} others, "
        f"{len(methods)} forms of the state term and the controls, {diverged[1]:,}.\n"
    )


def figure(cells: Cells) -> plt.Figure:
    """Along training: where three forms of EDM go, and who pulls."""
    shown = (("CartPole-v1-dqn-greedy-thin20", 3), ("LunarLander-v3-ppo-greedy-thin1", 3))
    rows = {
        "policy_loss": "log-loss of the decisions",
        "energy_gap": "energy gap, seen - sampled",
        "chain_size": "largest coordinate of a chain",
        "share": "state term's share of the gradient",
    }
    sheet, axes = plt.subplots(len(rows), len(shown), figsize=(9, 11), sharex=True, layout="constrained")
    for column, key in enumerate(shown):
        axes[0, column].set_title(COLUMNS[key[0]] + f", {key[1]} trajectories", fontsize=10)
        for colour, (method, name) in enumerate(DIAGNOSED.items()):
            result = cells[method][key]
            for number, what in enumerate(rows):
                curves = result.curves
                if what == "share":
                    pull = curves["state_gradient"]
                    values = pull / (pull + curves["policy_gradient"])
                else:
                    values = curves[what]
                low, middle, high = np.nanquantile(values, [0.25, 0.5, 0.75], axis=0)
                axes[number, column].plot(result.points, middle, color=f"C{colour}", label=name)
                axes[number, column].fill_between(result.points, low, high, color=f"C{colour}", alpha=0.2, lw=0)
    for number, (what, label) in enumerate(rows.items()):
        axes[number, 0].set_ylabel(label)
        for axis in axes[number]:
            axis.grid(alpha=0.3)
            if what == "energy_gap":
                axis.set_yscale("symlog", linthresh=1)
                axis.set_ylim(-1e11, 2)
                axis.set_yticks([0, -1e2, -1e4, -1e6, -1e8, -1e10])
                axis.axhline(-0.5, color="black", lw=0.8, ls=":")
            if what in ("chain_size", "policy_loss"):
                axis.set_yscale("log")
    for axis in axes[-1]:
        axis.set_xlabel("updates")
    axes[0, 0].legend(fontsize=8, loc="upper left")
    return sheet


def main(words: Sequence[str]) -> None:
    """Take runs, write, or check."""
    if folders := [word for word in words if word != "--check"]:
        take(folders)
        return
    text = inserted(PAGE, *tables())
    if "--check" in words:
        sys.exit(0 if PAGE.read_text() == text else f"{PAGE.name} is not what the runs say; run results/remedies.py")
    PAGE.write_text(text)
    figures.write(figure(load()), FIGURE)


if __name__ == "__main__":
    main(sys.argv[1:])
