"""The choice of the measure that tells a policy's users which states are unfamiliar.

Every measure gets a threshold that real states exceed in 1 % of cases. Then the measures are compared on copies of real
states with a fault that happens in practice: a number times 100 (percent for a fraction), divided by 18 (another unit),
an absurd value, or two columns swapped. The measure that flags most of them is kept.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from sbil.demonstrations import Demonstrations
from sbil.errors import UserError
from sbil.evaluation.areas import ranking
from sbil.padding import filled
from sbil.policy import Policy
from sbil.policy.guard import Guard, learned
from sbil.policy.guard_measures import NAMES, Measure, fitted, quantiles_of
from sbil.policy.training_states import some_states

CLEAN = 0.01  # of the real states are flagged, for every measure
MOST_CLEAN, COST = 0.02, 5.0  # of them, and what each share beyond costs, in shares of the faulty states
CLOSE = 0.01  # a measure must flag more by this much to be kept instead of a simpler one
FEWEST = 40  # states without which nothing is chosen
MOST = 2_000  # states that are looked at
MOST_LEARNED = 10_000  # states that measures are made from
HELD_OUT = 0.3  # of the training data, if nothing else is held out
ABSURD = 99_999.0
EXTREME = 1e30  # no number is put beyond


class Rates(NamedTuple):
    """What a measure flags at its threshold."""

    clean: float  # of the real states
    found: Mapping[str, float]  # of the states with each fault
    area: float  # under the ROC curve over all faults; below 0.5 is worse than chance

    @property
    def mean(self) -> float:
        """The mean over the faults."""
        return float(np.mean([*self.found.values()]))

    def as_json(self) -> dict[str, Any]:
        found = {name: round(share, 3) for name, share in self.found.items()}
        return {"clean": round(self.clean, 3), "found": found, "area": round(self.area, 3)}


def with_measure(policy: Policy, training: Demonstrations, held_out: Demonstrations | None = None) -> Policy:
    """The policy with the measure that works best on its data; unchanged if it has no ranges or too few states.

    held_out: decisions that the policy was not trained on. Without them a part of the training data is kept from the
        measures; the network knows it.
    """
    if policy.guard is None or (held_out is None and training.steps < FEWEST):
        return policy
    known, units = _states(training, MOST_LEARNED)
    if held_out is not None:
        real, groups = _states(held_out, MOST)
    else:
        out = _part(units, HELD_OUT)
        real, groups, known, units = known[out][:MOST], units[out][:MOST], known[~out], units[~out]
    if len(real) < FEWEST:
        return policy
    codes = policy.schema.codes if policy.schema else ()
    guard = policy.guard if held_out is not None else learned(known, units, codes)
    if guard is None:
        return policy
    found = compared(policy, guard, known, real, groups)
    name = best({name: rates for name, (rates, _) in found.items()})
    rates = {name: one.as_json() for name, (one, _) in found.items()}
    outside = round(float(guard.outside(real).any(axis=1).mean()), 3)
    facts = {"states": len(real), "held_out": held_out is not None, "asked": CLEAN, "outside": outside}
    record = {**facts, "measures": rates}
    kept = fitted(name, _states(training, MOST_LEARNED)[0])
    assert kept is not None
    chosen = replace(kept, scores=quantiles_of(found[name][1]), record=record)
    return replace(policy, guard=replace(policy.guard, measure=chosen))


def compared(
    policy: Policy, guard: Guard, known: np.ndarray, real: np.ndarray, groups: np.ndarray
) -> dict[str, tuple[Rates, np.ndarray]]:
    """For each measure its rates, and its scores of real states.

    The threshold is taken from one half of the real states, by group, and the rates from the other; then the halves
    change places.
    """
    faulty = faults(real, guard)
    half = _part(groups, 0.5)
    found: dict[str, tuple[Rates, np.ndarray]] = {}
    for name in NAMES:
        measure = fitted(name, known)
        if measure is None:
            continue
        try:
            clean = _scores(policy, guard, measure, real)
            wrong = {kind: _scores(policy, guard, measure, rows)[changed] for kind, (rows, changed) in faulty.items()}
        except UserError:  # the network has no finite answer
            continue
        flagged = np.zeros(len(real), bool)
        shares: dict[str, list[np.ndarray]] = {kind: [] for kind in wrong}
        for side in (half, ~half):
            threshold = replace(measure, scores=quantiles_of(clean[~side]))
            flagged[side] = threshold.percentile(clean[side]) > 100 * (1 - CLEAN)
            for kind, (_, changed) in faulty.items():
                shares[kind].append(threshold.percentile(wrong[kind][side[changed]]) > 100 * (1 - CLEAN))
        rates = {kind: float(np.concatenate(parts).mean()) for kind, parts in shares.items()}
        found[name] = Rates(float(flagged.mean()), rates, area(np.concatenate([*wrong.values()]), clean)), clean
    return found


def best(found: Mapping[str, Rates]) -> str:
    """The measure to keep: it flags most faults on average. Flagging many real states counts against it."""
    worth = {name: rates.mean - COST * max(rates.clean - MOST_CLEAN, 0.0) for name, rates in found.items()}
    return next(name for name, value in worth.items() if value >= max(worth.values()) - CLOSE)


def faults(real: np.ndarray, guard: Guard) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """For each fault: real states with it, and which of them are really changed. Each has it in a column at random."""
    rng, rows = np.random.default_rng(0), np.arange(len(real))
    numbers = np.flatnonzero((guard.whole == 0) & (guard.quantiles[:, 0] < guard.quantiles[:, -1]))
    columns = numbers if len(numbers) else np.arange(real.shape[1])
    chosen = rng.choice(columns, len(real))
    values = real[rows, chosen].astype(np.float64)
    width = (guard.high - guard.low).astype(np.float64)
    absurd = np.maximum(ABSURD, guard.high + 10 * width)[chosen]
    found = {}
    for kind, instead in (("times 100", values * 100), ("over 18", values / 18), ("absurd", absurd)):
        made = real.astype(np.float64)
        made[rows, chosen] = np.clip(instead, -EXTREME, EXTREME)
        found[kind] = made.astype(np.float32)
    if len(columns) > 1:
        other = columns[(np.searchsorted(columns, chosen) + rng.integers(1, len(columns), len(real))) % len(columns)]
        swapped = real.astype(np.float32)
        swapped[rows, chosen], swapped[rows, other] = real[rows, other], real[rows, chosen]
        found["swapped"] = swapped
    changed = {kind: (made, (made != real.astype(np.float32)).any(axis=1)) for kind, made in found.items()}
    return {kind: pair for kind, pair in changed.items() if pair[1].any()}


def area(wrong: np.ndarray, clean: np.ndarray) -> float:
    """How often a faulty state has the higher score of two; 0.5 is chance."""
    scores, positive = np.concatenate([wrong, clean]), np.arange(len(wrong) + len(clean)) < len(wrong)
    return float(ranking(scores, positive, np.zeros(len(scores), int))(np.ones((1, 1))).roc[0])


def _scores(policy: Policy, guard: Guard, measure: Measure, rows: np.ndarray) -> np.ndarray:
    if measure.name == "range":
        return guard.beyond(rows)
    if measure.parts:
        return measure.score(rows)
    return policy.unfamiliarity(filled(rows), measure)[: len(rows)]


def _states(demonstrations: Demonstrations, most: int) -> tuple[np.ndarray, np.ndarray]:
    """At most so many states, drawn at random, and the unit of each: its trajectory, or its group."""
    states, episode = some_states(demonstrations)
    units = episode if demonstrations.groups is None else demonstrations.groups[episode]
    if len(states) <= most:
        return states, units
    chosen = np.sort(np.random.default_rng(0).choice(len(states), most, replace=False))
    return states[chosen], units[chosen]


def _part(units: np.ndarray, share: float) -> np.ndarray:
    """[n] whether a row is in a part of about this share; units stay whole if there are at least twenty."""
    names, number = np.unique(units, return_inverse=True)
    if len(names) < 20:
        number, names = np.arange(len(units)), np.arange(len(units))
    out = np.zeros(len(names), bool)
    out[np.random.default_rng(0).permutation(len(names))[: round(share * len(names))]] = True
    return out[number]
