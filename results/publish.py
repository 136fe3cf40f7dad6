"""Rebuilds every published table and figure from the runs in this folder.

python results/publish.py            write the figures, and the tables into README.md and docs/results.md
python results/publish.py --check    fail if they are not what the runs say
"""

import csv
import json
import sys
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import numpy as np

from sbil.experiments import Cell, Method, Result
from sbil.reports import figures, paper, tables

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
DECAYS = "bc+weight_decay=0/0.1/0.3/1/3/10"
NAMES = {
    "bc": "BC",
    "bc:decay": "BC, weight decay 1",
    DECAYS: "BC, weight decay chosen",
    "rcal": "RCAL",
    "rcal+coefficient=1": "RCAL, coefficient 1",
    "rcal+coefficient=0/0.01/0.1/1": "RCAL, coefficient chosen",
    "rcal:iq_learn": "RCAL, squared (IQ-Learn)",
    "dsfn": "DSFN",
    "tril": "TRIL (warm start of DSFN)",
    "value_dice": "ValueDICE",
    "value_dice:long": "ValueDICE, 500,000 updates",
    "value_dice+actor_learning_rate=1e-4": "ValueDICE, actor 1e-4",
    "value_dice+actor_learning_rate=1e-3": "ValueDICE, actor 1e-3",
    "value_dice+actor_learning_rate=1e-4+gradient_penalty=1": "ValueDICE, actor 1e-4, penalty 1",
    "value_dice+straight_through=true": "ValueDICE, straight-through",
    "value_dice_exact": "ValueDICE, exact",
    "value_dice_exact+actor_learning_rate=1e-3": "ValueDICE, exact, actor 1e-3",
    "edm": "EDM (our default)",
    "edm:released": "EDM, released code",
    "edm:paper": "EDM, as printed",
    "edm:paper+start=unit": "EDM, as printed, chains from (-1, 1)",
    "edm+weight=0.1/1+weight_decay=0/1": "EDM, weight and decay chosen",
    "majority": "majority action",
    "random": "random network",
}
DRAWN = ("bc", DECAYS, "rcal", "dsfn", "value_dice", "edm", "edm:paper")  # in the figure
METHODS = (*DRAWN, "bc:decay")  # in the README; docs/results.md has all
SHOWN = (
    "CartPole-v1-ppo-sampled-thin20",
    "CartPole-v1-ppo-greedy-thin20",
    "CartPole-v1-dqn-greedy-thin20",
    "Acrobot-v1-ppo-sampled-thin1",
)
# The cells of the README's table: file, size, heading.
HEADLINE = (
    (SHOWN[0], 1, "CartPole, PPO sampled, n = 1"),
    (SHOWN[0], 3, "CartPole, PPO sampled, n = 3"),
    (SHOWN[1], 1, "CartPole, PPO greedy, n = 1"),
    (SHOWN[2], 3, "CartPole, DQN, n = 3"),
    (SHOWN[2], 15, "CartPole, DQN, n = 15"),
    (SHOWN[3], 1, "Acrobot, PPO sampled, n = 1"),
)


def rows_of(path: Path) -> list[dict[str, str]]:
    """The lines of a file, one a run."""
    with path.open() as file:
        return list(csv.DictReader(file))


def read(path: Path) -> list[Result]:
    """The cells of a file with one line a run."""
    cells = groupby(rows_of(path), key=lambda row: (row["method"], row["size"]))
    return [result(list(lines)) for _, lines in cells]


def result(rows: list[dict[str, str]]) -> Result:
    """One cell; a run's mean return stands for its episodes."""
    first = rows[0]
    draws = len({row["draw"] for row in rows})
    cell = Cell(
        first["environment"],
        first["demonstrator"],
        first["mode"],
        int(first["thin"]),
        Method.parse(first["method"]),
        int(first["size"]),
        draws,
        len(rows) // draws,
    )
    returns = np.array([[float(row["return"])] for row in rows])
    return Result(cell, returns, np.array([int(row["diverged_at"]) for row in rows]), {}, {})


def named(table: str) -> str:
    """A table with the methods' names written out, most particular first."""
    for name in sorted(NAMES, key=len, reverse=True):
        table = table.replace(f"| {name} |", f"| {NAMES[name]} |")
    return table


def headline() -> str:
    """The table of the README: means with 95 % intervals."""
    found = {(name, str(r.cell.method), r.cell.size): r for name in SHOWN for r in read(HERE / f"{name}.csv")}
    lines = [["", *(heading for _, _, heading in HEADLINE)], ["---"] * (len(HEADLINE) + 1)]
    for method, words in NAMES.items():
        if method in METHODS:
            lines.append([words, *(shown(found[name, method, size]) for name, size, _ in HEADLINE)])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def shown(result: Result) -> str:
    """A cell of the README's table; where all runs diverged, that is the result."""
    diverged = int((result.diverged_at >= 0).sum())
    return f"all {diverged} runs diverge" if diverged == len(result.cell.runs) else tables.with_interval(result)


def full() -> str:
    """Every table, as the paper prints them and with its printed rows, and the paired differences from BC."""
    parts = []
    for path in sorted(HERE.glob("*.csv")):
        results = read(path)
        table = tables.markdown(results, beside_the_paper).rstrip("\n")
        parts.append("\n".join([table, *printed_rows(results), ""]))
        parts.append("Difference from BC, run by run [95 % interval]:\n")
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
    """What the runs chose on their held-out demonstrations, counted over all sizes and runs of a setting."""
    lines = ["| setting | method | chosen (runs) |", "| --- | --- | --- |"]
    for path in sorted(HERE.glob("*.csv")):
        rows = [row for row in rows_of(path) if row["chosen"]]
        for method in dict.fromkeys(row["method"] for row in rows):
            for size in dict.fromkeys(row["size"] for row in rows if row["method"] == method):
                counts = Counter(r["chosen"] for r in rows if (r["method"], r["size"]) == (method, size))
                words = ", ".join(f"{choice} ({count})" for choice, count in counts.most_common())
                lines.append(f"| {path.stem}, n = {size} | {NAMES[method]} | {words} |")
    return "\n".join(lines) + "\n"


def seconds() -> str:
    """What a run of each method took in the grid."""
    lines = ["| method | task | updates | choosing settings, s a run | training, s a run | runs at once |"]
    lines.append("| --- | --- | --- | --- | --- | --- |")
    for key, time in json.loads((HERE / "benchmarks" / "grid-seconds.json").read_text()).items():
        if time["platform"] == "cpu":
            continue
        environment, _, thin, method = key.split(" ", 3)
        selection = f"{time['selection_seconds_a_run']:.3f}" if time["selection_seconds_a_run"] > 0.0005 else ""
        training = f"{time['training_seconds_a_run']:.3f}"
        task = f"{environment}, thin {thin}"
        cells = [NAMES[method], task, f"{time['updates']:,}", selection, training, str(time["runs_per_program"])]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def difference_table(results: Sequence[Result]) -> str:
    """Methods down, sizes across: difference from BC with interval and verdict."""
    rows = tables.differences(results)
    sizes = sorted({row["size"] for row in rows})
    lines = [["method", *map(str, sizes)], ["---"] * (len(sizes) + 1)]
    for method in dict.fromkeys(row["method"] for row in rows):
        mine = {row["size"]: row for row in rows if row["method"] == method}
        lines.append([method, *(difference(mine[size]) if size in mine else "" for size in sizes)])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def difference(row: dict[str, float]) -> str:
    """+0.049 [+0.012, +0.090], in bold where the difference is clear."""
    text = f"{row['mean']:+.3f} [{row['low']:+.3f}, {row['high']:+.3f}]"
    return f"**{text}**" if tables.verdict(row) in ("above", "below") else text


def inserted(page: Path, *parts: tuple[str, str]) -> str:
    """The text of a page with what stands between each pair of marks exchanged."""
    text = page.read_text()
    for mark, content in parts:
        start, end = f"<!-- {mark} -->\n", f"<!-- end of {mark} -->"
        before, rest = text.split(start)
        text = before + start + content + end + rest.split(end)[1]
    return text


def pages() -> dict[Path, str]:
    """What the pages should say."""
    return {
        ROOT / "README.md": inserted(ROOT / "README.md", ("headline", headline())),
        ROOT / "docs" / "results.md": inserted(
            ROOT / "docs" / "results.md", ("tables", full()), ("chosen", chosen()), ("seconds", seconds())
        ),
    }


def name_of(result: Result) -> str:
    """The file of a cell's setting."""
    cell = result.cell
    return f"{cell.environment}-{cell.demonstrator}-{cell.mode}-thin{cell.thin}"


def main() -> None:
    """Write, or check."""
    if "--check" in sys.argv:
        stale = [str(page.relative_to(ROOT)) for page, text in pages().items() if page.read_text() != text]
        sys.exit(f"not what the runs say: {', '.join(stale)}; run python results/publish.py" if stale else 0)
    for page, text in pages().items():
        page.write_text(text)
    every = [result for name in SHOWN for result in read(HERE / f"{name}.csv")]
    drawn = [result for method in DRAWN for result in every if str(result.cell.method) == method]
    drawn.sort(key=lambda result: SHOWN.index(name_of(result)))
    figures.write(figures.against_size(drawn, NAMES), ROOT / "docs" / "figures" / "return_against_size.png")


if __name__ == "__main__":
    main()
