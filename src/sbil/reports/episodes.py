"""One HTML page to look at episodes: what was observed and what was decided, step by step.

The page holds recorded values, which is its purpose, and says so. It holds everything it shows, opens from a disk and
loads nothing else. Equal demonstrations give equal bytes.
"""

import base64
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from sbil.demonstrations import Demonstrations, Trajectory
from sbil.demonstrations.reading import Notes
from sbil.errors import UserError
from sbil.evaluation.decided import must_match
from sbil.evaluation.imagined import Imagined
from sbil.policy import Policy
from sbil.reports import fans, html
from sbil.reports.html import Html, joined, tag
from sbil.text import counted

PRIVACY = "This page holds recorded values of single episodes: keep it where the data themselves may be kept."
NUMBERS = 1_000_000  # values in a page at most, at four characters each
LONGEST = 1000  # steps shown of an episode
SHORTEST = 20  # steps shown at least, however many columns there are
BINS = 24  # of the lengths of episodes
LARGEST = 3.4e38  # number that float32 holds
COLOURS = (0, 1, 2, 3, 4, 5, 7, 6)  # of actions: numbers in base.css


def episodes_page(
    demonstrations: Demonstrations,
    *,
    title: str,
    limit: int = 200,
    policy: Policy | None = None,
    going: Imagined | str | None = None,
    notes: Notes | None = None,
) -> str:
    """Return the page of demonstrations.

    limit: the largest number of episodes in the page. If there are more, evenly spaced ones are taken.
    policy: a policy whose decisions are shown beside the recorded ones.
    going: where that policy would go, or why it is not known.
    notes: the times in the table, and which values were filled in.
    """
    if len(demonstrations.observation_shape) != 1:
        raise UserError("these demonstrations are images, and the page shows columns of numbers only.")
    if policy:
        must_match(policy, demonstrations)
    places = np.unique(np.linspace(0, len(demonstrations) - 1, min(limit, len(demonstrations))).round().astype(int))
    chosen, bands = demonstrations.select(places), _bands(demonstrations)
    longest = _longest(chosen.lengths, len(chosen.observation_names))
    answers = _beside(policy, chosen.trajectories, longest) if policy else [{}] * len(chosen)
    data = {
        "columns": _columns(demonstrations, bands),
        "actions": [{"name": name, "colour": _colour(place)} for place, name in enumerate(chosen.action_names)],
        "key": (demonstrations.schema and demonstrations.schema.episode) or "episode",
        **({"time": demonstrations.schema.time} if notes and notes.times and demonstrations.schema else {}),
        "policy": policy is not None,
        "episodes": [
            {"id": name, **_episode(trajectory, longest, bands), **_noted(notes, place, longest), **answer}
            for name, place, trajectory, answer in zip(
                chosen.ids or map(str, places), places.tolist(), chosen.trajectories, answers, strict=True
            )
        ],
    }
    return html.page(
        "episodes",
        data,
        command="sbil view",
        title=title,
        counts=_counts(demonstrations),
        balance=_balance(demonstrations),
        lengths=_lengths(demonstrations.lengths),
        shown=_shown(demonstrations, chosen, longest),
        imagined=fans.section(going) if going else Html(""),
        imagined_link=tag("a", "Where the policy would go", href="#imagined") if going else Html(""),
        privacy=PRIVACY,
    )


def _colour(action: int) -> int:
    return COLOURS[action % len(COLOURS)]


# Episodes


def _longest(lengths: np.ndarray, columns: int) -> int:
    """Return how many steps of an episode can be shown within the size of the page."""
    longest = LONGEST
    while longest > SHORTEST and np.minimum(lengths, longest).sum() * columns > NUMBERS:
        longest = max(longest * 9 // 10, SHORTEST)
    return longest


def _every(trajectory: Trajectory, longest: int) -> int:
    """Return k if every k-th step of an episode is shown."""
    return -(-len(trajectory) // longest)


def _steps(trajectory: Trajectory, longest: int) -> np.ndarray:
    """Return the places of observations shown: those of the decisions shown, and the last one if it was recorded."""
    kept = np.arange(0, len(trajectory), _every(trajectory, longest))
    return np.append(kept, len(trajectory)) if trajectory.has_last_observation else kept


def _episode(trajectory: Trajectory, longest: int, bands: np.ndarray) -> dict[str, Any]:
    _, _, least, most = bands
    values = np.asarray(trajectory.observations, np.float64)
    every = _every(trajectory, longest)
    return {
        "length": len(trajectory),
        "every": every,
        "end": "terminal" if trajectory.terminal else "truncated" if trajectory.truncated else "",
        "changes": int((np.diff(trajectory.actions) != 0).sum()),
        "unusual": _rounded(float(((values < least) | (values > most)).mean())),
        "actions": trajectory.actions[::every].tolist(),
        "values": [packed(column) for column in values[_steps(trajectory, longest)].T],
    }


def _noted(notes: Notes | None, place: int, longest: int) -> dict[str, Any]:
    """Return the times of the decisions shown and, by column, at which of them the value was filled in."""
    if notes is None:
        return {}
    filled = notes.filled[place]
    kept = slice(None, None, -(-len(filled) // longest))
    found: dict[str, Any] = {} if notes.times is None else {"times": notes.times[place][kept]}
    if filled.any():
        found["filled"] = [np.flatnonzero(column).tolist() for column in filled[kept].T]
    return found


def _beside(policy: Policy, trajectories: Sequence[Trajectory], longest: int) -> list[dict[str, Any]]:
    """Return the policy's action at each decision, its probability, and the familiarity of the state."""
    observations = np.concatenate([trajectory.observations[: len(trajectory)] for trajectory in trajectories])
    ends = np.cumsum([len(trajectory) for trajectory in trajectories])[:-1]
    chances = {"probability": policy.probabilities(observations).max(axis=1)}
    if policy.energies is not None:
        chances["familiarity"] = 1 - policy.percentile(observations) / 100
    chosen = np.split(policy.act(observations), ends)
    parts = {name: np.split(values, ends) for name, values in chances.items()}
    found = []
    for place, trajectory in enumerate(trajectories):
        every, taken = _every(trajectory, longest), chosen[place]
        differs = _rounded(float((taken != trajectory.actions).mean()))
        shown = {name: packed(values[place][::every]) for name, values in parts.items()}
        found.append({"differs": differs, "chosen": taken[::every].tolist(), **shown})
    return found


def _bands(demonstrations: Demonstrations) -> np.ndarray:
    """Return [4, columns]: the ends of the band that holds 90 % of all values, and the fences beyond it.

    Values outside the fences are unusual. A fence is half the width of the band away from it. Columns with nearly one
    value have no fences.
    """
    values = np.concatenate([trajectory.observations for trajectory in demonstrations.trajectories])
    ends = [np.quantile(column.astype(np.float64), [0.05, 0.95]) for column in values.T]
    low, high = np.stack(ends, axis=1)
    room = np.where(high > low, (high - low) / 2, np.inf)
    return np.stack([low, high, low - room, high + room])


def _columns(demonstrations: Demonstrations, bands: np.ndarray) -> list[dict[str, Any]]:
    return [
        {"name": name, **dict(zip(("low", "high", "least", "most"), map(_rounded, values), strict=True))}
        for name, values in zip(demonstrations.observation_names, bands.T.tolist(), strict=True)
    ]


# Numbers


def packed(values: np.ndarray) -> str:
    """Pack numbers into four characters each: float32 rounded to three bytes, in base64.

    This is exact to one part in 65,000, so numbers of four digits, which the page shows, do not change.
    """
    bits = np.clip(values, -LARGEST, LARGEST).astype("<f4").view("<u4") + np.uint32(0x80)
    return base64.b64encode(bits.view(np.uint8).reshape(-1, 4)[:, 1:].tobytes()).decode()


def _rounded(value: float) -> float | None:
    """Round to four digits; whole numbers become int, NaN and infinity become None."""
    if not np.isfinite(value):
        return None
    short = float(f"{value:.4g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short


# What is said of all episodes


def _counts(demonstrations: Demonstrations) -> str:
    ended = sum(trajectory.terminal for trajectory in demonstrations.trajectories)
    cut = sum(trajectory.truncated for trajectory in demonstrations.trajectories)
    counts = [
        counted(len(demonstrations), "episode"),
        counted(demonstrations.steps, "decision"),
        counted(len(demonstrations.observation_names), "column"),
        counted(len(demonstrations.action_names), "action"),
        *([f"{ended:,} ended by themselves"] if ended else []),
        *([f"{cut:,} cut off"] if cut else []),
    ]
    return ", ".join(counts)


def _shown(demonstrations: Demonstrations, chosen: Demonstrations, longest: int) -> Html:
    said = []
    if len(chosen) < len(demonstrations):
        said.append(f"{len(chosen):,} of {len(demonstrations):,} episodes are in this page, evenly spaced.")
    if thinned := int((chosen.lengths > longest).sum()):
        said.append(
            f"Of {counted(thinned, 'episode')} longer than {counted(longest, 'step')} only every k-th step is drawn; "
            "counts are over all steps."
        )
    return joined([tag("p", " ".join(said), class_="note")] if said else [])


def _balance(demonstrations: Demonstrations) -> Html:
    """Show how often each action was taken, as one bar and in words."""
    taken = np.concatenate([trajectory.actions for trajectory in demonstrations.trajectories])
    counts = np.bincount(taken, minlength=len(demonstrations.action_names))
    ends = np.concatenate([[0.0], np.cumsum(counts) / counts.sum() * 1000])
    colours = list(map(_colour, range(len(counts))))
    bars = [
        tag("rect", x=f"{start:.1f}", y=0, width=f"{end - start:.1f}", height=20, class_=f"c{colour} taken")
        for colour, (start, end) in zip(colours, pairwise(ends), strict=True)
    ]
    entries = []
    for name, colour, count in zip(demonstrations.action_names, colours, counts, strict=True):
        swatch = tag("span", class_=f"c{colour} swatch", aria_hidden="true")
        share = tag("span", f"{count / counts.sum():.1%}".replace("%", " %"), class_="share")
        words = tag("span", name, class_="name"), tag("span", f"{count:,}", class_="count"), share
        entries.append(tag("li", swatch, *words))
    picture = tag("svg", *bars, viewBox="0 0 1000 20", preserveAspectRatio="none", class_="balance", aria_hidden="true")
    return joined([picture, tag("ul", *entries, class_="key")])


def _lengths(lengths: np.ndarray) -> Html:
    """Show how long episodes are, as a histogram and in words."""
    least, most, middle = int(lengths.min()), int(lengths.max()), float(np.median(lengths))
    said = f"Shortest {least:,}, median {middle:,.0f}, longest {most:,} decisions."
    if least == most:
        return tag("p", f"Every episode has {counted(most, 'decision')}.", class_="plainly")
    width = max(-(-(most - least + 1) // BINS), 1)
    edges = list(range(least, most + width + 1, width))
    counts = np.histogram(lengths, edges)[0]
    across, bars = 1000 / len(counts), []
    for place, (count, (first, last)) in enumerate(zip(counts.tolist(), pairwise(edges), strict=True)):
        span = f"{first:,}" if last - first == 1 else f"{first:,} to {last - 1:,}"
        title, height = tag("title", f"{span}: {counted(count, 'episode')}"), 100 * count / counts.max()
        where = {"x": f"{place * across:.1f}", "y": f"{100 - height:.1f}"}
        bars.append(tag("rect", title, **where, width=f"{across * 0.9:.1f}", height=f"{height:.1f}"))
    frame = {"viewBox": "0 0 1000 100", "preserveAspectRatio": "none", "class_": "histogram", "role": "img"}
    picture = tag("svg", *bars, **frame, aria_label=f"Histogram of the lengths of episodes. {said}")
    ends = tag("div", tag("span", f"{least:,}"), tag("span", f"{most:,}"), class_="ends")
    return joined([picture, ends, tag("p", said, class_="note")])
