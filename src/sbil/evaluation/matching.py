"""How well a policy matches recorded decisions: scores with intervals, the confusion matrix, a row an action."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from sbil.demonstrations import Demonstrations
from sbil.errors import UserError
from sbil.evaluation.areas import Areas, Ranking, Sums
from sbil.policy import Policy
from sbil.statistics import Interval, affordable, interval, numbered, unit_counts

METRICS = ("accuracy", "balanced_accuracy", "auc", "apr", "log_loss", "brier", "ece")
BINS = 15  # of the expected calibration error
LARGE = 2**21  # decisions from which on probabilities are kept in float32
CHUNK = 2**25  # bytes of observations looked at together


class Decided(NamedTuple):
    """What a policy, or a baseline, thinks of recorded decisions; row i is one of them."""

    probabilities: np.ndarray  # [n, actions]; the most probable action is the one chosen
    actions: np.ndarray  # [n], the actions that were taken
    episodes: np.ndarray  # [n], the episode of each, or its group: what is resampled whole
    folds: np.ndarray | None = None  # [n], which of several policies judged each; none where one judged all

    @property
    def chosen(self) -> np.ndarray:
        """[n], the most probable actions."""
        return self.probabilities.argmax(axis=1)

    @property
    def right(self) -> np.ndarray:
        """[n], whether the most probable action is the one taken."""
        return self.chosen == self.actions

    @property
    def absent(self) -> tuple[int, ...]:
        """The actions that were never taken; averages over actions leave them out."""
        counts = np.bincount(self.actions, minlength=self.probabilities.shape[1])
        return tuple(np.flatnonzero(counts == 0).tolist())


class Intervals(NamedTuple):
    """Every metric with its interval, and how many resamples the intervals rest on."""

    metrics: dict[str, Interval]
    resamples: int


class ActionScores(NamedTuple):
    """How well one action is matched; not a number where it is not defined."""

    taken: int
    precision: float
    recall: float
    f1: float
    auc: float
    apr: float


def decided(policy: Policy, demonstrations: Demonstrations, thin: int = 1, thin_offset: int = 0) -> Decided:
    """The probabilities that a policy gives to the actions at every recorded decision."""
    must_match(policy, demonstrations)
    steps = demonstrations.decisions(thin, thin_offset)
    rows = len(steps.action)
    kind = np.float32 if rows > LARGE else np.float64
    probabilities, done = np.empty((rows, len(policy.action_names)), kind), 0
    for observations in observed(demonstrations, thin, thin_offset):
        part = softmax(policy.logits(observations), policy.temperature)
        probabilities[done : done + len(part)] = part
        done += len(part)
    return Decided(probabilities, steps.action, units(demonstrations, steps.trajectory))


def observed(demonstrations: Demonstrations, thin: int = 1, thin_offset: int = 0) -> Iterator[np.ndarray]:
    """The observations of all decisions in order, those of a few trajectories at a time, for they may be large."""
    shape, kind = demonstrations.observation_shape, demonstrations.trajectories[0].observations.dtype
    room = max(CHUNK // (int(np.prod(shape)) * kind.itemsize), 1)
    chunk = np.cumsum(demonstrations.lengths) // room
    for number in np.unique(chunk):
        yield demonstrations.select(np.flatnonzero(chunk == number)).flat(thin, thin_offset).observation


def units(demonstrations: Demonstrations, trajectories: np.ndarray) -> np.ndarray:
    """[n] what is resampled whole: the group of each of these trajectories where there are groups, else itself."""
    return trajectories if demonstrations.groups is None else demonstrations.groups[trajectories]


def softmax(logits: np.ndarray, temperature: float = 1.0) -> np.ndarray:
    """[n, actions] probabilities in float64, so that near certain ones stay apart."""
    scaled = logits.astype(np.float64) / temperature
    powers = np.exp(scaled - scaled.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def must_match(policy: Policy, demonstrations: Demonstrations) -> None:
    """Refuse demonstrations of other actions or columns than the policy's, or of its columns in another order."""
    if policy.action_names != demonstrations.action_names:
        raise UserError(
            f"the policy chooses among {list(policy.action_names)}, these demonstrations among "
            f"{list(demonstrations.action_names)}; bring demonstrations of the same task."
        )
    if policy.observation_names != demonstrations.observation_names:
        raise UserError(
            f"the policy sees {list(policy.observation_names)}, in these demonstrations there are "
            f"{list(demonstrations.observation_names)}; bring the same columns in the same order."
        )


def scores(decided: Decided) -> dict[str, float]:
    """Every metric, as scikit-learn has them.

    accuracy: how often the most probable action is the one taken. balanced_accuracy: the mean of that over actions.
    auc, apr: the areas under the ROC curve and the precision-recall curve (average precision) of one action against
    the rest, averaged over actions; within folds where there are folds, for the probabilities of different policies
    do not rank decisions. log_loss: probabilities are clipped by the precision of their type. brier: the
    sum over actions of squared errors, 0 to 2. ece: the expected calibration error of the most probable action in 15
    bins of equal width.
    Actions that were never taken are left out of averages over actions; what is not defined is not a number. Where all
    decisions took one action there is nothing to rank: neither auc nor, unlike in scikit-learn, apr is defined.
    """
    prepared = _Prepared.of(decided)
    found = prepared.under(np.ones((1, prepared.units)), prepared.defined())
    return {name: float(value[0]) for name, value in found.items()}


def means(decided: Decided) -> dict[str, float]:
    """Those of `scores` that are means over decisions, without what the others take: nothing is sorted."""
    unit, count = numbered(decided.episodes)
    decisions, *sums = (np.ones((1, count)) @ _totals(decided, unit, count))[0]
    return {name: float(total / decisions) for name, total in zip(("accuracy", "log_loss", "brier"), sums, strict=True)}


def intervals(decided: Decided, resamples: int = 1000, seed: int = 0) -> Intervals:
    """`scores`, each with a percentile bootstrap interval over episodes, or groups, which are resampled whole.

    An average over actions is of the same actions in every resample: those without one of them do not count.

    Where there are very many decisions fewer resamples are taken than asked for, at least 100.
    """
    values, resampled, count = _resampled(decided, resamples, seed)
    found = {name: interval(values[name], resampled[name], count) for name in METRICS}
    return Intervals(found, len(resampled["accuracy"]))


def differences(decided: Decided, baseline: Decided, resamples: int = 1000, seed: int = 0) -> Intervals:
    """The scores of one minus those of another on the same decisions, with intervals from the same resamples."""
    same = np.array_equal(decided.actions, baseline.actions) and np.array_equal(decided.episodes, baseline.episodes)
    if not same:
        raise UserError("the two did not decide on the same decisions; compare them on the same demonstrations.")
    ours, theirs = (_resampled(one, resamples, seed) for one in (decided, baseline))
    found = {
        name: interval(ours[0][name] - theirs[0][name], ours[1][name] - theirs[1][name], ours[2]) for name in METRICS
    }
    return Intervals(found, len(ours[1]["accuracy"]))


def confusion(decided: Decided) -> np.ndarray:
    """[actions, actions] how often each action was taken (row) when each was the most probable (column)."""
    count = decided.probabilities.shape[1]
    return np.bincount(count * decided.actions + decided.chosen, minlength=count**2).reshape(count, count)


def per_action(decided: Decided) -> list[ActionScores]:
    """A row an action."""
    table = confusion(decided)
    hits, taken, chosen = table.diagonal(), table.sum(axis=1), table.sum(axis=0)
    with np.errstate(invalid="ignore"):
        precision, recall, f1 = hits / chosen, hits / taken, 2 * hits / (taken + chosen)
    everything = np.ones((1, 1))
    rows, unit = [], np.zeros(len(decided.actions), np.int32)
    for action, count in enumerate(taken):
        areas = _areas(_rankings(decided, action, unit), everything)
        values = (precision[action], recall[action], f1[action], areas.roc[0], areas.precision[0])
        rows.append(ActionScores(int(count), *map(float, values)))
    return rows


def bins_of(confidence: np.ndarray, bins: int) -> np.ndarray:
    """[n] the bin of each probability among `bins` of equal width; an edge belongs to the bin above it."""
    return np.minimum((confidence * bins).astype(np.int32), bins - 1)


class _Prepared(NamedTuple):
    """All that the metrics need, summed and sorted once."""

    units: int
    totals: np.ndarray  # [units, 4]: decisions, right ones, log-losses, squared errors
    taken: Sums  # by action
    right: Sums  # by action
    gaps: Sums  # confidence minus being right, by bin of the confidence
    rankings: list[list[Ranking]]  # of the actions that were taken, fold by fold

    @classmethod
    def of(cls, decided: Decided) -> "_Prepared":
        probabilities, actions = decided.probabilities, decided.actions
        unit, count = numbered(decided.episodes)
        right, confidence = decided.right.astype(np.float64), probabilities.max(axis=1).astype(np.float64)
        return cls(
            units=count,
            totals=_totals(decided, unit, count),
            taken=Sums.of(actions, np.ones(len(actions)), unit),
            right=Sums.of(actions, right, unit),
            gaps=Sums.of(bins_of(confidence, BINS), confidence - right, unit),
            rankings=[_rankings(decided, action, unit) for action in np.unique(actions)],
        )

    def of_actions(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        """What is averaged over actions [actions, resamples], not a number where it is not defined."""
        with np.errstate(invalid="ignore"):
            recalls = self.right.under(weights) / self.taken.under(weights)
        areas = [_areas(rankings, weights) for rankings in self.rankings]
        return {
            "balanced_accuracy": recalls.T,
            "auc": np.array([area.roc for area in areas]),
            "apr": np.array([area.precision for area in areas]),
        }

    def defined(self) -> dict[str, np.ndarray]:
        """[actions] of which an average over actions is, by the name of the average."""
        return {name: ~np.isnan(values[:, 0]) for name, values in self.of_actions(np.ones((1, self.units))).items()}

    def under(self, weights: np.ndarray, averaged: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The metrics [resamples] for weights [resamples, units].

        averaged: [actions] that averages over actions are of; a resample without one of them has no average.
        """
        decisions, right, loss, square = (weights @ self.totals).T
        return {
            "accuracy": right / decisions,
            **{name: _mean(values, averaged[name]) for name, values in self.of_actions(weights).items()},
            "log_loss": loss / decisions,
            "brier": square / decisions,
            "ece": np.abs(self.gaps.under(weights)).sum(axis=1) / decisions,
        }


def _totals(decided: Decided, unit: np.ndarray, count: int) -> np.ndarray:
    """[units, 4] the sums over each unit: decisions, right ones, log-losses, squared errors."""
    probabilities, actions = decided.probabilities, decided.actions
    chance = probabilities[np.arange(len(actions)), actions]
    edge = np.finfo(probabilities.dtype).eps
    loss = -np.log(np.clip(chance, edge, 1 - edge).astype(np.float64))
    square = np.einsum("ij,ij->i", probabilities, probabilities, dtype=np.float64) - 2.0 * chance + 1
    by_unit = [np.bincount(unit, weights, minlength=count) for weights in (None, decided.right, loss, square)]
    return np.stack(by_unit, axis=1).astype(np.float64)


def _rankings(decided: Decided, action: int, unit: np.ndarray) -> list[Ranking]:
    """Decisions by the probability of an action, fold by fold."""
    folds = np.zeros(len(unit), np.int8) if decided.folds is None else decided.folds
    parts = [np.flatnonzero(folds == fold) for fold in np.unique(folds)]
    return [Ranking.of(decided.probabilities[p, action], decided.actions[p] == action, unit[p]) for p in parts]


def _areas(rankings: list[Ranking], weights: np.ndarray) -> Areas:
    return Areas.together([ranking.areas(weights) for ranking in rankings])


def _mean(values: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The mean of values [actions, resamples] over the wanted actions."""
    return values[wanted].mean(axis=0) if wanted.any() else np.full(values.shape[1], np.nan)


def _resampled(decided: Decided, resamples: int, seed: int) -> tuple[dict[str, float], dict[str, np.ndarray], int]:
    """The metrics of all decisions, those of every resample, and the number of units."""
    prepared = _Prepared.of(decided)
    rows = len(decided.actions)
    resamples = affordable(resamples, rows, len(prepared.rankings) + 3)
    averaged = prepared.defined()
    parts = [prepared.under(weights, averaged) for weights in unit_counts(prepared.units, resamples, rows, seed)]
    whole = prepared.under(np.ones((1, prepared.units)), averaged)
    resampled = {name: np.concatenate([part[name] for part in parts]) for name in METRICS}
    return {name: float(value[0]) for name, value in whole.items()}, resampled, prepared.units
