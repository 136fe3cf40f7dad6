"""The study of EDM's remedies: its runs, its tables and its figure of diagnostics.

python results/remedies.py runs/          take the cells of a folder that `python -m sbil.experiments.remedies` filled
python results/remedies.py --cpu runs/    the same of cells that were run on a CPU, beside the others and not among them
python results/remedies.py                write the tables of docs/understanding_edm.md and the figure
python results/remedies.py --check        fail if the tables are not what the runs say

Kept of a run: its mean return, how it met unseen decisions, when it diverged; of the methods that the figure shows also
the diagnostics along training. One file an environment, in remedies/.
"""

import re
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from publish import inserted
from scipy.stats import spearmanr

from sbil.experiments import Result
from sbil.experiments.remedies import BARE, LISTS, SETTINGS, SIZES, WARM
from sbil.experiments.store import read, read_all, write
from sbil.reports import compare, figures
from sbil.statistics import Interval, difference, estimate, ratio

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "understanding_edm.md"
FIGURE = HERE.parent / "docs" / "figures" / "remedies.png"
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
WORDS = {
    "controls": "Controls: no state term",
    "chains": "One by one: chains",
    "other-chains": "One by one: other chains",
    "without-chains": "One by one: without chains",
    "together": "Together",
}
EVERY_STATE = ", every state"
CHOSEN_DECAY, CHOSEN_WEIGHT = "bc+weight_decay=0/0.1/0.3/1/3/10", "edm_robust+weight=0/1"
JUDGED = {  # the final table: what is set beside BC
    "bc:decay": "BC, weight decay 1",
    CHOSEN_DECAY: "BC, decay selected",
    "edm_robust+weight=0": "BC, batch 256, averaged",
    "edm:released": "EDM, released",
    "edm_robust": "EDM, robust",
    CHOSEN_WEIGHT: "EDM, robust or not, selected",
    f"edm:released{EVERY_STATE}": "EDM, released, all states",
    f"edm_robust{EVERY_STATE}": "EDM, robust, all states",
}
DRAWN = {"bc:decay": "#d55e00", "edm_robust+weight=0": "#999999", "edm:released": "black", "edm_robust": "#0072b2"}
FILLED = {"grey": "clearly above or below BC", "white": "not clear"}
FIRST = "EDM, robust, on the draws of the selected one"
LEFT_OUT = {
    "without CartPole's DQN": "CartPole-v1-dqn",
    "without CartPole": "CartPole",
    "without Acrobot": "Acrobot",
    "without LunarLander": "LunarLander",
}
WIDER = {
    "bc+hidden=128x128": "BC, 128 units",
    "edm_robust": "robust",
    "edm_robust+hidden=128x128": "robust, 128 units",
}
WIDER_SIZES = (3,)
MORE = (1, 3, 7)  # trajectories of which only the states are shown
LOW = 0.95  # below it BC leaves something to be had
STUDY, FINAL = 0, 1  # seeds
CPU = "-cpu"  # kind of file: run on a CPU, so that demonstrations of CartPole and Acrobot are others
Of = dict[tuple[str, int], Result]  # the cells of a method, by setting and size
Cells = dict[str, Of]
Values = Callable[[Result], np.ndarray]


def take(folders: Sequence[str], kind: str = "") -> None:
    """Add cells of folders to the files, in place of older ones; not those that today's settings would not give.

    Cells are compared with BC of the same demonstrations. Where demonstrations have changed since (fingerprints
    have), all cells of a setting and seed are taken anew or none.
    """
    found = read_all(map(Path, folders), episodes=False)
    for environment in sorted({result.cell.environment for result in found}):
        path = HERE / "remedies" / f"{environment}{kind}.parquet"
        old = {str(result.cell): result for result in (read(path) if path.exists() else [])}
        new = {str(r.cell): r for r in found if r.cell.environment == environment and _of_today(r)}
        fresh = {(result.cell.setting, result.cell.seed) for result in new.values()}
        left = [r for name, r in old.items() if name not in new and (r.cell.setting, r.cell.seed) in fresh]
        if others := [str(r.cell) for r in left if not _of_today(r)]:
            sys.exit(f"{len(others)} cells of {path.name} have other demonstrations, {others[0]} for one; run them too")
        kept = {name: result.summary() if kind else slim(result) for name, result in (old | new).items()}
        path.parent.mkdir(exist_ok=True)
        write(path, [kept[name] for name in sorted(kept)])
        stale = sum(r.cell.environment == environment for r in found) - len(new)
        print(f"{path.name}: {len(new)} cells of {len(kept)}" + f"; {stale} of other settings left out" * (stale > 0))


def _of_today(result: Result) -> bool:
    return bool(result.fingerprint == result.cell.fingerprint)


def slim(result: Result) -> Result:
    """A result without what neither tables nor figure need."""
    if str(result.cell.method) in DIAGNOSED and not result.cell.seed:
        return result
    return replace(result, curves={}, points=np.array([], int))


def load(kind: str = "") -> dict[int, Cells]:
    """Every cell by seed: 0 chose the default (STUDY), 1 judges it (FINAL), 2 asks only whether it diverges."""
    found: dict[int, Cells] = {}
    for environment in SETTINGS:
        path = HERE / "remedies" / f"{environment}{kind}.parquet"
        for result in read(path) if path.exists() or not kind else []:
            cell = result.cell
            name = str(cell.method) + (EVERY_STATE if cell.every_state else "")
            name += f", states of {cell.unlabelled} more" if cell.unlabelled else ""
            found.setdefault(cell.seed, {}).setdefault(name, {})[cell.setting, cell.size] = result
    return found


def errors(result: Result) -> np.ndarray:
    """[draws, initialisations], the share of unseen decisions that a run would have taken otherwise."""
    return result.held_out["error"].reshape(result.scores.shape)


def scores(result: Result) -> np.ndarray:
    """[draws, initialisations], what a run scored live."""
    return result.scores


def side(mine: Result, other: Result, values: Values = scores) -> str:
    """On which side of another method's a method's values clearly lie: "above", "below", or other words."""
    return compare.verdict(compare.difference(beyond(mine, other, values)))


def beyond(mine: Result, other: Result, values: Values = scores) -> np.ndarray:
    """[draws, initialisations], a method's values less another's, on the draws that both have."""
    ours, theirs = values(mine), values(other)
    draws = min(len(ours), len(theirs))
    return ours[:draws] - theirs[:draws]


def compared(mine: Of, bc: Of, settings: Sequence[str], measure: str, sizes: Sequence[int] = SIZES) -> Interval | None:
    """A method beside BC over all sizes of some settings; nothing where a cell is missing."""
    keys = [(setting, size) for setting in settings for size in sizes]
    if any(key not in mine for key in keys):
        return None
    values = errors if measure == "error" else scores
    draws = min(len(of[key].scores) for of in (mine, bc) for key in keys)
    ours, theirs = (compare.strata([of[key] for key in keys], lambda r: values(r)[:draws]) for of in (mine, bc))
    return ratio(ours, theirs) if measure == "error" else difference(ours, theirs)


def table(cells: Cells, measure: str) -> str:
    """Methods down, settings across: of each the mean over sizes; and in how many cells the difference is clear."""
    bc = cells["bc"]
    better, worse = ("below", "above") if measure == "error" else ("above", "below")
    head = ["method", *COLUMNS.values(), "all", f"clearly {better} BC", f"clearly {worse} BC", "diverged"]
    rows = [head]
    for name, methods in LISTS.items():
        rows.append([f"**{WORDS[name]}**"] + [""] * (len(head) - 1))
        rows += [[spoken(method), *row(cells.get(method, {}), bc, measure)] for method in methods]
    return lines_of(rows)


def row(mine: Of, bc: Of, measure: str) -> list[str]:
    """The entries of a method."""
    found = [compared(mine, bc, settings, measure) for settings in (*([s] for s in COLUMNS), list(COLUMNS))]
    if measure == "error":
        words = ["" if one is None else f"{one.value:.0%}" for one in found]
        sides = [side(mine[key], bc[key], errors) for key in mine if mine is not bc]
        better, worse = sides.count("below"), sides.count("above")
    else:
        words = ["" if one is None else f"{one.value:+.3f}" for one in found]
        sides = [side(mine[key], bc[key]) for key in mine if mine is not bc]
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
    found = load()
    study, final = found[STUDY], found[FINAL]
    return [
        ("counts", counts(study)),
        ("errors", table(study, "error")),
        ("scores", table(study, "score")),
        ("wider", wider(study)),
        ("guides", guides(study)),
        ("rule", ranking(study)),
        ("final", verdict(final)),
        ("final in words", in_words(final)),
        ("final in float32", verdict(in_float32(final), [DQN]) + "\n" + by_its_state_term(in_float32(final), DQN)),
        ("float32 in words", in_words(in_float32(final))),
        ("choices", choices(final)),
        ("state term", state_term(final)),
        ("every state", every_state(final)),
        ("more states", more_states()),
        ("stability", stability(found)),
    ]


def lines_of(rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown: the first row is its head."""
    rule = ["---"] + ["---:"] * (len(rows[0]) - 1)
    return "\n".join("| " + " | ".join(row) + " |" for row in (rows[0], rule, *rows[1:])) + "\n"


def has_state_term(method: str) -> bool:
    """Whether a method of the study is a form of EDM, and not a control."""
    return not method.startswith("bc") and "weight=0" not in method.split("+")


def ranked(cells: Cells, settings: Sequence[str]) -> list[tuple[int, float, int, str]]:
    """Methods by the rule: cells with clearly more errors than BC, their share of BC's, cells with clearly fewer."""
    bc, found = cells["bc"], []
    for method, mine in cells.items():
        share = compared(mine, bc, settings, "error")
        if share and method != "bc" and not any(result.diverged for result in mine.values()):
            sides = [side(mine[key], bc[key], errors) for key in mine if key[0] in settings]
            found.append((sides.count("above"), share.value, sides.count("below"), method))
    return sorted(found)


def ranking(cells: Cells, shown: int = 6) -> str:
    """The rule of `sbil.experiments.remedies`, applied: the first of the candidates, and the controls beside them."""
    found, number = ranked(cells, list(COLUMNS)), len(cells["bc"])
    rows = [["", "clearly more errors than BC", "errors of BC's", "clearly fewer"]]
    for title, of in (("**Candidates**", True), ("**Controls, no candidates**", False)):
        some = [row for row in found if has_state_term(row[3]) == of]
        rows.append([f"{title}, the first {shown} of {len(some)}", "", "", ""])
        rows += [
            [spoken(method), f"{above} of {number}", f"{share:.1%}", f"{below} of {number}"]
            for above, share, below, method in some[:shown]
        ]
    rows.append(["**The first candidate, were some cells left out**", "", "", ""])
    for title, left_out in LEFT_OUT.items():
        settings = [setting for setting in COLUMNS if not setting.startswith(left_out)]
        above, share, below, method = next(row for row in ranked(cells, settings) if has_state_term(row[3]))
        number = len(settings) * len(SIZES)
        rows.append([f"{title}: {spoken(method)}", f"{above} of {number}", f"{share:.1%}", f"{below} of {number}"])
    return lines_of(rows)


def guides(cells: Cells) -> str:
    """How well each held-out measure orders the methods of the study by what they scored."""
    methods = [method for method in cells if method != PRINTED]
    rows = [["rank correlation with the score, by trajectories", *(str(size) for size in SIZES)]]
    for setting, name in COLUMNS.items():
        for measure, words in {"error": "fewer errors", "log_loss": "smaller log-loss"}.items():
            row = [f"{name}: {words}"]
            for size in SIZES:
                some = [cells[method][setting, size] for method in methods if (setting, size) in cells[method]]
                held_out = [-result.held_out[measure].mean() for result in some]
                live = [result.scores.mean() for result in some]
                same = Counter(np.round(live, 6)).most_common(1)[0][1] > len(live) / 2  # most at the bottom
                row.append("" if same else f"{spearmanr(held_out, live).statistic:+.2f}")
            rows.append(row)
    return lines_of(rows)


def verdict(cells: Cells, settings: Sequence[str] = tuple(COLUMNS)) -> str:
    """The final table: new demonstrations, draws and networks, a default that no longer changes."""
    bc, names = cells["bc"], [name for name in JUDGED if name in cells]
    rows = [["setting", "trajectories", "BC", *(JUDGED[name] for name in names)]]
    for setting, size in ((setting, size) for setting in settings for size in SIZES):
        row = [COLUMNS[setting], str(size)]
        for name in ("bc", *names):
            row.append(judged(cells[name].get((setting, size)), None if name == "bc" else bc[setting, size]))
        rows.append(row)
    return lines_of(rows)


def in_float32(cells: Cells) -> Cells:
    """The final cells with the DQN's of a CPU in place of those that a GPU rounded; of methods that were run so."""
    return {name: {**cells[name], **of} for name, of in load(CPU)[FINAL].items()}


def judged(mine: Result | None, bc: Result | None) -> str:
    """A score, or how far it is from BC's; bold where that is clear."""
    if mine is None:
        return ""
    found = estimate(mine.scores if bc is None else beyond(mine, bc))
    if bc is None:
        return f"{found.mean:.3f} [{found.low:.3f}, {found.high:.3f}]"
    text = f"{found.mean:+.3f} [{found.low:+.3f}, {found.high:+.3f}]"
    return f"**{text}**" if side(mine, bc) in ("above", "below") else text


def in_words(cells: Cells) -> str:
    """What the final table comes to, a line a method."""
    bc = cells["bc"]
    low = [key for key in bc if bc[key].scores.mean() < LOW]
    head = ["", "draws", "cells", "mean difference", "without CartPole", f"clearly above, where BC is below {LOW}"]
    rows = [[*head, "clearly below, anywhere", "the same by Holm", "diverged"]]
    methods = {words: cells[name] for name, words in JUDGED.items() if name in cells}
    if CHOSEN_WEIGHT in cells:
        methods[FIRST] = {key: halved(result) for key, result in cells[DEFAULT].items()}
    for words, mine in methods.items():
        settings = [setting for setting in COLUMNS if (setting, SIZES[0]) in mine]
        elsewhere = [setting for setting in settings if "CartPole" not in setting]
        known = [key for key in low if key in mine]
        counts = []
        for sides in (by_cell(mine, bc), by_cell(mine, bc, holm=True)):
            counts.append((sum(sides[key] == "above" for key in known), list(sides.values()).count("below")))
        runs = sum(len(result.cell.runs) for result in mine.values())
        rows.append(
            [
                words,
                str(min(len(result.scores) for result in mine.values())),
                str(len(mine)),
                *(spoken_interval(compared(mine, bc, some, "score")) for some in (settings, elsewhere)),
                f"{counts[0][0]} of {len(known)}",
                f"{counts[0][1]} of {len(mine)}",
                f"{counts[1][0]} and {counts[1][1]}",
                f"{sum(result.diverged for result in mine.values())} of {runs:,}",
            ]
        )
    return lines_of(rows)


def by_cell(mine: Of, bc: Of, holm: bool = False) -> dict[tuple[str, int], str]:
    """On which side of BC's the scores of each cell lie; by Holm, if all cells of the method are one question."""
    found = {key: compare.difference(beyond(mine[key], bc[key])) for key in mine}
    if holm:
        reached = 0.0
        for rank, key in enumerate(sorted(found, key=lambda key: found[key]["p"])):
            reached = max(reached, found[key]["p"] * (len(found) - rank))
            found[key]["p"] = min(reached, 1.0)
    return {key: compare.verdict(row) for key, row in found.items()}


def spoken_interval(found: Interval | None, form: str = "+.3f") -> str:
    """A value and its 95 % interval; a cell that is missing is a mistake."""
    assert found, "a cell is missing"
    return f"{found.value:{form}} [{found.low:{form}}, {found.high:{form}}]"


def halved(result: Result) -> Result:
    """The first half of a cell's draws."""
    draws = result.cell.draws // 2
    runs = draws * result.cell.initialisations
    return replace(
        result,
        cell=replace(result.cell, draws=draws),
        returns=result.returns[:runs],
        diverged_at=result.diverged_at[:runs],
        held_out={name: values[:runs] for name, values in result.held_out.items()},
    )


def choices(cells: Cells) -> str:
    """What runs chose that chose for themselves."""
    ours = [choice for result in cells[CHOSEN_WEIGHT].values() for choice in result.chosen]
    few = [r for (setting, size), r in cells[CHOSEN_DECAY].items() if "LunarLander" in setting and size <= 3]
    decays = [float(choice.partition("=")[2]) for result in few for choice in result.chosen]
    large = sum(decay >= 3 for decay in decays)
    return (
        f"Between the default and the same without its state term, {ours.count('weight=1'):,} of {len(ours):,} runs "
        f"chose the default. Among decays from 0 to 10, on LunarLander with 1 or 3 trajectories {large} of "
        f"{len(decays)} chose 3 or 10. In score, the default less weight decay 1 is "
        f"{spoken_interval(compared(cells[DEFAULT], cells['bc:decay'], list(COLUMNS), 'score'))} over all cells.\n"
    )


def state_term(cells: Cells) -> str:
    """The default beside the same without its state term: errors at unseen decisions, and scores."""
    mine, without = cells[DEFAULT], cells[f"{DEFAULT}+weight=0"]
    rows = [["", *(f"errors, n = {size}" for size in SIZES), "errors, all sizes", "score, difference"]]
    for setting, name in COLUMNS.items():
        row = [name]
        for size in SIZES:
            one, other = mine[setting, size], without[setting, size]
            share = f"{errors(one).mean() / errors(other).mean():.0%}"
            row.append(f"**{share}**" if side(one, other, errors) in ("above", "below") else share)
        rows.append([*row, *both(mine, without, [setting])])
    elsewhere = [setting for setting in COLUMNS if "CartPole" not in setting]
    for name, settings in {"all": list(COLUMNS), "all but CartPole": elsewhere}.items():
        rows.append([name, *[""] * len(SIZES), *both(mine, without, settings)])
    return lines_of(rows)


def by_its_state_term(cells: Cells, setting: str) -> str:
    """Of a setting, the score of the default less that of the same without its state term, size by size."""
    without, found = cells[f"{DEFAULT}+weight=0"], []
    for size in SIZES:
        found.append(f"{judged(cells[DEFAULT][setting, size], without[setting, size])} (n = {size})")
    return f"The default less the same without its state term: {', '.join(found)}.\n"


def both(mine: Of, other: Of, settings: Sequence[str]) -> tuple[str, str]:
    """Errors as a share of another method's, and the difference in score."""
    share, gain = (compared(mine, other, settings, measure) for measure in ("error", "score"))
    return spoken_interval(share, ".0%"), spoken_interval(gain)


def wider(study: Cells) -> str:
    """Networks of twice the width, with the state term and without: errors as a share of BC's, scores less BC's."""
    ours = load(CPU)[STUDY]
    cells = {name: {**_of(study.get(name, {}), "LunarLander"), **ours.get(name, {})} for name in ("bc", *WIDER)}
    settings = {name: [setting] for setting, name in COLUMNS.items()}
    rows = [["", *(f"{what}, {words}" for what in ("errors", "score") for words in WIDER.values())]]
    for title, some in {**settings, "all": list(COLUMNS)}.items():
        row = [title]
        for measure, form in (("error", ".0%"), ("score", "+.3f")):
            for name in WIDER:
                row.append(spoken_interval(compared(cells[name], cells["bc"], some, measure, WIDER_SIZES), form))
        rows.append(row)
    wide, narrow = cells[f"{DEFAULT}+hidden=128x128"], cells[DEFAULT]
    share, gain = (compared(wide, narrow, list(COLUMNS), measure, WIDER_SIZES) for measure in ("error", "score"))
    diverged, runs = sum(r.diverged for r in wide.values()), sum(len(r.cell.runs) for r in wide.values())
    return lines_of(rows) + (
        f"\nOver all settings, the default with 128 units has {spoken_interval(share, '.0%')} of its errors with 64 "
        f"units; its score is higher by {spoken_interval(gain)}. {diverged} of {runs} runs diverged.\n"
    )


def _of(cells: Of, environment: str) -> Of:
    return {key: result for key, result in cells.items() if key[0].startswith(environment)}


def every_state(cells: Cells) -> str:
    """What the states bring whose decisions are thinned away: score minus that of the same method without them."""
    rows = [["", *(JUDGED[name] for name in ("edm:released", DEFAULT))]]
    thinned = {
        name: [setting] for setting, name in COLUMNS.items() if (setting, SIZES[0]) in cells[DEFAULT + EVERY_STATE]
    }
    for title, settings in {**thinned, "all": [setting for some in thinned.values() for setting in some]}.items():
        row = [title]
        for name in ("edm:released", DEFAULT):
            row.append(spoken_interval(compared(cells[name + EVERY_STATE], cells[name], settings, "score")))
        rows.append(row)
    return lines_of(rows)


def more_states() -> str:
    """What the states of further trajectories bring the default: score less that without them."""
    ours, (setting, size) = load(CPU)[STUDY], (PPO, 1)
    found = [
        f"{judged(ours[f'{DEFAULT}, states of {more} more'][setting, size], ours[DEFAULT][setting, size])} ({more})"
        for more in MORE
    ]
    alone = judged(ours[DEFAULT][setting, size], None)
    return (
        f"{COLUMNS[setting]} step, the decisions of one trajectory: {alone}; with the states of further ones, less "
        f"that: {', '.join(found)}.\n"
    )


def stability(found: dict[int, Cells]) -> str:
    """How many runs of the default there are, and how many of them diverged."""
    names = DEFAULT, DEFAULT + EVERY_STATE
    ours = [r for cells in found.values() for name in names for r in cells.get(name, {}).values()]
    runs, diverged = sum(len(r.cell.runs) for r in ours), sum(r.diverged for r in ours)
    tasks = {r.cell.environment for r in ours}
    sizes = sorted({r.cell.size for r in ours})
    return (
        f"Of {runs:,} runs of the default, {diverged} diverged ({', '.join(sorted(tasks))}; {len(COLUMNS)} settings; "
        f"{', '.join(map(str, sizes[:-1]))} and {sizes[-1]} trajectories; seeds 0, 1 and 2; with and without further "
        "states).\n"
    )


def counts(cells: Cells) -> str:
    """How many runs there are, and how many of them diverged."""
    printed = list(cells[PRINTED].values())
    others = [result for method, mine in cells.items() if method != PRINTED for result in mine.values()]
    runs = [sum(result.returns.shape[0] for result in some) for some in (printed, others)]
    diverged = [sum(result.diverged for result in some) for some in (printed, others)]
    methods = [method for method in cells if method != PRINTED and has_state_term(method)]
    return (
        f"Runs: {sum(runs):,}. As printed, {diverged[0]:,} of {runs[0]:,} diverge; of the {runs[1]:,} others, "
        f"{len(methods)} forms of the state term and the controls, {diverged[1]:,}.\n"
    )


def figure(cells: Cells) -> plt.Figure:
    """Along training: where three forms of EDM go, and who pulls."""
    shown = ((DQN, 3), ("LunarLander-v3-ppo-greedy-thin1", 3))
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


def final_figure(cells: Cells) -> plt.Figure:
    """The final table as a picture: what methods add to BC's score, by setting and size; filled where that is clear."""
    sheet, axes = plt.subplots(2, 4, figsize=(13, 6), layout="constrained")
    bc = cells["bc"]
    for axis, (setting, title) in zip(axes.flat, COLUMNS.items(), strict=False):
        for place, (name, colour) in enumerate(DRAWN.items()):
            for number, size in enumerate(SIZES):
                mine, base = cells[name][setting, size], bc[setting, size]
                found = estimate(beyond(mine, base))
                axis.errorbar(
                    number + 0.17 * (place - (len(DRAWN) - 1) / 2),
                    found.mean,
                    yerr=[[found.mean - found.low], [found.high - found.mean]],
                    fmt="o",
                    ms=5,
                    lw=1.3,
                    color=colour,
                    mfc=colour if side(mine, base) in ("above", "below") else "white",
                )
        axis.set_xticks(range(len(SIZES)), [f"{size}\n({bc[setting, size].scores.mean():.2f})" for size in SIZES])
        axis.axhline(0, color="black", lw=0.8)
        axis.grid(axis="y", alpha=0.3)
        axis.set_title(re.sub(r"(\d+th)", r"every \1 step", title), fontsize=10)
    for axis in axes[:, 0]:
        axis.set_ylabel("score minus BC's")
    last = axes.flat[-1]
    last.axis("off")
    marks = [plt.Line2D([], [], marker="o", color=colour, label=JUDGED[name]) for name, colour in DRAWN.items()]
    marks += [plt.Line2D([], [], marker="o", ls="", color="grey", mfc=c, label=t) for c, t in FILLED.items()]
    last.legend(handles=marks, loc="center", fontsize=9, frameon=False, title="mean and 95 % interval over 20 draws")
    sheet.supxlabel("trajectories (score of BC); every panel has its own scale", fontsize=10)
    return sheet


def main(words: Sequence[str]) -> None:
    """Take runs, write, or check."""
    if folders := [word for word in words if not word.startswith("--")]:
        take(folders, CPU if "--cpu" in words else "")
        return
    text = inserted(PAGE, *tables())
    if "--check" in words:
        sys.exit(0 if PAGE.read_text() == text else f"{PAGE.name} is not what the runs say; run results/remedies.py")
    PAGE.write_text(text)
    found = load()
    figures.write(figure(found[STUDY]), FIGURE)
    figures.write(final_figure(found[FINAL]), FIGURE.with_name("final.png"))


if __name__ == "__main__":
    main(sys.argv[1:])
