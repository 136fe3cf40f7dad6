"""The tables of docs/choosing.md."""

from pathlib import Path

import numpy as np
import polars as pl

from sbil import environments
from sbil.reports.differences import difference, verdict
from sbil.text import counted, markdown_table
from studies.choosing.choices import (
    CELL,
    LOW,
    OURS,
    TOGETHER,
    WAYS,
    Key,
    Scores,
    by_cell,
    mean,
    rank_correlations,
    ranked,
    scores_of,
    single,
    stored,
)
from studies.choosing.horizons import HORIZONS
from studies.pages import bold

PILOT, SEED = 0, 3  # of what the rules were chosen from, and of the confirmation
BASE = "BC"
PRINTED = Path(__file__).with_name("printed.csv")  # returns of other papers; those of figures are read to 1 (4: CKIL)
PROTOCOLS = {  # of ours that is nearest to the papers': demonstrator, mode, thinning
    "CartPole-v1": ("ppo", "sampled", 20),
    "Acrobot-v1": ("ppo", "sampled", 1),
    "LunarLander-v3": ("ppo", "greedy", 1),
}
MEASURES = {
    "near": "distance, from any recorded state",
    "drift": "distance, from first states",
    "squared": "its square, from any",
    "root": "its root, from any",
    "far": "share of steps farther than 2, from any",
    "left": "share of steps after first being farther than 2, from first states",
    "last": "distance after the last step, from any",
}


def for_page() -> dict[str, str]:
    """Return the tables of docs/choosing.md by their marks."""
    runs = stored(SEED)
    cells, others = by_cell(single(runs.filter(OURS))), by_cell(single(runs.filter(~OURS)))
    scores = {key: scores_of(runs) for key, runs in cells.items()}
    ranks = {key: rank_correlations(runs) for key, runs in cells.items()}
    horizons = {key: runs["horizon"].to_numpy() for key, runs in cells.items()}
    return {
        "final": final(scores),
        "summary": summary(scores),
        "ranks": correlations(ranks, horizons),
        "printed": printed(scores),
        "measures": measures(stored(PILOT)),
        "ensembles": joined(runs.filter(OURS)),
        "elsewhere": final({key: scores_of(own) for key, own in others.items()}),
    }


def final(cells: dict[Key, Scores]) -> str:
    """Write the score of every way of choosing in every cell; bold: clearly above or below BC."""
    rows = [["setting", "trajectories", *WAYS]]
    for key, scores in cells.items():
        shown = [
            bold(f"{values.mean():.3f}", name != BASE and _side(scores, name) != 0) for name, values in scores.items()
        ]
        rows.append([setting_of(key), str(key[-1]), *shown])
    return markdown_table(rows, numbers=True)


def summary(cells: dict[Key, Scores]) -> str:
    """Write one line per way of choosing: how often it is clearly above and below BC, and what it loses to the best."""
    low = [key for key, scores in cells.items() if scores[BASE].mean() < LOW]
    head = ["", f"mean of the {len(low)} cells where BC is below {LOW}", "clearly above BC there"]
    rows = [[*head, f"clearly below BC, of {len(cells)}", "regret: mean loss to the best of the draw"]]
    for name in WAYS:
        sides = {key: _side(scores, name) for key, scores in cells.items()}
        regret = np.mean([(scores["best of the draw"] - scores[name]).mean() for scores in cells.values()])
        mean = np.mean([cells[key][name].mean() for key in low])
        above, below = sum(sides[key] > 0 for key in low), sum(side < 0 for side in sides.values())
        rows.append([name, f"{mean:.3f}", str(above), str(below), f"{regret:.3f}"])
    return markdown_table(rows, numbers=True)


def correlations(cells: dict[Key, dict[str, float]], horizons: dict[Key, np.ndarray]) -> str:
    """Write how measures rank policies within a draw, and how many steps the models are trusted for."""
    rows = [["setting", "trajectories", "imagined distance", "log-loss", "errors", "steps (median)"]]
    for key, found in cells.items():
        rows.append(
            [setting_of(key), str(key[-1]), *map(correlation, found.values()), f"{np.median(horizons[key]):.0f}"]
        )
    return markdown_table(rows, numbers=True)


def printed(cells: dict[Key, Scores]) -> str:
    """Write our mean returns beside those that other papers printed, and the returns of the demonstrators."""
    theirs = pl.read_csv(PRINTED)
    rows = [
        ["environment", "trajectories", "BC, ours", "auto, ours", *(f"{name}, printed" for name in theirs.columns[2:])]
    ]
    for environment, size, *values in theirs.iter_rows():
        if own := _ours(cells, environment, size):
            rows.append([environment.split("-v")[0], size, *(f"{value:.0f}" for value in (*own, *values))])
    return markdown_table(rows, numbers=True)


def _ours(cells: dict[Key, Scores], environment: str, size: str) -> list[float]:
    """Return the mean returns of BC and of auto, or twice the demonstrator's; nothing if the cell was not run."""
    protocol = PROTOCOLS[environment]
    low, high = environments.scale(environment, *protocol[:2])
    if size == "demonstrator":
        return [high, high]
    scores = cells.get((environment, *protocol, int(size)))
    return [low + scores[name].mean() * (high - low) for name in (BASE, "auto")] if scores else []


def measures(pilot: pl.DataFrame) -> str:
    """Write how each measure over each horizon ranks the policies of a draw: the mean rank correlation with scores."""
    draws = single(pilot).partition_by(*CELL, "draw")
    rows = [["measure", *(counted(steps, "step") for steps in HORIZONS)]]
    for name, words in MEASURES.items():
        found = [mean([ranked(draw, f"{name}_{steps}") for draw in draws]) for steps in HORIZONS]
        rows.append([words, *map(correlation, found)])
    return markdown_table(rows, numbers=True)


def joined(runs: pl.DataFrame) -> str:
    """Write the mean score of the nearest policy of each draw, and of ensembles of the nearest."""
    names = [f"nearest {size}" for size in TOGETHER]
    rows = [["setting", "trajectories", "nearest policy", *(f"ensemble of the {name}" for name in names)]]
    for key, cell in by_cell(runs).items():
        means = [WAYS["by imagined rollouts"](draw) for draw in single(cell).partition_by("draw")]
        others = [cell.filter(pl.col("method") == name)["score"].to_numpy() for name in names]
        rows.append(
            [setting_of(key), str(key[-1]), *(f"{np.mean(values):.3f}" for values in (np.array(means), *others))]
        )
    return markdown_table(rows, numbers=True)


def correlation(value: float) -> str:
    """Write a rank correlation, or a dash where nothing differs."""
    return f"{value:+.2f}" if np.isfinite(value) else "-"


def setting_of(key: Key) -> str:
    """Return a setting in words."""
    environment, demonstrator, mode, thin, _ = key
    kind = demonstrator.removeprefix("zoo-")
    who = kind.upper() if len(kind) == 3 else kind
    name = f"{environment.split('-v')[0]}, {who}{' of the zoo' if kind != demonstrator else ''} {mode}"
    return f"{name}, every {thin}th step" if thin > 1 else name


def _side(scores: Scores, name: str) -> int:
    """1: clearly above BC, -1: clearly below, 0: not clear."""
    found = verdict(difference((scores[name] - scores[BASE])[:, None]))
    return {"above": 1, "below": -1}.get(found, 0)
