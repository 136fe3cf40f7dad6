"""The published tables that are made from the runs in results/: those of the README, docs/results.md and others."""

import csv
from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import product
from typing import Any

import numpy as np

from sbil import environments
from sbil.experiments import Result
from sbil.experiments.environment import played
from sbil.experiments.store import read
from sbil.reports import clinical, paper_numbers, tables
from sbil.reports.cells import grouped
from sbil.reports.differences import FEWEST_DRAWS, difference, differences, few_draws, verdict
from sbil.reports.html import asset
from sbil.reports.names import NAMES, name_of, place_of
from sbil.text import markdown_table
from studies.pages import RESULTS, ROOT, bold

DECAYS = "bc+weight_decay=0/0.1/0.3/1/3/10"
METHODS = ("bc", "bc:decay", "rcal", "value_dice", "edm", "edm:paper")  # in the README; docs/results.md has all
FORMS = ("edm", "edm:released", "edm:paper")
SHOWN = (
    "CartPole-v1-ppo-sampled-thin20",
    "CartPole-v1-ppo-greedy-thin20",
    "CartPole-v1-dqn-greedy-thin20",
    "CartPole-v1-dqn-greedy-thin1",
    "Acrobot-v1-ppo-sampled-thin1",
    "LunarLander-v3-ppo-greedy-thin1",
    "BeamRiderNoFrameskip-v4-ppo-sampled-thin1",
)
# The cells of the README's table: setting, size, heading.
HEADLINE = (
    (SHOWN[0], 1, "CartPole, PPO sampled, n = 1"),
    (SHOWN[2], 15, "CartPole, DQN, n = 15"),
    (SHOWN[4], 1, "Acrobot, PPO sampled, n = 1"),
    (SHOWN[5], 7, "LunarLander, n = 7"),
)


@cache
def runs() -> dict[str, list[Result]]:
    """Return the published cells by setting, with one mean return per run.

    Cells with another seed, or with the states between kept decisions, belong to the study of remedies.
    """
    found = [
        result.without_episodes()
        for path in sorted(RESULTS.glob("*.parquet"))
        for result in read(path)
        if not (result.cell.task.seed or result.cell.task.every_state)
    ]
    return dict(sorted(grouped(found, lambda result: result.cell.setting).items()))


@cache
def labelled() -> dict[str, list[Result]]:
    """Return the published cells that were shown no further states, by setting."""
    return {name: [result for result in found if not result.cell.task.unlabelled] for name, found in runs().items()}


def headline() -> str:
    """Write the table of the README: means with 95 % intervals."""
    found = {(name, str(r.cell.method), r.cell.size): r for name in SHOWN for r in labelled()[name]}
    rows = [["", *(heading for _, _, heading in HEADLINE)]]
    for method, words in NAMES.items():
        if method in METHODS:
            rows.append([words, *(_shown(found.get((name, method, size))) for name, size, _ in HEADLINE)])
    return markdown_table(rows)


def _shown(result: Result | None) -> str:
    if result is None:
        return "not run"
    every = result.diverged == len(result.cell.runs)
    return f"all {result.diverged} runs diverge" if every else tables.with_interval(result)


def standing() -> str:
    """List by setting where each form of EDM is clearly above or below each control, and by how much."""
    rows = [["setting", "EDM", "against", "clearly above at n =", "clearly below at n =", "mean difference, by size"]]
    for (setting, results), baseline in product(labelled().items(), ("bc", "bc:decay", DECAYS)):
        found = grouped(differences(results, baseline), lambda row: row["method"])
        for form in FORMS:
            if form in found and found[form][0]["draws"] >= FEWEST_DRAWS:
                rows.append([setting, NAMES[form], NAMES[baseline], *_sides(found[form])])
    return markdown_table(rows)


def _sides(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return the sizes at which a difference is clearly above zero, those below, and all means."""
    verdicts = [(verdict(row), str(row["size"])) for row in rows]
    clear = [", ".join(size for found, size in verdicts if found == side) or "-" for side in ("above", "below")]
    return [*clear, ", ".join(f"{row['mean']:+.3f}" for row in rows)]


def states() -> str:
    """Show what the states of further trajectories bring: score minus the score without them, run by run."""
    head = ["setting", "EDM", "mean of +1 to +7 [95 % interval], p", *(f"+{more}" for more in range(1, 8)), "diverged"]
    rows = [head]
    for (setting, results), form in product(runs().items(), FORMS):
        mine = {r.cell.task.unlabelled: r for r in results if str(r.cell.method) == form and r.cell.size == 1}
        if len(mine) > 1:
            rows.append([setting, NAMES[form], *_gains(mine)])
    return markdown_table(rows)


def _gains(cells: dict[int, Result]) -> list[str]:
    """Return the mean gain over all numbers of further trajectories, tested once; each gain; the diverged runs."""
    found = [cells[more].scores - cells[0].scores for more in range(1, 8)]
    pooled = difference(np.mean(found, axis=0))
    lost, count = sum(cell.diverged for cell in cells.values()), sum(len(cell.cell.runs) for cell in cells.values())
    text = f"{pooled['mean']:+.3f} [{pooled['low']:+.3f}, {pooled['high']:+.3f}], p = {pooled['p']:.3f}"
    clear = verdict(pooled) in ("above", "below") and 2 * lost < count
    return [bold(text, clear), *(f"{gain.mean():+.3f}" for gain in found), f"{lost} of {count}"]


def ends() -> str:
    """Show where training ends, by size: the fit to the decisions, and the gap between recorded and sampled states."""
    rows = [["setting", "method", "log-loss of the decisions", "energy gap", "gap outside -0.6 to -0.4"]]
    for (setting, results), method in product(labelled().items(), ("bc", "bc:decay", "edm", "edm:released")):
        last = [result.curves for result in results if str(result.cell.method) == method and result.curves]
        if last:
            losses = ", ".join(f"{np.median(values['policy_loss'][:, -1]):.3f}" for values in last)
            gaps = [values["energy_gap"][:, -1] for values in last if "energy_gap" in values]
            rows.append([setting, NAMES[method], losses, *_gap_columns(gaps)])
    return markdown_table(rows)


def _gap_columns(gaps: Sequence[np.ndarray]) -> list[str]:
    """Return the median gap of each cell, and how many runs end far from a gap of -0.5."""
    outside = sum(int((np.abs(gap + 0.5) > 0.1).sum()) for gap in gaps)
    count = f"{outside} of {sum(gap.size for gap in gaps)} runs" if gaps else ""
    return [", ".join(f"{np.median(gap):+.2f}" for gap in gaps), count]


def full() -> str:
    """Write every table as the paper prints it, with the paper's printed rows and the paired differences from BC."""
    parts = []
    for results in labelled().values():
        table = tables.markdown(results, _beside_the_paper).rstrip("\n")
        note = " ".join(["Difference from BC, run by run [95 % interval].", few_draws(results)]).strip()
        parts += ["\n".join([table, *_printed_rows(results), ""]), note + "\n", _difference_table(results)]
    return _named("\n".join(parts))


def _named(table: str) -> str:
    """Write out the names of methods, the most particular first."""
    for name in sorted(NAMES, key=len, reverse=True):
        table = table.replace(f"| {name} |", f"| {NAMES[name]} |")
    return table


def _beside_the_paper(result: Result) -> str:
    """Return mean ± standard error, with a mark if the paper prints something else for this method."""
    return tables.with_error(result) + (" †" if paper_numbers.differs(result) else "")


def _printed_rows(results: Sequence[Result]) -> list[str]:
    sizes = sorted({result.cell.size for result in results})
    lines = []
    for method in paper_numbers.METHODS:
        cells = [paper_numbers.printed(played(results[0].cell).environment, size, method) for size in sizes]
        texts = [f"*{cell.mean:.3f} ± {cell.standard_error:.3f}*" if cell else "" for cell in cells]
        words = NAMES[method].split(" (")[0]
        lines.append(f"| *printed in the paper: {words}* | " + " | ".join(texts) + " |")
    return lines


def _difference_table(results: Sequence[Result]) -> str:
    """Write the differences from BC, methods down and sizes across; clear ones in bold."""
    found = differences(results)
    sizes = sorted({row["size"] for row in found})
    rows = [["method", *map(str, sizes)]]
    for method, mine in grouped(found, lambda row: row["method"]).items():
        texts = {row["size"]: _difference(row) for row in mine}
        rows.append([method, *(texts.get(size, "") for size in sizes)])
    return markdown_table(rows)


def _difference(row: dict[str, Any]) -> str:
    text = f"{row['mean']:+.3f} [{row['low']:+.3f}, {row['high']:+.3f}]"
    return bold(text, verdict(row) in ("above", "below"))


def chosen() -> str:
    """Count over the runs of a cell what they chose on their held-out demonstrations."""
    rows = [["setting", "method", "chosen (runs)"]]
    for setting, results in runs().items():
        for result in (result for result in results if result.chosen):
            words = ", ".join(f"{choice} ({count})" for choice, count in Counter(result.chosen).most_common())
            rows.append([f"{setting}, n = {result.cell.size}", name_of(str(result.cell.method)), words])
    return markdown_table(rows)


def seconds() -> str:
    """Show how long a run of each method took, with compilation and choosing of settings, by task."""
    rows = [["method", "task", "updates", "choosing settings, s per run", "training, s per run", "runs at once"]]
    measured = [r for results in labelled().values() for r in results if r.made_by["platform"] != "cpu"]
    found = grouped(
        measured, lambda r: (f"{played(r.cell).environment}, thin {played(r.cell).thin}", str(r.cell.method))
    )
    for (task, method), cells in sorted(found.items(), key=lambda entry: (entry[0][0], place_of(entry[0][1]))):
        count = sum(len(result.cell.runs) for result in cells)
        taken = {name: sum(result.seconds[name] for result in cells) / count for name in ("selection", "training")}
        selection = f"{taken['selection']:.3f}" if taken["selection"] > 0.0005 else ""
        updates, together = cells[0].cell.updates, max(result.made_by["runs_per_program"] for result in cells)
        rows.append([name_of(method), task, f"{updates:,}", selection, f"{taken['training']:.3f}", str(together)])
    return markdown_table(rows)


def returns() -> str:
    """Show the returns of random networks and demonstrators beside the paper's."""
    rows = [["environment", "random network", "printed", "uniform actions", "demonstrator", "return", "printed"]]
    printed = {row["environment"]: row for row in csv.DictReader(asset("paper_returns.csv").splitlines())}
    for name, measured in environments.returns().items():
        theirs = printed.get(paper_numbers.SUCCESSORS.get(name, name), {})
        first = [name, _spread(measured["random network"]), _printed_spread(theirs, "random")]
        uniform = _spread(measured.get("uniform actions"))
        for who, modes in measured["demonstrators"].items():
            for mode, found in modes.items():
                last = [f"{who} {mode}", _spread(found), _printed_spread(theirs, "demonstrator")]
                rows.append([*first, uniform, *last])
    return markdown_table(rows)


def _spread(found: dict[str, float] | None) -> str:
    """Return mean ± standard deviation of what was measured."""
    return "" if found is None else f"{found['mean']:.1f} ± {found['sd']:.1f}"


def _printed_spread(theirs: dict[str, str], what: str) -> str:
    return f"{float(theirs[f'{what}_mean']):.1f} ± {float(theirs[f'{what}_sd']):.1f}" if theirs else ""


def for_results_page() -> dict[str, str]:
    """Return the tables of docs/results.md by their marks."""
    return {"tables": full(), "chosen": chosen(), "seconds": seconds()}


def for_reproduction_page() -> dict[str, str]:
    """Return the tables of docs/reproduction.md that are made here, by their marks."""
    return {"standing": standing(), "states": states(), "ends": ends()}


def for_clinical_page() -> dict[str, str]:
    """Return the tables of docs/clinical.md. Of the previous action shown, the page has some numbers in a sentence."""
    demo = ROOT / "tests" / "clinical" / "mimic-iii-demo.parquet"  # no result
    paths = [*sorted((RESULTS / "clinical").glob("*.parquet")), demo]
    found = {table.task.name: table for table in clinical.tables([r for path in paths for r in read(path)])}
    shown = ("MIMIC-III-2a", "MIMIC-III-4a", "PhysioNet-2012", "ICU-Sepsis")
    parts = {f"scores of {name}": clinical.scores_in_markdown(found[name]) + "\n" for name in shown}
    return {**parts, "differences": clinical.differences_in_markdown(found["PhysioNet-2012"]) + "\n"}
