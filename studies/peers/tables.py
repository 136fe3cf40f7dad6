"""The tables of docs/peers.md."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from sbil import environments
from sbil.reports.differences import difference, verdict
from sbil.reports.tables import bracketed
from sbil.statistics import Interval, estimate
from sbil.statistics import difference as over_cells
from sbil.text import markdown_table
from studies.choosing.choices import Key
from studies.choosing.tables import setting_of
from studies.pages import bold
from studies.peers.live import BEST, LAST
from studies.peers.methods import BY_NAME, LONG_BC, METHODS, TASK
from studies.peers.stored import AUTO, SEEN, Scores, cells

BC, DECAY = "bc", "bc+weight_decay=1"
RIVALS = {BC: "BC", DECAY: "BC with decay 1", AUTO: "`auto`"}
TITLES = {**{peer.name: peer.title for peer in METHODS}, AUTO: "`auto`"}
LIVE = {BEST: "not strictly batch: BC, the best of 20 checkpoints live"}  # in tables of claims only
PRINTED = pl.read_csv(Path(__file__).with_name("printed.csv"))
SIZES = (1, 3, 7)  # of the printed numbers


class Claim(NamedTuple):
    """What a paper prints, and what stands beside it here."""

    lines: tuple[str, ...]  # of printed.csv
    methods: tuple[str, ...]
    settings: tuple[tuple[str, str, str, int], ...]  # of ours that are nearest to the paper's


THINNED = (
    ("CartPole-v1", "dqn", "greedy", 20),
    ("CartPole-v1", "ppo", "sampled", 20),
    ("Acrobot-v1", "ppo", "sampled", 5),
    ("LunarLander-v3", "ppo", "greedy", 5),
)
IN_A_ROW = tuple((*setting[:3], 1) for setting in THINNED)
BOTH = (*THINNED, *IN_A_ROW[2:])
CLAIMS = {
    "iq_learn": Claim(
        ("BC, in IQ-Learn's figure", "IQ-Learn, in its own figure", "IQ-Learn, in CKIL's figure"),
        (
            *(BC, DECAY, "bc+learning_rate=0.0001", LONG_BC, "iq_learn", "iq_learn+penalty=0"),
            *("iq_learn+learning_rate=0.0001", "iq_learn+learning_rate=0.0001+penalty=0"),
            *("iq_learn:released", "iq_learn:released+penalty=0", "bc_regularised:large_logits", AUTO, BEST),
        ),
        BOTH,
    ),
    "avril": Claim(
        ("BC, in IQ-Learn's figure", "AVRIL, in IQ-Learn's figure"),
        (BC, DECAY, "avril", "avril:released", "rcal+norm=huber+coefficient=1", AUTO, BEST),
        IN_A_ROW,
    ),
    "ckil": Claim(
        ("BC, in EDM's table", "BC, in CKIL's figure", "CKIL, in its own figure"),
        (
            *(BC, DECAY, "bc+learning_rate=0.01", "bc+learning_rate=0.01+hidden=64x32", "ckil"),
            f"ckil:printed_{TASK}",
            *("ckil+learning_rate=0.001+hidden=64x64", "ckil+predecessors=permuted", "ckil+predecessors=ignored"),
            *("ckil+entropy=0", "bc_regularised:smoothed", "bc_regularised:brier", AUTO, BEST),
        ),
        IN_A_ROW,
    ),
    "corrective": Claim(
        ("BC, in EDM's table",),
        (BC, DECAY, "corrective", "bc_regularised:noise", "bc_regularised:spectral", AUTO),
        BOTH,
    ),
}


def for_page() -> dict[str, str]:
    """Return the tables of docs/peers.md by their marks."""
    found = cells()
    return {
        "summary": summary(found),
        **{name: claimed(found, claim) for name, claim in CLAIMS.items()},
        "checkpoints": checkpoints(found),
        "cells": every_cell(found),
    }


def summary(found: dict[Key, Scores]) -> str:
    """Write one line per method: its cells, and for each rival the mean difference and how often it is clear."""
    head = [f"minus {rival} | above, below" for rival in RIVALS.values()]
    rows = [["method", "cells", *" | ".join(head).split(" | ")]]
    group = ""
    for name in known(found):
        if group_of(name) != group:
            group = group_of(name)
            rows.append([f"**{group}**", *[""] * (len(rows[0]) - 1)])
        count = sum(name in scores for scores in found.values())
        rows.append([TITLES[name], str(count), *(text for rival in RIVALS for text in _against(found, name, rival))])
    return markdown_table(rows, numbers=True)


def known(found: dict[Key, Scores]) -> list[str]:
    """Return the methods that were run somewhere."""
    return [name for name in TITLES if any(name in scores for scores in found.values())]


def group_of(name: str) -> str:
    """Return the heading under which a method stands."""
    return BY_NAME[name].group if name in BY_NAME else "Chosen without the environment"


def _against(found: dict[Key, Scores], name: str, rival: str) -> tuple[str, str]:
    """Write the mean difference with its interval, and in how many cells it is clear."""
    between = mean_difference(found, name, rival)
    if not between:
        return "", ""
    sides = [side(scores, name, rival) for scores in found.values()]
    return bracketed(between, "+.3f"), f"{sides.count(1)}, {sides.count(-1)}"


def mean_difference(found: dict[Key, Scores], name: str, rival: str) -> Interval | None:
    """Return the mean difference over the cells that have both. Cells of one demonstrator share their draws."""
    strata: dict[tuple[str, str, str], list[Key]] = {}
    for key, scores in found.items():
        if name != rival and {name, rival} <= set(scores):
            strata.setdefault(key[:3], []).append(key)
    if not strata:
        return None

    def of(method: str) -> list[np.ndarray]:
        return [np.stack([found[key][method] for key in own])[..., None] for own in strata.values()]

    return over_cells(of(name), of(rival))


def side(scores: Scores, name: str, rival: str) -> int:
    """1: clearly above the rival, -1: clearly below, 0: not clear."""
    if name == rival or not {name, rival} <= set(scores):
        return 0
    found = verdict(difference((scores[name] - scores[rival])[:, None]))
    return {"above": 1, "below": -1}.get(found, 0)


def claimed(found: dict[Key, Scores], claim: Claim) -> str:
    """Write the returns that papers print beside ours, in the settings that are nearest to theirs."""
    columns = [(setting, size) for setting in claim.settings for size in SIZES if (*setting, size) in found]
    rows = [["", *(f"{setting_of((*setting, size))}, n={size}" for setting, size in columns)]]
    for line in claim.lines:
        printed = PRINTED.filter(pl.col("line") == line)
        numbers = [printed.filter(pl.col("environment") == setting[0])[str(size)].item() for setting, size in columns]
        rows.append([f"printed: {line}", *map(str, numbers)])
    for name in claim.methods:
        returns = [_return(found[*setting, size], name, setting) for setting, size in columns]
        rows += [[{**TITLES, **LIVE}[name], *returns]] if any(returns) else []
    highs = [str(round(environments.scale(*setting[:3])[1])) for setting, _ in columns]
    return markdown_table([*rows, ["our demonstrator", *highs]], numbers=True)


def _return(scores: Scores, name: str, setting: tuple[str, str, str, int]) -> str:
    """Write a mean return; bold: clearly above or below BC with weight decay 1."""
    if name not in scores:
        return ""
    low, high = environments.scale(*setting[:3])
    return bold(f"{low + scores[name].mean() * (high - low):.0f}", side(scores, name, DECAY) != 0)


def checkpoints(found: dict[Key, Scores]) -> str:
    """Write what the best checkpoint by live return scores, beside the last one of the same runs."""
    rows = [["setting", "trajectories", "last", "best live", "gain", "as seen live", "BC with decay 1"]]
    for key, scores in found.items():
        if BEST in scores:
            gain = bracketed(estimate((scores[BEST] - scores[LAST])[:, None]), "+.3f")
            last, best, seen, decay = (f"{scores[name].mean():.3f}" for name in (LAST, BEST, SEEN, DECAY))
            gain = bold(gain, side(scores, BEST, LAST) != 0)
            rows.append([setting_of(key), str(key[-1]), last, best, gain, seen, decay])
    return markdown_table(rows, numbers=True)


def every_cell(found: dict[Key, Scores]) -> str:
    """Write a table per setting: methods down, sizes across."""
    settings = dict.fromkeys(key[:-1] for key in found)
    return "\n".join(f"**{setting_of((*setting, 1))}**\n\n{of_setting(found, setting)}" for setting in settings)


def of_setting(found: dict[Key, Scores], setting: tuple[str, str, str, int]) -> str:
    """Write mean scores with intervals; bold: clearly other than BC with decay 1; an arrow: clearly other than auto."""
    keys = [key for key in found if key[:-1] == setting]
    rows = [["method", *(f"n={key[-1]}" for key in keys)]]
    for name in known({key: found[key] for key in keys}):
        rows.append([TITLES[name], *(_cell(found[key], name) for key in keys)])
    return markdown_table(rows, numbers=True)


def _cell(scores: Scores, name: str) -> str:
    if name not in scores:
        return ""
    text = bracketed(estimate(scores[name][:, None]), ".2f")
    arrow = {1: " ↑", -1: " ↓"}.get(side(scores, name, AUTO), "")
    return bold(text, side(scores, name, DECAY) != 0) + arrow
