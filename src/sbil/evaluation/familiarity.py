"""Whether the energy recognises unfamiliar states, compared with simpler measures.

There are two questions. Is a policy right more often at states that a measure calls familiar (coverage)? Does the
measure distinguish shifted states from held-out ones (detection)? There are three measures; a higher value means more
familiar: the negative energy, the largest probability, and the negative distance to the nearest training states.
Results hold no recorded observations. Only `KnownStates` and `shifted` do, and they stay in memory.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from sbil.demonstrations import Demonstrations
from sbil.errors import UserError, unknown
from sbil.evaluation.areas import ranked, ranking, running
from sbil.evaluation.decided import Decided, decided, observed, softmax
from sbil.policy import Policy
from sbil.statistics import Interval, affordable, interval, numbered, unit_counts

Kind = Literal["noise", "out_of_range", "permuted"]
SHARES = (1.0, 0.95, 0.9, 0.8, 0.7, 0.5)  # of the decisions that are kept
NEIGHBOURS = 10
MOST_STATES = 20_000  # training states that neighbours are sought among
MOST_DECISIONS = 5_000  # held-out decisions that are looked at
BEYOND = 5.0  # standard deviations out of range
BLOCK = 256  # rows whose distances are held in memory at once
WORDS = {
    "energy": "the energy",
    "probability": "the largest probability",
    "neighbours": "the distance to the nearest training states",
    "noise": "noise",
    "out_of_range": "one value out of range",
    "permuted": "columns permuted",
    "another": "the other table",
}

ByMeasure = Mapping[str, np.ndarray]


class KnownStates(NamedTuple):
    """The states that a policy was trained on, in summary."""

    mean: np.ndarray  # [columns]
    deviation: np.ndarray  # [columns], the standard deviation
    low: np.ndarray  # [columns]
    high: np.ndarray  # [columns]
    sample: np.ndarray  # [states, columns], standardised, at most 20,000 of them

    @classmethod
    def of(cls, demonstrations: Demonstrations, seed: int = 0) -> "KnownStates":
        """The range of all states; mean and standard deviation of the sample, which is all of them where they fit."""
        if len(demonstrations.observation_shape) != 1:
            raise UserError("familiarity is measured on rows of numbers, and these demonstrations hold images.")
        sample = _rows(demonstrations, _some(demonstrations.steps, MOST_STATES, seed))
        mean, deviation = sample.mean(axis=0), sample.std(axis=0)
        ranges = np.array([(part.min(axis=0), part.max(axis=0)) for part in observed(demonstrations)])
        low, high = ranges[:, 0].min(axis=0), ranges[:, 1].max(axis=0)
        return cls(mean, deviation, low, high, (sample - mean) / _divisor(deviation))

    def distance(self, observations: np.ndarray, neighbours: int = NEIGHBOURS) -> np.ndarray:
        """[n] the Euclidean distance to the 10th nearest state of the sample, in standard deviations; exact."""
        neighbours = min(neighbours, len(self.sample))
        rows, lengths = (observations - self.mean) / _divisor(self.deviation), (self.sample**2).sum(axis=1)
        found = np.empty(len(rows))
        for start in range(0, len(rows), BLOCK):
            block = rows[start : start + BLOCK]
            squares = lengths - 2 * block @ self.sample.T
            squares.partition(neighbours - 1, axis=1)
            found[start : start + BLOCK] = squares[:, neighbours - 1] + (block**2).sum(axis=1)
        return np.sqrt(np.maximum(found, 0.0))


class Coverage(NamedTuple):
    """How often the kept decisions are matched if the least familiar ones are left to a human."""

    accuracy: dict[str, dict[float, Interval]]  # by measure and share kept
    area: dict[str, Interval]  # by measure: the mean, over decisions, of the accuracy among those as familiar or more
    differences: dict[str, Interval]  # of the areas: the first measure minus each of the others


class Detection(NamedTuple):
    """How well shifted states are distinguished from held-out ones."""

    auroc: dict[str, Interval]  # by measure: how often a held-out state is the more familiar of two; 0.5 is chance
    differences: dict[str, Interval]  # the first measure minus each of the others


class Familiarity(NamedTuple):
    """The whole comparison, and its result in a sentence."""

    coverage: Coverage
    detection: dict[str, Detection]  # by kind of shift
    sentence: str
    notes: tuple[str, ...]  # what was drawn, and what was left out

    def as_json(self) -> dict[str, Any]:
        """Return plain values; NaN becomes None."""
        coverage = self.coverage
        curves = {
            name: [{"share": share, **found.as_json()} for share, found in curve.items()]
            for name, curve in coverage.accuracy.items()
        }
        return {
            "coverage": {**_plain(coverage._replace(accuracy={})), "accuracy": curves},
            "detection": {kind: _plain(found) for kind, found in self.detection.items()},
            "sentence": self.sentence,
            "notes": list(self.notes),
        }


def _plain(found: Coverage | Detection) -> dict[str, Any]:
    """Intervals by measure, as plain values."""
    return {part: {name: each.as_json() for name, each in by.items()} for part, by in found._asdict().items()}


def familiarity(
    policy: Policy,
    held_out: Demonstrations,
    training: Demonstrations | None = None,
    another: np.ndarray | None = None,
    *,
    resamples: int = 1000,
    seed: int = 0,
) -> Familiarity:
    """Compare the energy of a policy with the other measures on held-out decisions and on shifted states.

    training: what the policy was trained on. Without it there are no neighbours to measure distances to, and the
        shifts are made by the spread of the held-out states.
    another: observations [n, columns] of another population, as a further kind of shift.
    """
    states = KnownStates.of(held_out if training is None else training, seed)
    chosen = _some(held_out.steps, MOST_DECISIONS, seed)
    rows = _rows(held_out, chosen)
    probabilities, actions, episodes, _ = decided(policy, held_out)
    made = Decided(probabilities[chosen], actions[chosen], episodes[chosen])
    known = None if training is None else states
    inside = measures(policy, rows, known)
    rng = np.random.default_rng(seed)
    how: dict[str, Any] = {"resamples": resamples, "seed": seed}
    detected: dict[str, Detection] = {}
    for kind in get_args(Kind):
        outside = measures(policy, shifted(rows, kind, rng, states), known)
        detected[kind] = detection(inside, outside, made.episodes, **how)
    if another is not None:
        rest = np.asarray(another)[_some(len(another), MOST_DECISIONS, seed)]
        outside = measures(policy, rest, known)
        detected["another"] = detection(inside, outside, made.episodes, np.arange(len(rest)), **how)
    covered = coverage(made, inside, **how)
    return Familiarity(covered, detected, sentence(covered, detected), tuple(_notes(held_out, training)))


def measures(policy: Policy, observations: np.ndarray, states: KnownStates | None = None) -> dict[str, np.ndarray]:
    """Every measure [n] of observations [n, columns], the higher the more familiar."""
    found = {
        "energy": -policy.energy(observations).astype(np.float64),
        "probability": softmax(policy.logits(observations), policy.temperature).max(axis=1),
    }
    return found if states is None else found | {"neighbours": -states.distance(observations)}


def shifted(observations: np.ndarray, kind: Kind, rng: np.random.Generator, states: KnownStates) -> np.ndarray:
    """Observations [n, columns] of another kind.

    noise: Gaussian noise of one standard deviation of the training states is added to every column.
    out_of_range: in every row one column, drawn among those that vary, is put 5 standard deviations beyond the range
        of the training states, below or above it.
    permuted: every column is shuffled separately, so each column looks the same but their relations are lost.
    """
    rows, columns = observations.shape
    if kind == "noise":
        return observations + states.deviation * rng.normal(size=observations.shape)
    if kind == "permuted":
        return rng.permuted(observations, axis=0)
    if kind != "out_of_range":
        raise unknown("kind of shift", kind, get_args(Kind))
    varying = np.flatnonzero(states.deviation) if states.deviation.any() else np.arange(columns)
    moved, column = observations.astype(np.float64), rng.choice(varying, rows)
    step = BEYOND * _divisor(states.deviation)
    outside = np.where(rng.random(rows) < 0.5, (states.low - step)[column], (states.high + step)[column])
    moved[np.arange(rows), column] = outside
    return moved


def detection(
    inside: ByMeasure,
    outside: ByMeasure,
    episodes: np.ndarray,
    outside_episodes: np.ndarray | None = None,
    *,
    resamples: int = 1000,
    seed: int = 0,
) -> Detection:
    """Return the area under the ROC curve with which each measure distinguishes states from shifted ones.

    episodes: [n] what is resampled whole. Row i of `outside` was made from row i of `inside` and is drawn with it,
        unless `outside_episodes` says otherwise; then both are resampled on their own.
    """
    unit, count = numbered(episodes)
    names = list(inside)
    other, others = (unit, 0) if outside_episodes is None else numbered(outside_episodes)
    units = np.concatenate([unit, other + (count if others else 0)])
    positive = np.arange(len(units)) < len(unit)
    rankings = [ranking(np.concatenate([inside[name], outside[name]]), positive, units) for name in names]

    def areas(weights: np.ndarray) -> np.ndarray:
        return np.array([each(weights).roc for each in rankings])

    resamples = affordable(resamples, len(units), len(names))
    blocks: Iterator[Any] = unit_counts(count, resamples, len(units), seed)
    if others:
        both = zip(blocks, unit_counts(others, resamples, len(units), seed + 1), strict=True)
        blocks = (np.concatenate(pair, axis=1) for pair in both)
    resampled = np.concatenate([areas(weights) for weights in blocks], axis=1)
    least = min(count, others) if others else count
    return Detection(*_compared(names, areas(np.ones((1, count + others)))[:, 0], resampled, least))


def coverage(decided: Decided, measures: ByMeasure, *, resamples: int = 1000, seed: int = 0) -> Coverage:
    """Return how often the kept decisions are matched, for each measure of familiarity.

    Decisions of equal familiarity are kept in equal parts, so the order of rows does not matter.
    """
    unit, count = numbered(decided.episodes)
    names, rows = list(measures), len(unit)
    curves = [_curve(measures[name], decided.right, unit) for name in names]
    resamples = affordable(resamples, rows, 2 * len(names))
    blocks = unit_counts(count, resamples, rows, seed)
    parts = [np.array([curve(weights) for curve in curves]) for weights in blocks]
    resampled = np.concatenate(parts, axis=1)  # [measures, resamples, shares and area]
    whole = np.array([curve(np.ones((1, count)))[0] for curve in curves])
    accuracy = {
        name: {share: interval(whole[i, j], resampled[i, :, j], count) for j, share in enumerate(SHARES)}
        for i, name in enumerate(names)
    }
    return Coverage(accuracy, *_compared(names, whole[:, -1], resampled[..., -1], count))


def sentence(coverage: Coverage, detection: Mapping[str, Detection]) -> str:
    """Say what the numbers mean for the energy; a difference counts if its 95 % interval excludes 0."""
    rivals = list(coverage.differences)
    if all(difference.low > 0 for found in detection.values() for difference in found.differences.values()):
        told = (
            "The energy is the best measure of familiarity here: it tells every kind of shifted state better than "
            f"{_listed([WORDS[rival] for rival in rivals])}."
        )
    else:
        compared = "; compared with ".join(_compare(rival, detection) for rival in rivals)
        told = f"The energy is not the best measure of familiarity here: compared with {compared}."
    areas = {WORDS[kind]: detected.auroc["energy"] for kind, detected in detection.items()}
    worse = [kind for kind, found in areas.items() if found.high < 0.5]
    blind = [kind for kind, found in areas.items() if not found.low > 0.5 and kind not in worse]
    chance = f" It is worse than chance at {_listed(worse)}." if worse else ""
    chance += f" It is not clearly better than chance at {_listed(blind)}." if blind else ""
    return f"{told}{chance} {_deferred(coverage)}"


def _curve(scores: np.ndarray, right: np.ndarray, unit: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function of weights [resamples, units] to [resamples, shares + 1]: accuracy at each share, and area."""
    order, edges = ranked(scores)  # edges: where decisions of one familiarity begin and end
    unit, right = unit[order], right[order]

    def under(weights: np.ndarray) -> np.ndarray:
        rows = weights.take(unit, axis=1)
        seen, found = (running(part).take(edges, axis=1) for part in (rows, rows * right))
        kept = np.array(SHARES) * seen[:, -1:]
        hits = np.array([np.interp(*line) for line in zip(kept, seen, found, strict=True)])
        size = np.diff(seen, axis=1)
        with np.errstate(invalid="ignore"):
            among = np.where(size > 0, found[:, 1:] / seen[:, 1:], 0.0)
        return np.column_stack([hits / kept, (size * among).sum(axis=1) / seen[:, -1]])

    return under


def _compared(
    names: list[str], values: np.ndarray, resampled: np.ndarray, units: int
) -> tuple[dict[str, Interval], dict[str, Interval]]:
    """Values [measures] with their intervals, and the first minus each of the others with theirs."""
    alone = {name: interval(values[i], resampled[i], units) for i, name in enumerate(names)}
    values, resampled = values[0] - values, resampled[0] - resampled
    return alone, {name: interval(values[i], resampled[i], units) for i, name in enumerate(names) if i > 0}


def _compare(rival: str, detection: Mapping[str, Detection]) -> str:
    """Say where the energy is better than a rival, where worse, and where the difference is unclear."""
    words: dict[str, list[str]] = {"better": [], "worse": [], "not clearly different": []}
    for kind, found in detection.items():
        _, low, high = found.differences[rival]
        words["better" if low > 0 else "worse" if high < 0 else "not clearly different"].append(WORDS[kind])
    told = ", ".join(f"{outcome} at {_listed(kinds)}" for outcome, kinds in words.items() if kinds)
    return f"{WORDS[rival]} it is {told}"


def _listed(words: list[str]) -> str:
    """a, b and c."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _deferred(coverage: Coverage) -> str:
    """Say what leaving a fifth to a human changes, by each measure."""
    everything = next(iter(coverage.accuracy.values()))[1.0].value
    kept = [f"{curve[0.8].value:.1%} by {WORDS[name]}" for name, curve in coverage.accuracy.items()]
    return f"With the least familiar fifth left to a human, agreement goes from {everything:.1%} to {', '.join(kept)}."


def _notes(held_out: Demonstrations, training: Demonstrations | None) -> Iterator[str]:
    if training is None:
        yield "Without training demonstrations there are no neighbours, and shifts follow the held-out states."
    elif training.steps > MOST_STATES:
        yield f"Neighbours are sought among {MOST_STATES:,} of {training.steps:,} training states, drawn at random."
    if held_out.steps > MOST_DECISIONS:
        yield f"{MOST_DECISIONS:,} of {held_out.steps:,} held-out decisions are looked at, drawn at random."


def _some(count: int, most: int, seed: int) -> np.ndarray:
    """The numbers of all rows, or of `most` drawn at random, in order."""
    if count <= most:
        return np.arange(count)
    return np.sort(np.random.default_rng(seed).choice(count, most, replace=False))


def _rows(demonstrations: Demonstrations, chosen: np.ndarray) -> np.ndarray:
    """[n, columns] the observations of the decisions numbered."""
    parts, done = [], 0
    for observations in observed(demonstrations):
        inside = chosen[(chosen >= done) & (chosen < done + len(observations))]
        parts.append(observations[inside - done])
        done += len(observations)
    return np.concatenate(parts).astype(np.float64)


def _divisor(deviation: np.ndarray) -> np.ndarray:
    """Return the divisor of each column: 1 if the column does not vary."""
    return np.where(deviation > 0, deviation, 1.0)
