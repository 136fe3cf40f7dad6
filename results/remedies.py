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
from sbil.reports import compare, figures
from sbil.reports.statistics import Interval, difference, estimate, ratio

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
EVERY_STATE = ", every state"
JUDGED = {  # the final table: what is set beside BC
    "bc:decay": "BC, weight decay 1",
    "bc+weight_decay=0/0.1/0.3/1/3/10": "BC, decay selected",
    "edm_robust+weight=0": "BC, batch 256, averaged",
    "edm:released": "EDM, released",
    "edm_robust": "EDM, robust",
    "edm_robust+weight=0/1": "EDM, robust or not, selected",
    f"edm:released{EVERY_STATE}": "EDM, released, all states",
    f"edm_robust{EVERY_STATE}": "EDM, robust, all states",
}
LOW = 0.95  # below it BC leaves something to be had
Of = dict[tuple[str, int], Result]  # the cells of a method, by setting and size
Cells = dict[str, Of]


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


def load() -> tuple[Cells, Cells]:
    """Every cell of the study by which the default was chosen, and every cell of the final table."""
    study: Cells = {}
    final: Cells = {}
    for environment in SETTINGS:
        for result in read(HERE / "remedies" / f"{environment}.parquet"):
            cell = result.cell
            name = str(cell.method) + (EVERY_STATE if cell.every_state else "")
            (final if cell.seed else study).setdefault(name, {})[cell.setting, cell.size] = result
    return study, final


def errors(result: Result) -> np.ndarray:
    """[draws, initialisations], the share of unseen decisions that a run would have taken otherwise."""
    return result.held_out["error"].reshape(result.scores.shape)


def scores(result: Result) -> np.ndarray:
    """[draws, initialisations], what a run scored live."""
    return result.scores


def side(values: np.ndarray) -> str:
    """On which side of 0 differences [draws, initialisations] clearly lie: "above", "below", or other words."""
    return compare.verdict(compare.difference(values))


def compared(mine: Of, bc: Of, settings: Sequence[str], measure: str) -> Interval | None:
    """A method beside BC over all sizes of some settings; nothing where a cell is missing."""
    keys = [(setting, size) for setting in settings for size in SIZES]
    if any(key not in mine for key in keys):
        return None
    values = errors if measure == "error" else scores
    ours, theirs = (compare.strata([of[key] for key in keys], values) for of in (mine, bc))
    return ratio(ours, theirs) if measure == "error" else difference(ours, theirs)


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


def row(mine: Of, bc: Of, measure: str) -> list[str]:
    """The entries of a method."""
    found = [compared(mine, bc, settings, measure) for settings in (*([s] for s in COLUMNS), list(COLUMNS))]
    if measure == "error":
        words = ["" if one is None else f"{one.value:.0%}" for one in found]
        sides = [side(errors(mine[key]) - errors(bc[key])) for key in mine if mine is not bc]
        better, worse = sides.count("below"), sides.count("above")
    else:
        words = ["" if one is None else f"{one.value:+.3f}" for one in found]
        sides = [side(mine[key].scores - bc[key].scores) for key in mine if mine is not bc]
        better, worse = sides.count("above"), sides.count("below")
    if (one := found[-1]) and mine is not bc:
        words[-1] += (
            f" [{one.low:.0%}, {one.high:.0%}]" if measure == "error" else f" [{one.low:+.3f}, {one.high:+.3f}]"
        )
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
    plain = method.replace(WARM, "temperature 1, steps in spreads").replace(
        "step_size=0.1+noise=0.4472", "temperature 1"
    )
    if plain == "edm_robust+weight=0":
        return "bc, average=0.999, batch=256"
    if "+weight=0+" in plain:
        return "bc, " + plain.split("+weight=0+")[1]
    if plain.startswith(BARE):
        rest = plain.removeprefix(BARE).strip("+").replace("+", ", ")
        return "EDM with the square" + (f", {rest}" if rest else "")
    return plain.replace("+", ", ")


def tables() -> list[tuple[str, str]]:
    """What stands between the marks of the page."""
    study, final = load()
    found = [("counts", counts(study)), ("errors", table(study, "error")), ("scores", table(study, "score"))]
    return [*found, ("final", verdict(final))]


def verdict(cells: Cells) -> str:
    """The final table: new demonstrations, draws and networks, a default that no longer changes."""
    if not cells:
        return "Not run yet.\n"
    bc, shown = cells["bc"], [name for name in JUDGED if name in cells]
    lines = [["setting", "trajectories", "BC", *(JUDGED[name] for name in shown)]]
    lines.append(["---"] + ["---:"] * (len(lines[0]) - 1))
    for setting, size in ((setting, size) for setting in COLUMNS for size in SIZES):
        line = [COLUMNS[setting], str(size)]
        for name in ("bc", *shown):
            line.append(judged(cells[name].get((setting, size)), None if name == "bc" else bc[setting, size]))
        lines.append(line)
    text = "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n\n"
    low = [key for key in bc if bc[key].scores.mean() < LOW]
    for name in shown:
        mine = cells[name]
        sides = {key: side(mine[key].scores - bc[key].scores) for key in mine}
        above, below = sum(sides.get(key) == "above" for key in low), list(sides.values()).count("below")
        runs = sum(len(result.cell.runs) for result in mine.values())
        text += (
            f"- {JUDGED[name]}: clearly above BC in {above} of the {sum(key in mine for key in low)} cells where BC is "
            f"below {LOW}, clearly below it in {below} of {len(mine)}; "
            f"{sum(result.diverged for result in mine.values())} of {runs:,} runs diverged.\n"
        )
    return text


def judged(mine: Result | None, bc: Result | None) -> str:
    """A score, or how far it is from BC's; bold where that is clear."""
    if mine is None:
        return ""
    found = estimate(mine.scores if bc is None else mine.scores - bc.scores)
    if bc is None:
        return f"{found.mean:.3f} [{found.low:.3f}, {found.high:.3f}]"
    text = f"{found.mean:+.3f} [{found.low:+.3f}, {found.high:+.3f}]"
    return f"**{text}**" if side(mine.scores - bc.scores) in ("above", "below") else text


def counts(cells: Cells) -> str:
    """How many runs there are, and how many of them diverged."""
    printed = list(cells[PRINTED].values())
    others = [result for method, mine in cells.items() if method != PRINTED for result in mine.values()]
    runs = [sum(result.returns.shape[0] for result in some) for some in (printed, others)]
    diverged = [sum(result.diverged for result in some) for some in (printed, others)]
    methods = {
        method
        for method in cells
        if method != PRINTED and "weight=0" not in method.split("+") and not method.startswith("bc")
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
    figures.write(figure(load()[0]), FIGURE)


if __name__ == "__main__":
    main(sys.argv[1:])
