"""The tables that judge the default of `edm_robust` on new demonstrations (docs/understanding_edm.md)."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import product

from sbil.experiments import Result
from sbil.experiments.environment import played
from sbil.reports.differences import difference, verdict
from sbil.text import markdown_table
from studies.remedies.stored import (
    COLUMNS,
    CPU,
    DEFAULT,
    EVERY_STATE,
    FINAL,
    PPO,
    STUDY,
    Cells,
    Of,
    beyond,
    diverged_of,
    judged,
    load,
    overall,
    share_of,
)
from studies.remedies.study import SIZES

CHOSEN_DECAY, CHOSEN_WEIGHT = "bc+weight_decay=0/0.1/0.3/1/3/10", "edm_robust+weight=0/1"
JUDGED = {  # the methods that the final table compares with BC
    "bc:decay": "BC, weight decay 1",
    CHOSEN_DECAY: "BC, decay selected",
    "edm_robust+weight=0": "BC, batch 256, averaged",
    "edm:released": "EDM, released",
    "edm_robust": "EDM, robust",
    CHOSEN_WEIGHT: "EDM, robust or not, selected",
    f"edm:released{EVERY_STATE}": "EDM, released, all states",
    f"edm_robust{EVERY_STATE}": "EDM, robust, all states",
}
FIRST = "EDM, robust, on the draws of the selected one"
WIDER = {
    "bc+hidden=128x128": "BC, 128 units",
    "edm_robust": "robust",
    "edm_robust+hidden=128x128": "robust, 128 units",
}
WIDER_SIZES = (3,)
MORE = (1, 3, 7)  # trajectories of which only the states are shown
LOW = 0.95  # a score of BC below this leaves room for improvement


def judgement(cells: Cells, settings: Sequence[str] = tuple(COLUMNS)) -> str:
    """Write the final table: new demonstrations, draws and networks, and a default that no longer changes."""
    bc, names = cells["bc"], [name for name in JUDGED if name in cells]
    rows = [["setting", "trajectories", "BC", *(JUDGED[name] for name in names)]]
    for key in product(settings, SIZES):
        others = (judged(cells[name].get(key), bc[key]) for name in names)
        rows.append([COLUMNS[key[0]], str(key[1]), judged(bc[key], None), *others])
    return markdown_table(rows, numbers=True)


def in_float32(cells: Cells) -> Cells:
    """Return the final cells with the DQN cells of a CPU in place of those that a GPU rounded."""
    return {name: {**cells[name], **of} for name, of in load(CPU)[FINAL].items()}


def in_words(cells: Cells) -> str:
    """Summarise the final table, one line per method."""
    head = ["", "draws", "cells", "mean difference", "without CartPole", f"clearly above, where BC is below {LOW}"]
    rows = [[*head, "clearly below, anywhere", "the same by Holm", "diverged"]]
    methods = {words: cells[name] for name, words in JUDGED.items() if name in cells}
    if CHOSEN_WEIGHT in cells:
        methods[FIRST] = {key: halved(result) for key, result in cells[DEFAULT].items()}
    return markdown_table([*rows, *([words, *_in_words(mine, cells["bc"])] for words, mine in methods.items())], True)


def _in_words(mine: Of, bc: Of) -> list[str]:
    settings = [setting for setting in COLUMNS if (setting, SIZES[0]) in mine]
    known = [key for key in mine if bc[key].scores.mean() < LOW]
    plain, holm = by_cell(mine, bc), by_cell(mine, bc, holm=True)
    above = [sum(sides[key] == "above" for key in known) for sides in (plain, holm)]
    below = [list(sides.values()).count("below") for sides in (plain, holm)]
    diverged, runs = diverged_of(mine.values())
    return [
        str(min(len(result.scores) for result in mine.values())),
        str(len(mine)),
        overall(mine, bc, settings, "score"),
        overall(mine, bc, elsewhere(settings), "score"),
        f"{above[0]} of {len(known)}",
        f"{below[0]} of {len(mine)}",
        f"{above[1]} and {below[1]}",
        f"{diverged} of {runs:,}",
    ]


def elsewhere(settings: Iterable[str] = tuple(COLUMNS)) -> list[str]:
    """Return the settings that are not CartPole's."""
    return [setting for setting in settings if "CartPole" not in setting]


def by_cell(mine: Of, bc: Of, holm: bool = False) -> dict[tuple[str, int], str]:
    """Say on which side of BC's the scores of each cell lie. `holm` treats all cells of the method as one question."""
    found = {key: difference(beyond(mine[key], bc[key])) for key in mine}
    if holm:
        reached = 0.0
        for rank, key in enumerate(sorted(found, key=lambda key: found[key]["p"])):
            reached = max(reached, found[key]["p"] * (len(found) - rank))
            found[key]["p"] = min(reached, 1.0)
    return {key: verdict(row) for key, row in found.items()}


def halved(result: Result) -> Result:
    """Return the first half of the draws of a cell."""
    draws = result.cell.draws // 2
    runs = draws * result.cell.initialisations
    return replace(
        result,
        cell=replace(result.cell, draws=draws),
        returns=result.returns[:runs],
        diverged_at=result.diverged_at[:runs],
        metrics={name: values[:runs] for name, values in result.metrics.items()},
    )


def choices(cells: Cells) -> str:
    """Say what runs chose that chose for themselves."""
    ours = [choice for result in cells[CHOSEN_WEIGHT].values() for choice in result.chosen]
    few = [r for (setting, size), r in cells[CHOSEN_DECAY].items() if "LunarLander" in setting and size <= 3]
    decays = [float(choice.partition("=")[2]) for result in few for choice in result.chosen]
    large = sum(decay >= 3 for decay in decays)
    return (
        f"Between the default and the same without its state term, {ours.count('weight=1'):,} of {len(ours):,} runs "
        f"chose the default. Among decays from 0 to 10, on LunarLander with 1 or 3 trajectories {large} of "
        f"{len(decays)} chose 3 or 10. The score of the default minus that of weight decay 1 is "
        f"{overall(cells[DEFAULT], cells['bc:decay'], list(COLUMNS), 'score')} over all cells.\n"
    )


def state_term(cells: Cells) -> str:
    """Compare the default with the same method without its state term: errors at unseen decisions, and scores."""
    mine, without = cells[DEFAULT], cells[f"{DEFAULT}+weight=0"]
    rows = [["", *(f"errors, n = {size}" for size in SIZES), "errors, all sizes", "score, difference"]]
    for setting, name in COLUMNS.items():
        shares = (share_of(mine[setting, size], without[setting, size]) for size in SIZES)
        rows.append([name, *shares, *both(mine, without, [setting])])
    for name, settings in {"all": list(COLUMNS), "all but CartPole": elsewhere()}.items():
        rows.append([name, *[""] * len(SIZES), *both(mine, without, settings)])
    return markdown_table(rows, numbers=True)


def by_its_state_term(cells: Cells, setting: str) -> str:
    """Write, size by size, the score of the default minus the score without its state term in a setting."""
    mine, without = cells[DEFAULT], cells[f"{DEFAULT}+weight=0"]
    found = [f"{judged(mine[setting, size], without[setting, size])} (n = {size})" for size in SIZES]
    return f"The default minus the default without its state term: {', '.join(found)}.\n"


def both(mine: Of, other: Of, settings: Sequence[str]) -> tuple[str, str]:
    """Return the errors as a share of another method's, and the difference in score."""
    return overall(mine, other, settings, "error"), overall(mine, other, settings, "score")


def wider(study: Cells) -> str:
    """Compare networks of twice the width, with and without the state term, with BC: errors and scores."""
    ours = load(CPU)[STUDY]
    cells = {name: {**_of(study.get(name, {}), "LunarLander"), **ours.get(name, {})} for name in ("bc", *WIDER)}
    settings = {name: [setting] for setting, name in COLUMNS.items()}
    rows = [["", *(f"{what}, {words}" for what in ("errors", "score") for words in WIDER.values())]]
    for title, some in {**settings, "all": list(COLUMNS)}.items():
        pairs = product(("error", "score"), WIDER)
        texts = (overall(cells[name], cells["bc"], some, measure, WIDER_SIZES) for measure, name in pairs)
        rows.append([title, *texts])
    wide, narrow = cells[f"{DEFAULT}+hidden=128x128"], cells[DEFAULT]
    share, gain = (overall(wide, narrow, list(COLUMNS), measure, WIDER_SIZES) for measure in ("error", "score"))
    diverged, runs = diverged_of(wide.values())
    return markdown_table(rows, numbers=True) + (
        f"\nOver all settings, the default with 128 units has {share} of its errors with 64 units; its score is higher "
        f"by {gain}. {diverged} of {runs} runs diverged.\n"
    )


def _of(cells: Of, environment: str) -> Of:
    return {key: result for key, result in cells.items() if key[0].startswith(environment)}


def every_state(cells: Cells) -> str:
    """Show what the states of thinned decisions bring: score minus the score of the same method without them."""
    rows = [["", *(JUDGED[name] for name in ("edm:released", DEFAULT))]]
    thinned = {
        name: [setting] for setting, name in COLUMNS.items() if (setting, SIZES[0]) in cells[DEFAULT + EVERY_STATE]
    }
    for title, settings in {**thinned, "all": [setting for some in thinned.values() for setting in some]}.items():
        names = "edm:released", DEFAULT
        rows.append([title, *(overall(cells[name + EVERY_STATE], cells[name], settings, "score") for name in names)])
    return markdown_table(rows, numbers=True)


def more_states() -> str:
    """Say what the states of further trajectories bring the default: score minus the score without them."""
    ours, (setting, size) = load(CPU)[STUDY], (PPO, 1)
    found = [
        f"{judged(ours[f'{DEFAULT}, states of {more} more'][setting, size], ours[DEFAULT][setting, size])} ({more})"
        for more in MORE
    ]
    alone = judged(ours[DEFAULT][setting, size], None)
    return (
        f"{COLUMNS[setting]} step, the decisions of one trajectory: {alone}; with the states of further ones, minus "
        f"that: {', '.join(found)}.\n"
    )


def stability(found: dict[int, Cells]) -> str:
    """Say how many runs of the default there are, and how many of them diverged."""
    names = DEFAULT, DEFAULT + EVERY_STATE
    ours = [r for cells in found.values() for name in names for r in cells.get(name, {}).values()]
    diverged, runs = diverged_of(ours)
    tasks = {played(r.cell).environment for r in ours}
    sizes = sorted({r.cell.size for r in ours})
    return (
        f"Of {runs:,} runs of the default, {diverged} diverged ({', '.join(sorted(tasks))}; {len(COLUMNS)} settings; "
        f"{', '.join(map(str, sizes[:-1]))} and {sizes[-1]} trajectories; seeds 0, 1 and 2; with and without further "
        "states).\n"
    )
