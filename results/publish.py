"""Rebuilds every published table and figure from the runs in this folder.

python results/publish.py            write the figures, and the tables into README.md and docs/results.md
python results/publish.py --check    fail if they are not what the runs say
"""

import sys
from collections import Counter
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from sbil import environments
from sbil.experiments import Result, store
from sbil.reports import compare, figures, folder, paper, tables
from sbil.reports.names import MAIN, NAMES, name_of, place_of

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
DECAYS = "bc+weight_decay=0/0.1/0.3/1/3/10"
DRAWN = MAIN  # in the figure
METHODS = (*MAIN, DECAYS)  # in the README; docs/results.md has all
SHOWN = (
    "CartPole-v1-ppo-sampled-thin20",
    "CartPole-v1-ppo-greedy-thin20",
    "CartPole-v1-dqn-greedy-thin20",
    "CartPole-v1-dqn-greedy-thin1",
    "Acrobot-v1-ppo-sampled-thin1",
    "LunarLander-v3-ppo-greedy-thin1",
    "BeamRiderNoFrameskip-v4-ppo-sampled-thin1",
)
# The cells of the README's table: file, size, heading.
HEADLINE = (
    (SHOWN[0], 1, "CartPole, PPO sampled, n = 1"),
    (SHOWN[0], 3, "CartPole, PPO sampled, n = 3"),
    (SHOWN[1], 1, "CartPole, PPO greedy, n = 1"),
    (SHOWN[2], 3, "CartPole, DQN, n = 3"),
    (SHOWN[2], 15, "CartPole, DQN, n = 15"),
    (SHOWN[3], 3, "CartPole, DQN, every step, n = 3"),
    (SHOWN[4], 1, "Acrobot, PPO sampled, n = 1"),
    (SHOWN[5], 1, "LunarLander, n = 1"),
    (SHOWN[5], 7, "LunarLander, n = 7"),
)


def read(setting: str) -> list[Result]:
    """The cells of a setting that pages are made of; one mean return a run is enough here."""
    return [result.summary() for result in store.read(HERE / f"{setting}.parquet") if published(result)]


def published(result: Result) -> bool:
    """Whether pages show a cell: another seed, or every state, is a study of its own (remedies.py)."""
    return not (result.cell.seed or result.cell.every_state)


def settings() -> list[str]:
    """Every setting that was run."""
    return sorted(path.stem for path in HERE.glob("*-thin*.parquet"))


def named(table: str) -> str:
    """A table with the methods' names written out, most particular first."""
    for name in sorted(NAMES, key=len, reverse=True):
        table = table.replace(f"| {name} |", f"| {NAMES[name]} |")
    return table


def headline() -> str:
    """The table of the README: means with 95 % intervals."""
    plain = [(name, r) for name in SHOWN for r in read(name) if not r.cell.unlabelled]
    found = {(name, str(r.cell.method), r.cell.size): r for name, r in plain}
    lines = [["", *(heading for _, _, heading in HEADLINE)], ["---"] * (len(HEADLINE) + 1)]
    for method, words in NAMES.items():
        if method in METHODS:
            lines.append([words, *(shown(found.get((name, method, size))) for name, size, _ in HEADLINE)])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def shown(result: Result | None) -> str:
    """A cell of the README's table; where all runs diverged, that is the result."""
    if result is None:
        return "not run"
    every = result.diverged == len(result.cell.runs)
    return f"all {result.diverged} runs diverge" if every else tables.with_interval(result)


def standing() -> str:
    """By setting: where each form of EDM is clearly above or below each control, and by how much."""
    lines = ["| setting | EDM | against | clearly above at n = | clearly below at n = | mean difference, by size |"]
    lines.append("| --- | --- | --- | --- | --- | --- |")
    for setting in settings():
        results = [result for result in read(setting) if not result.cell.unlabelled]
        for baseline, form in product(("bc", "bc:decay", DECAYS), ("edm", "edm:released", "edm:paper")):
            rows = [row for row in compare.differences(results, baseline) if row["method"] == form]
            if not rows or rows[0]["draws"] < compare.FEWEST_DRAWS:
                continue
            clear = {
                side: ", ".join(str(row["size"]) for row in rows if compare.verdict(row) == side) or "-"
                for side in ("above", "below")
            }
            means = ", ".join(f"{row['mean']:+.3f}" for row in rows)
            words = [setting, NAMES[form], NAMES[baseline], clear["above"], clear["below"], means]
            lines.append("| " + " | ".join(words) + " |")
    return "\n".join(lines) + "\n"


def states() -> str:
    """What the states of further trajectories bring: score minus that without them, run by run."""
    head = ["setting", "EDM", "mean of +1 to +7 [95 % interval], p", *(f"+{more}" for more in range(1, 8)), "diverged"]
    lines = ["| " + " | ".join(head) + " |", "| --- " * len(head) + "|"]
    for setting in settings():
        results = read(setting)
        for form in ("edm", "edm:released", "edm:paper"):
            mine = {r.cell.unlabelled: r for r in results if str(r.cell.method) == form and r.cell.size == 1}
            if len(mine) > 1:
                lines.append("| " + " | ".join([setting, NAMES[form], *gains(mine)]) + " |")
    return "\n".join(lines) + "\n"


def ends() -> str:
    """Where training ends, by size: how well it fits the decisions, and the gap between recorded and sampled states."""
    head = ["setting", "method", "log-loss of the decisions", "energy gap", "gap outside -0.6 to -0.4"]
    lines = ["| " + " | ".join(head) + " |", "| --- " * len(head) + "|"]
    for setting in settings():
        every = filter(published, store.read(HERE / f"{setting}.parquet"))
        results = [result for result in every if not result.cell.unlabelled and result.curves]
        for method in ("bc", "bc:decay", "edm", "edm:released"):
            last = [result.diagnostics for result in results if str(result.cell.method) == method]
            if last:
                losses = ", ".join(f"{np.median(values['policy_loss']):.3f}" for values in last)
                gaps = [values["energy_gap"] for values in last if "energy_gap" in values]
                medians = ", ".join(f"{np.median(gap):+.2f}" for gap in gaps)
                outside = sum(int((np.abs(gap + 0.5) > 0.1).sum()) for gap in gaps)
                count = f"{outside} of {sum(gap.size for gap in gaps)} runs" if gaps else ""
                lines.append("| " + " | ".join([setting, NAMES[method], losses, medians, count]) + " |")
    return "\n".join(lines) + "\n"


def gains(cells: dict[int, Result]) -> list[str]:
    """The mean gain over all numbers of further trajectories, tested once; each of them; and the runs that diverged."""
    found = [cells[more].scores - cells[0].scores for more in range(1, 8)]
    pooled = compare.difference(np.mean(found, axis=0))
    lost, runs = sum(cell.diverged for cell in cells.values()), sum(len(cell.cell.runs) for cell in cells.values())
    text = f"{pooled['mean']:+.3f} [{pooled['low']:+.3f}, {pooled['high']:+.3f}], p = {pooled['p']:.3f}"
    clear = compare.verdict(pooled) in ("above", "below") and 2 * lost < runs
    return [f"**{text}**" if clear else text, *(f"{gain.mean():+.3f}" for gain in found), f"{lost} of {runs}"]


def full() -> str:
    """Every table, as the paper prints them and with its printed rows, and the paired differences from BC."""
    parts = []
    for setting in settings():
        results = [result for result in read(setting) if not result.cell.unlabelled]
        table = tables.markdown(results, beside_the_paper).rstrip("\n")
        parts.append("\n".join([table, *printed_rows(results), ""]))
        parts.append(
            " ".join(["Difference from BC, run by run [95 % interval].", compare.few_draws(results)]).strip() + "\n"
        )
        parts.append(difference_table(results))
    return named("\n".join(parts))


def beside_the_paper(result: Result) -> str:
    """Mean ± standard error, marked where the paper prints something else for this method."""
    mark = " †" if str(result.cell.method) in (*paper.METHODS, "edm:paper") and paper.differs(result) else ""
    return tables.with_error(result) + mark


def printed_rows(results: Sequence[Result]) -> list[str]:
    """The paper's printed rows of an environment."""
    sizes = sorted({result.cell.size for result in results})
    lines = []
    for method in paper.METHODS:
        cells = [paper.printed(results[0].cell.environment, size, method) for size in sizes]
        texts = [f"*{cell.mean:.3f} ± {cell.standard_error:.3f}*" if cell else "" for cell in cells]
        words = NAMES[method].split(" (")[0]
        lines.append(f"| *printed in the paper: {words}* | " + " | ".join(texts) + " |")
    return lines


def chosen() -> str:
    """What the runs chose on their held-out demonstrations, counted over the runs of a cell."""
    lines = ["| setting | method | chosen (runs) |", "| --- | --- | --- |"]
    for setting in settings():
        for result in (result for result in read(setting) if result.chosen):
            words = ", ".join(f"{choice} ({count})" for choice, count in Counter(result.chosen).most_common())
            lines.append(f"| {setting}, n = {result.cell.size} | {name_of(str(result.cell.method))} | {words} |")
    return "\n".join(lines) + "\n"


def seconds() -> str:
    """What a run of each method took in the grid, compilation and choosing of settings included, by task."""
    lines = ["| method | task | updates | choosing settings, s a run | training, s a run | runs at once |"]
    lines.append("| --- | --- | --- | --- | --- | --- |")
    tasks: dict[tuple[str, str], list[Result]] = {}
    for result in (result for setting in settings() for result in read(setting) if not result.cell.unlabelled):
        if result.made_by["platform"] != "cpu":
            task = f"{result.cell.environment}, thin {result.cell.thin}"
            tasks.setdefault((task, str(result.cell.method)), []).append(result)
    for (task, method), cells in sorted(tasks.items(), key=lambda entry: (entry[0][0], place_of(entry[0][1]))):
        runs = sum(len(result.cell.runs) for result in cells)
        taken = {name: sum(result.seconds[name] for result in cells) / runs for name in ("selection", "training")}
        selection = f"{taken['selection']:.3f}" if taken["selection"] > 0.0005 else ""
        updates, together = cells[0].cell.updates, max(result.made_by["runs_per_program"] for result in cells)
        words = [name_of(method), task, f"{updates:,}", selection, f"{taken['training']:.3f}", str(together)]
        lines.append("| " + " | ".join(words) + " |")
    return "\n".join(lines) + "\n"


def difference_table(results: Sequence[Result]) -> str:
    """Methods down, sizes across: difference from BC with interval and verdict."""
    rows = compare.differences(results)
    sizes = sorted({row["size"] for row in rows})
    lines = [["method", *map(str, sizes)], ["---"] * (len(sizes) + 1)]
    for method in dict.fromkeys(row["method"] for row in rows):
        mine = {row["size"]: row for row in rows if row["method"] == method}
        lines.append([method, *(difference(mine[size]) if size in mine else "" for size in sizes)])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def difference(row: dict[str, Any]) -> str:
    """+0.049 [+0.012, +0.090], in bold where the difference is clear."""
    text = f"{row['mean']:+.3f} [{row['low']:+.3f}, {row['high']:+.3f}]"
    return f"**{text}**" if compare.verdict(row) in ("above", "below") else text


def inserted(page: Path, *parts: tuple[str, str]) -> str:
    """The text of a page with what stands between each pair of marks exchanged."""
    text = page.read_text()
    for mark, content in parts:
        start, end = f"<!-- {mark} -->\n", f"<!-- end of {mark} -->"
        before, rest = text.split(start)
        text = before + start + content + end + rest.split(end)[1]
    return text


def returns() -> str:
    """Random networks and demonstrators, beside the paper's."""
    head = ["environment", "random network", "printed", "uniform actions", "demonstrator", "return", "printed"]
    lines = ["| " + " | ".join(head) + " |", "| --- " * len(head) + "|"]
    for name, measured in environments.returns().items():
        theirs = paper.printed_returns().get(name, {})
        words = [name, spread(measured["random network"]), printed_spread(theirs, "random")]
        for who, modes in measured["demonstrators"].items():
            for mode, found in modes.items():
                row = [*words, spread(measured.get("uniform actions")), f"{who} {mode}", spread(found)]
                lines.append("| " + " | ".join([*row, printed_spread(theirs, "demonstrator")]) + " |")
    return "\n".join(lines) + "\n"


def spread(found: dict[str, float] | None) -> str:
    """Mean ± standard deviation, where it was measured."""
    return "" if found is None else f"{found['mean']:.1f} ± {found['sd']:.1f}"


def printed_spread(theirs: dict[str, str], what: str) -> str:
    """The same, as the paper prints it."""
    return f"{float(theirs[f'{what}_mean']):.1f} ± {float(theirs[f'{what}_sd']):.1f}" if theirs else ""


def pages() -> dict[Path, str]:
    """What the pages should say."""
    return {
        ROOT / "README.md": inserted(ROOT / "README.md", ("headline", headline())),
        ROOT / "docs" / "results.md": inserted(
            ROOT / "docs" / "results.md", ("tables", full()), ("chosen", chosen()), ("seconds", seconds())
        ),
        ROOT / "docs" / "environments.md": inserted(ROOT / "docs" / "environments.md", ("returns", returns())),
        ROOT / "docs" / "reproduction.md": inserted(
            ROOT / "docs" / "reproduction.md", ("standing", standing()), ("states", states()), ("ends", ends())
        ),
    }


def main() -> None:
    """Write, or check."""
    if "--check" in sys.argv:
        stale = [str(page.relative_to(ROOT)) for page, text in pages().items() if page.read_text() != text]
        sys.exit(f"not what the runs say: {', '.join(stale)}; run python results/publish.py" if stale else 0)
    for page, text in pages().items():
        page.write_text(text)
    paths = [HERE / f"{name}.parquet" for name in SHOWN]
    everything = [result for path in paths for result in store.read_all([path], episodes=False) if published(result)]
    plain = [result for result in everything if not result.cell.unlabelled]
    drawn = [result for method in DRAWN for result in plain if str(result.cell.method) == method]
    drawn.sort(key=lambda result: SHOWN.index(result.cell.setting))
    main = [result for result in everything if str(result.cell.method) in MAIN]
    followed = [result for result in main if result.cell.size == 1 and not result.cell.unlabelled and result.curves]
    plots = {
        "return_against_size": figures.against_size(drawn, NAMES, printed=True),
        "profile": figures.profile(drawn, NAMES),
        "semi_supervised": figures.semi_supervised(main, NAMES),
        "diagnostics": figures.diagnostics([r for r in followed if len(r.points) > 1], folder.DIAGNOSED, NAMES),
    }
    for name, figure in plots.items():
        figures.write(figure, ROOT / "docs" / "figures" / f"{name}.png")


if __name__ == "__main__":
    main()
