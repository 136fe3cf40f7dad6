"""The tables of the study in docs/understanding_edm.md: errors, scores, the rule that chose the default."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from scipy.stats import spearmanr

from sbil.experiments import Result
from sbil.reports.tables import bracketed
from sbil.text import markdown_table
from studies.remedies import final
from studies.remedies.stored import (
    COLUMNS,
    DQN,
    FINAL,
    PRINTED,
    STUDY,
    Cells,
    Of,
    compared,
    diverged_of,
    errors,
    load,
    scores,
    side,
    spoken,
)
from studies.remedies.study import LISTS, SIZES

WORDS = {
    "controls": "Controls: no state term",
    "chains": "One by one: chains",
    "other-chains": "One by one: other chains",
    "without-chains": "One by one: without chains",
    "together": "Together",
}
LEFT_OUT = {
    "without CartPole's DQN": "CartPole-v1-dqn",
    "without CartPole": "CartPole",
    "without Acrobot": "Acrobot",
    "without LunarLander": "LunarLander",
}
Ranked = tuple[int, float, int, str]  # see `ranked`


def for_page() -> dict[str, str]:
    """Return the tables of docs/understanding_edm.md by their marks."""
    found = load()
    study, judging = found[STUDY], found[FINAL]
    exact = final.in_float32(judging)
    return {
        "counts": counts(study),
        "errors": table(study, "error"),
        "scores": table(study, "score"),
        "wider": final.wider(study),
        "guides": guides(study),
        "rule": ranking(study),
        "final": final.judgement(judging),
        "final in words": final.in_words(judging),
        "final in float32": final.judgement(exact, [DQN]) + "\n" + final.by_its_state_term(exact, DQN),
        "float32 in words": final.in_words(exact),
        "choices": final.choices(judging),
        "state term": final.state_term(judging),
        "every state": final.every_state(judging),
        "more states": final.more_states(),
        "stability": final.stability(found),
    }


def counts(cells: Cells) -> str:
    """Say how many runs there are, and how many of them diverged."""
    printed, runs = diverged_of(cells[PRINTED].values())
    others, other_runs = diverged_of(r for method, mine in cells.items() if method != PRINTED for r in mine.values())
    forms = sum(method != PRINTED and has_state_term(method) for method in cells)
    return (
        f"Runs: {runs + other_runs:,}. As printed, {printed:,} of {runs:,} diverge; of the {other_runs:,} others, "
        f"{forms} forms of the state term and the controls, {others:,}.\n"
    )


def table(cells: Cells, measure: str) -> str:
    """Write methods down and settings across: the mean over sizes, and the number of clear differences."""
    better, worse = ("below", "above") if measure == "error" else ("above", "below")
    head = ["method", *COLUMNS.values(), "all", f"clearly {better} BC", f"clearly {worse} BC", "diverged"]
    rows = [head]
    for name, methods in LISTS.items():
        rows.append([f"**{WORDS[name]}**", *[""] * (len(head) - 1)])
        rows += [[spoken(method), *row(cells.get(method, {}), cells["bc"], measure, better)] for method in methods]
    return markdown_table(rows, numbers=True)


def row(mine: Of, bc: Of, measure: str, better: str) -> list[str]:
    """Return the entries of a method."""
    form, values = (".0%", errors) if measure == "error" else ("+.3f", scores)
    found = [compared(mine, bc, settings, measure) for settings in (*([s] for s in COLUMNS), list(COLUMNS))]
    words = ["" if one is None else f"{one.value:{form}}" for one in found]
    if not mine:
        return [*words, "", "", ""]
    if (one := found[-1]) and mine is not bc:
        words[-1] = bracketed(one, form)
    sides = [side(mine[key], bc[key], values) for key in mine if mine is not bc]
    clear = sides.count(better), sum(one in ("above", "below") and one != better for one in sides)
    diverged, runs = diverged_of(mine.values())
    lost = f"{diverged} of {runs:,}" if diverged else "0"
    return [*words, *(f"{count} of {len(mine)}" for count in clear), lost]


def has_state_term(method: str) -> bool:
    """Return whether a method of the study is a form of EDM and not a control."""
    return not method.startswith("bc") and "weight=0" not in method.split("+")


def ranked(cells: Cells, settings: Sequence[str]) -> list[Ranked]:
    """Order methods by the rule: (cells with clearly more errors than BC, share of BC's errors, cells with fewer)."""
    bc, found = cells["bc"], []
    for method, mine in cells.items():
        share = compared(mine, bc, settings, "error")
        if share and method != "bc" and not any(result.diverged for result in mine.values()):
            sides = [side(mine[key], bc[key], errors) for key in mine if key[0] in settings]
            found.append((sides.count("above"), share.value, sides.count("below"), method))
    return sorted(found)


def ranking(cells: Cells, shown: int = 6) -> str:
    """Apply the rule of `studies.remedies.study`: show the first candidates, and the controls beside them."""
    found, number = ranked(cells, list(COLUMNS)), len(cells["bc"])
    rows = [["", "clearly more errors than BC", "share of BC's errors", "clearly fewer"]]
    for title, of in (("**Candidates**", True), ("**Controls, no candidates**", False)):
        some = [row for row in found if has_state_term(row[3]) == of]
        rows.append([f"{title}, the first {shown} of {len(some)}", "", "", ""])
        rows += [_ranked_row(row, number) for row in some[:shown]]
    rows.append(["**The first candidate if some cells are left out**", "", "", ""])
    for title, left_out in LEFT_OUT.items():
        settings = [setting for setting in COLUMNS if not setting.startswith(left_out)]
        first = next(row for row in ranked(cells, settings) if has_state_term(row[3]))
        rows.append(_ranked_row(first, len(settings) * len(SIZES), f"{title}: "))
    return markdown_table(rows, numbers=True)


def _ranked_row(row: Ranked, number: int, title: str = "") -> list[str]:
    above, share, below, method = row
    return [title + spoken(method), f"{above} of {number}", f"{share:.1%}", f"{below} of {number}"]


def guides(cells: Cells) -> str:
    """Show how well each held-out measure orders the methods of the study by what they scored."""
    methods = [mine for method, mine in cells.items() if method != PRINTED]
    rows = [["rank correlation with the score, by trajectories", *(str(size) for size in SIZES)]]
    for setting, name in COLUMNS.items():
        for measure, words in {"error": "fewer errors", "log_loss": "smaller log-loss"}.items():
            row = [
                _guided([mine[setting, size] for mine in methods if (setting, size) in mine], measure) for size in SIZES
            ]
            rows.append([f"{name}: {words}", *row])
    return markdown_table(rows, numbers=True)


def _guided(results: Sequence[Result], measure: str) -> str:
    """Return the rank correlation of a held-out measure with the score; nothing if most methods score the same."""
    held_out = [-result.metrics[f"held_out_{measure}"].mean() for result in results]
    live = [result.scores.mean() for result in results]
    same = Counter(np.round(live, 6)).most_common(1)[0][1] > len(live) / 2
    return "" if same else f"{spearmanr(held_out, live).statistic:+.2f}"
