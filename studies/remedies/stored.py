"""The stored runs of the study, and the comparisons of methods that its tables share.

A stored run keeps its mean return, how it met unseen decisions, and when it diverged. The methods that the figure of
diagnostics shows keep those too. There is one file per environment in results/remedies/.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import tyro

from sbil import statistics
from sbil.errors import UserError
from sbil.experiments import Result
from sbil.experiments.environment import played
from sbil.experiments.store import read, read_all, write
from sbil.reports.cells import grouped, strata
from sbil.reports.differences import difference, verdict
from sbil.reports.tables import bracketed
from sbil.statistics import Interval, estimate, ratio
from studies.pages import RESULTS, bold
from studies.remedies.study import BARE, SETTINGS, SIZES, WARM

FOLDER = RESULTS / "remedies"
PRINTED, SQUARED, DEFAULT = f"{BARE}+square=0", BARE, "edm_robust"
DIAGNOSED = {PRINTED: "as printed", SQUARED: "with the square", DEFAULT: "the default of edm_robust"}
DQN, PPO = "CartPole-v1-dqn-greedy-thin20", "CartPole-v1-ppo-sampled-thin20"
COLUMNS = {
    DQN: "CartPole, DQN, 20th",
    PPO: "CartPole, PPO, 20th",
    "Acrobot-v1-ppo-sampled-thin1": "Acrobot",
    "Acrobot-v1-ppo-sampled-thin5": "Acrobot, 5th",
    "Acrobot-v1-ppo-sampled-thin20": "Acrobot, 20th",
    "LunarLander-v3-ppo-greedy-thin1": "LunarLander",
    "LunarLander-v3-ppo-greedy-thin5": "LunarLander, 5th",
}
EVERY_STATE = ", every state"
STUDY, FINAL = 0, 1  # seeds
CPU = "-cpu"  # the end of names of files with runs of a CPU, whose CartPole and Acrobot demonstrations differ
Of = dict[tuple[str, int], Result]  # the cells of a method, by setting and size
Cells = dict[str, Of]
Values = Callable[[Result], np.ndarray]


@dataclass(frozen=True)
class Take:
    """Add cells to the files in results/remedies/, in place of older ones; leave out cells of outdated settings."""

    folders: tyro.conf.Positional[tuple[Path, ...]]
    """Folders that `python -m studies.remedies run` filled."""
    cpu: bool = False
    """The cells were run on a CPU."""


def take(asked: Take) -> None:
    """Add the cells of folders to the files.

    Cells are compared with BC of the same demonstrations. If the demonstrations of a setting and seed have changed
    (fingerprints change with them), all its cells must be taken anew.
    """
    found = read_all(asked.folders, episodes=False)
    for environment, mine in sorted(grouped(found, lambda result: played(result.cell).environment).items()):
        path = FOLDER / f"{environment}{CPU if asked.cpu else ''}.parquet"
        old = {str(result.cell): result for result in (read(path) if path.exists() else [])}
        new = {str(result.cell): result for result in mine if _of_today(result)}
        _refuse_mixture(path, old, new)
        kept = {name: result.summary() if asked.cpu else slim(result) for name, result in (old | new).items()}
        write(path, [kept[name] for name in sorted(kept)])
        stale = len(mine) - len(new)
        print(f"{path.name}: {len(new)} cells of {len(kept)}" + f"; {stale} of other settings left out" * (stale > 0))


def _refuse_mixture(path: Path, old: dict[str, Result], new: dict[str, Result]) -> None:
    """Raise if a setting and seed would hold cells of two sets of demonstrations."""
    fresh = {(result.cell.setting, result.cell.task.seed) for result in new.values()}
    left = [r for name, r in old.items() if name not in new and (r.cell.setting, r.cell.task.seed) in fresh]
    if others := [str(result.cell) for result in left if not _of_today(result)]:
        raise UserError(
            f"{len(others)} cells of {path.name} have other demonstrations, {others[0]} for one; run them too."
        )


def _of_today(result: Result) -> bool:
    return result.fingerprint == result.cell.fingerprint


def slim(result: Result) -> Result:
    """Drop what neither the tables nor the figures need."""
    if str(result.cell.method) in DIAGNOSED and not result.cell.task.seed:
        return result
    return replace(result, curves={}, points=np.array([], int))


@cache
def load(kind: str = "") -> dict[int, Cells]:
    """Return every cell by seed. STUDY chose the default, FINAL judges it, seed 2 asks only whether it diverges."""
    found: dict[int, Cells] = {}
    for environment in SETTINGS:
        path = FOLDER / f"{environment}{kind}.parquet"
        for result in read(path) if path.exists() or not kind else []:
            cell = result.cell
            name = str(cell.method) + (EVERY_STATE if cell.task.every_state else "")
            name += f", states of {cell.task.unlabelled} more" if cell.task.unlabelled else ""
            found.setdefault(cell.task.seed, {}).setdefault(name, {})[cell.setting, cell.size] = result
    return found


def errors(result: Result) -> np.ndarray:
    """Return [draws, initialisations], the share of unseen decisions that a run would take differently."""
    return result.metrics["held_out_error"].reshape(result.scores.shape)


def scores(result: Result) -> np.ndarray:
    """Return [draws, initialisations], what a run scored live."""
    return result.scores


def side(mine: Result, other: Result, values: Values = scores) -> str:
    """Say on which side of another method's values a method's values clearly lie: "above", "below" or other words."""
    return verdict(difference(beyond(mine, other, values)))


def beyond(mine: Result, other: Result, values: Values = scores) -> np.ndarray:
    """Return [draws, initialisations], a method's values minus another's, on the draws that both have."""
    ours, theirs = values(mine), values(other)
    draws = min(len(ours), len(theirs))
    return ours[:draws] - theirs[:draws]


def compared(mine: Of, bc: Of, settings: Sequence[str], measure: str, sizes: Sequence[int] = SIZES) -> Interval | None:
    """Compare a method with BC over all sizes of some settings: a ratio of errors or a difference of scores.

    Return None if a cell is missing.
    """
    keys = [(setting, size) for setting in settings for size in sizes]
    if any(key not in mine for key in keys):
        return None
    values = errors if measure == "error" else scores
    draws = min(len(of[key].scores) for of in (mine, bc) for key in keys)
    ours, theirs = (strata([of[key] for key in keys], lambda r: values(r)[:draws]) for of in (mine, bc))
    return ratio(ours, theirs) if measure == "error" else statistics.difference(ours, theirs)


def judged(mine: Result | None, bc: Result | None) -> str:
    """Write a score, or its difference from BC's; a clear difference is bold."""
    if mine is None:
        return ""
    if bc is None:
        return bracketed(estimate(mine.scores))
    return bold(bracketed(estimate(beyond(mine, bc)), "+.3f"), side(mine, bc) in ("above", "below"))


def spoken(method: str) -> str:
    """Name a method as a reader knows it."""
    plain = method.replace(WARM, "temperature 1, steps in spreads")
    plain = plain.replace("step_size=0.1+noise=0.4472", "temperature 1")
    if plain == "edm_robust+weight=0":
        return "bc, average=0.999, batch=256"
    if "+weight=0+" in plain:
        return "bc, " + plain.split("+weight=0+")[1]
    if plain.startswith(BARE):
        rest = plain.removeprefix(BARE).strip("+").replace("+", ", ")
        return "EDM with the square" + (f", {rest}" if rest else "")
    return plain.replace("+", ", ")


def share_of(ours: Result, theirs: Result) -> str:
    """Write the errors of a method as a share of another method's; a clear difference is bold."""
    share = f"{errors(ours).mean() / errors(theirs).mean():.0%}"
    return bold(share, side(ours, theirs, errors) in ("above", "below"))


def overall(mine: Of, bc: Of, settings: Sequence[str], measure: str, sizes: Sequence[int] = SIZES) -> str:
    """Write `compared` with its interval, as a percentage for errors. A missing cell is a mistake."""
    found = compared(mine, bc, settings, measure, sizes)
    assert found, "a cell is missing"
    return bracketed(found, ".0%" if measure == "error" else "+.3f")


def diverged_of(results: Iterable[Result]) -> tuple[int, int]:
    """Return how many runs diverged, and how many runs there are."""
    every = list(results)
    return sum(result.diverged for result in every), sum(len(result.cell.runs) for result in every)
