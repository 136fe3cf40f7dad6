"""Where a policy would go: it acts in a model of what follows a decision, which is learned from demonstrations."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy.spatial.distance import cdist

from sbil.choosing import Draw, Judges, Progress, facts_of, judge
from sbil.dataset import Dataset, make_dataset
from sbil.demonstrations import Demonstrations
from sbil.dynamics.measures import CAP, STARTS, measures_of
from sbil.dynamics.model import Model
from sbil.dynamics.rollouts import Reference, Rollouts, imagine
from sbil.errors import UserError
from sbil.evaluation.decided import must_match
from sbil.folds import FOLDS
from sbil.keys import named
from sbil.policy import Policy
from sbil.statistics import Interval, evenly, interval, means_over_both
from sbil.text import counted

FIRSTS = 64  # first states of episodes from which a policy starts
RECORDED = 1000  # recorded episodes that imagined ones are shown with
REACHED = 0.9  # of the episodes are not longer than what is imagined
WITHIN = 0.95  # of the recorded states are near; what is farther away is outside
LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)  # quantiles of a fan
FANS = 4  # columns


class Unimaginable(UserError):
    """There is no model that a policy could act in."""


class Fan(NamedTuple):
    """Imagined values of a column over recorded ones, from the first states of episodes, in the units of the data."""

    column: str
    drift: float  # how far imagined quantiles are from recorded ones, in standard deviations of the column
    recorded: np.ndarray  # [LEVELS, 1 + steps], quantiles over the episodes that go on
    imagined: np.ndarray  # likewise; NaN where every episode has ended


@dataclass(frozen=True, eq=False)
class Imagined:
    """What a policy does in a model. Distances are in standard deviations, and intervals over members and starts.

    horizon: the steps for which the model is trusted; every number is about these.
    near, drift: the mean distance to the nearest recorded state, from any recorded state and from first states of
        episodes; at most 4.
    recorded: the same distance of recorded states to those of other episodes.
    outside: the distance within which 95 % of recorded states lie.
    left: the share of imagined episodes that are outside at the horizon, or were when they ended.
    left_at: the step from which half of these are outside.
    ended, recorded_ended: the share of episodes that end within the horizon; None if no end is recorded.
    energy: the energy distance between the states visited and the recorded ones.
    model: what the model says of itself: R2 of the next state, of the step of each column, of the state after 1, 2, ...
        steps.
    fans: the columns that drift most, also beyond the horizon.
    """

    horizon: int
    near: Interval
    drift: Interval
    recorded: float
    outside: float
    left: Interval
    left_at: int | None
    ended: Interval | None
    recorded_ended: float | None
    energy: float
    model: Mapping[str, Any]
    fans: tuple[Fan, ...]

    @property
    def warning(self) -> str:
        """A sentence if the policy leaves the recorded states clearly more than twice as often as new episodes do."""
        if not self.left.low > 2 * (1 - WITHIN):
            return ""
        return (
            f"The policy leaves the recorded states: after {counted(self.horizon, 'step')}, {self.left.value:.0%} of "
            f"imagined episodes are farther from them than {WITHIN:.0%} of recorded states are from other episodes, "
            f"half of these since step {self.left_at}. Do not trust the policy there."
        )

    def as_json(self) -> dict[str, Any]:
        """Everything as plain values; what is not a number is None."""
        facts = {name: _plain(value) for name, value in vars(self).items()}
        return {**facts, "warning": self.warning, "levels": list(LEVELS)}

    @property
    def facts(self) -> list[str]:
        """What was found, one line each."""
        explained = f"{self.model['r2_of_next_state']:.1%}"
        lines = [
            f"it acts for {counted(self.horizon, 'step')} in a model learned from these decisions, which explains "
            f"{explained} of the next state; over more steps the model is not trusted",
            f"distance to the nearest recorded state, in standard deviations: {_shown(self.drift)} from first states, "
            f"{_shown(self.near)} from any; of recorded states to other episodes: {self.recorded:.2f}",
            f"farther away in the end than {WITHIN:.0%} of recorded states: {_shown(self.left, '.0%')} of imagined "
            "episodes",
        ]
        if self.ended:
            lines.append(f"ended by then: {_shown(self.ended, '.0%')}; of recorded episodes: {self.recorded_ended:.0%}")
        if self.fans:
            most = ", ".join(f"{fan.column} ({fan.drift:.2f})" for fan in self.fans)
            lines.append(f"columns that differ most from recorded ones, in standard deviations: {most}")
        return lines

    def __str__(self) -> str:
        lines = ["Where the policy would go", *(f"  {fact}" for fact in self.facts)]
        return "\n".join([*lines, *([f"warning: {self.warning}"] if self.warning else [])])


def _plain(value: Any) -> Any:
    if isinstance(value, Interval):
        return value.as_json()
    if isinstance(value, Fan):
        return {name: _plain(part) for name, part in value._asdict().items()}
    if isinstance(value, np.ndarray | tuple):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _shown(found: Interval, form: str = ".2f") -> str:
    return f"{found.value:{form}} [{found.low:{form}}, {found.high:{form}}]"


def imagined(policy: Policy, demonstrations: Demonstrations, seed: int = 0) -> Imagined:
    """Learn what follows a decision from demonstrations, and let the policy act there as `policy.act` does.

    Where no model can be learned, or none can be trusted, there is a UserError, `Unimaginable`.
    """
    must_match(policy, demonstrations)
    dataset = make_dataset(demonstrations, [np.arange(len(demonstrations))])
    key = named("imagined", seed)
    draw = Draw.of(demonstrations, policy.spec, dataset, key)
    why, judges = judge(draw, Progress())
    if why or not judges:
        raise Unimaginable(f"where the policy would go cannot be imagined: {why}.")
    return _rehearsed(policy, demonstrations, dataset, judges, key)


def imagined_or_why(policy: Policy, demonstrations: Demonstrations) -> Imagined | str:
    """Where the policy would go, or a sentence that says why that is not known."""
    try:
        return imagined(policy, demonstrations)
    except Unimaginable as error:
        return str(error)


def _rehearsed(
    policy: Policy, demonstrations: Demonstrations, dataset: Dataset, judges: Judges, key: jax.Array
) -> Imagined:
    model, view = jax.tree.map(lambda leaf: leaf[0], (judges.models, judges.views))
    longest = int(np.quantile(demonstrations.lengths, REACHED, method="lower"))
    horizon = min(int(judges.horizons[0]), longest)
    firsts = np.stack([demonstrations.trajectories[i].observations[0] for i in evenly(len(demonstrations), FIRSTS)])
    reference = Reference(model.standardised(view.reference), view.mask)
    starts = np.concatenate([view.starts, firsts])
    rollouts = _act(key, model, policy.plain_network, starts, reference, min(2 * horizon, longest))
    anywhere, episodes = (
        jax.tree.map(lambda leaf, own=own: leaf[:, :, own], rollouts) for own in (slice(STARTS), slice(STARTS, None))
    )
    found = measures_of(anywhere, episodes, reference, horizon)
    apart = _apart(reference, np.asarray(view.place), dataset, demonstrations.groups)
    far = float(np.quantile(apart, WITHIN))
    outside = np.asarray(episodes.distance[:horizon]) > far
    ends = bool(model.ends)
    after = np.asarray(judges.trust.after[0], float)
    return Imagined(
        horizon=horizon,
        near=_interval(found.near),
        drift=_interval(found.drift),
        recorded=float(np.minimum(apart, CAP).mean()),
        outside=far,
        left=_interval(outside[-1]),
        left_at=_since(outside),
        ended=_interval(episodes.ended[horizon - 1]) if ends else None,
        recorded_ended=_recorded_ended(demonstrations, horizon) if ends else None,
        energy=float(found.energy),
        model={**facts_of(judges, demonstrations.observation_names)["model"], "r2_after": _plain(after)},
        fans=_fans(demonstrations, model, firsts, episodes, horizon),
    )


_act = jax.jit(imagine, static_argnames="horizon")


def _interval(values: Any) -> Interval:
    """The mean of values [members, starts]."""
    values = np.asarray(values, float)
    return interval(values.mean(), means_over_both(values, np.random.default_rng(0)), units=values.size)


def _apart(reference: Reference, place: np.ndarray, dataset: Dataset, groups: np.ndarray | None) -> np.ndarray:
    """How far each recorded state is from those of other episodes or groups, or other stretches of a single one."""
    kept = np.asarray(reference.mask)
    states, place = np.asarray(reference.state)[kept], place[kept]
    unit = np.asarray(dataset.pool.trajectory)[place]
    unit = unit if groups is None else groups[unit]
    if (unit == unit[0]).all():
        unit = place * FOLDS // (place.max() + 1)
    distances = np.where(unit[:, None] == unit, np.inf, cdist(states, states)).min(axis=1)
    return distances[np.isfinite(distances)]


def _since(outside: np.ndarray) -> int | None:
    """The step from which half of the episodes that are outside at the end are outside; outside: [steps, ...]."""
    last = outside[:, outside[-1]]
    return int(np.median(1 + (len(last) - np.argmin(last[::-1], axis=0)) * ~last.all(axis=0))) if last.size else None


def _recorded_ended(demonstrations: Demonstrations, horizon: int) -> float:
    return float(np.mean([one.terminal and len(one) <= horizon for one in demonstrations.trajectories]))


# Fans


def _fans(
    demonstrations: Demonstrations,
    model: Model,
    firsts: np.ndarray,
    episodes: Rollouts,
    horizon: int,
) -> tuple[Fan, ...]:
    """The continuous columns whose imagined values differ most from recorded ones."""
    steps = len(episodes.distance)
    some = [demonstrations.trajectories[i].observations for i in evenly(len(demonstrations), RECORDED)]
    values = np.zeros((1 + steps, len(some), len(firsts[0])))
    for number, own in enumerate(some):
        values[: len(own), number] = own[: 1 + steps]
    recorded = _bands(values, np.arange(1 + steps)[:, None] < [len(own) for own in some])
    states = np.asarray(model.plain(episodes.state)).reshape(steps, -1, len(firsts[0]))
    going = ~np.asarray(episodes.ended).reshape(steps, -1)
    begun = np.broadcast_to(firsts, (episodes.state.shape[1], *firsts.shape)).reshape(1, *states[0].shape)
    imagined = _bands(np.concatenate([begun, states]), np.concatenate([np.ones_like(going[:1]), going]))
    apart = np.abs(imagined - recorded)[:, 1 : 1 + horizon] / np.asarray(model.scale)
    drift = np.where(np.isnan(apart), 0.0, apart).mean(axis=(0, 1))
    continuous = ~np.asarray(model.discrete)
    order = [column for column in np.argsort(-drift, kind="stable") if continuous[column]]
    names = demonstrations.observation_names
    return tuple(
        Fan(names[column], float(drift[column]), recorded[..., column], imagined[..., column])
        for column in order[:FANS]
    )


def _bands(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """[LEVELS, steps, columns], quantiles of values [steps, n, columns] where `counts` [steps, n]; NaN if none does."""
    none = np.full((len(LEVELS), values.shape[2]), np.nan)
    parts = zip(values, counts, strict=True)
    return np.stack([np.quantile(own[keep], LEVELS, axis=0) if keep.any() else none for own, keep in parts], axis=1)
