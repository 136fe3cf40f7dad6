"""Rebuilds every published table and figure from the runs in this folder.

python results/publish.py            write the figures, and the tables into README.md and docs/results.md
python results/publish.py --check    fail if they are not what the runs say
"""

import csv
import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import numpy as np

from sbil.experiments import Cell, Method, Result
from sbil.reports import figures, tables

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
NAMES = {
    "bc": "BC",
    "bc:decay": "BC, weight decay 1",
    "edm": "EDM (our default)",
    "edm:released": "EDM, released code",
    "edm:paper": "EDM, as printed",
    "edm:paper+start=unit": "EDM, as printed, chains from (-1, 1)",
}
METHODS = [name for name in NAMES if "+" not in name]  # those of the README; docs/results.md has all
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


def read(path: Path) -> list[Result]:
    """The cells of a file with one line a run."""
    with path.open() as file:
        rows = list(csv.DictReader(file))
    return [result(list(lines)) for _, lines in groupby(rows, key=lambda row: (row["method"], row["size"]))]


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
    """Every table, as the paper prints them, and the paired differences from BC."""
    parts = []
    for path in sorted(HERE.glob("*.csv")):
        results = read(path)
        parts.append(tables.markdown(results, tables.with_error))
        parts.append("Difference from BC, run by run [95 % interval]:\n")
        parts.append(difference_table(results))
    return named("\n".join(parts))


def difference_table(results: Sequence[Result]) -> str:
    """Methods down, sizes across: difference from BC with interval and verdict."""
    rows = tables.differences(results)
    sizes = sorted({row["size"] for row in rows})
    lines = [["method", *map(str, sizes)], ["---"] * (len(sizes) + 1)]
    for method in dict.fromkeys(row["method"] for row in rows):
        mine = {row["size"]: row for row in rows if row["method"] == method}
        lines.append([method, *(difference(mine[size]) for size in sizes)])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def difference(row: dict[str, float]) -> str:
    """+0.049 [+0.012, +0.090], in bold where the difference is clear."""
    text = f"{row['mean']:+.3f} [{row['low']:+.3f}, {row['high']:+.3f}]"
    return f"**{text}**" if tables.verdict(row) in ("above", "below") else text


def inserted(page: Path, mark: str, content: str) -> str:
    """The text of a page with what stands between its two marks exchanged."""
    start, end = f"<!-- {mark} -->\n", f"<!-- end of {mark} -->"
    text = page.read_text()
    before, rest = text.split(start)
    return before + start + content + end + rest.split(end)[1]


def pages() -> dict[Path, str]:
    """What the pages should say."""
    return {
        ROOT / "README.md": inserted(ROOT / "README.md", "headline", headline()),
        ROOT / "docs" / "results.md": inserted(ROOT / "docs" / "results.md", "tables", full()),
    }


def main() -> None:
    """Write, or check."""
    if "--check" in sys.argv:
        stale = [str(page.relative_to(ROOT)) for page, text in pages().items() if page.read_text() != text]
        sys.exit(f"not what the runs say: {', '.join(stale)}; run python results/publish.py" if stale else 0)
    for page, text in pages().items():
        page.write_text(text)
    drawn = [result for name in SHOWN for result in read(HERE / f"{name}.csv") if str(result.cell.method) in METHODS]
    figures.write(figures.against_size(drawn, NAMES), ROOT / "docs" / "figures" / "return_against_size.png")


if __name__ == "__main__":
    main()
