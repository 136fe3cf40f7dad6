"""Score finished policies: play them in an environment, or compare them with recorded decisions."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from pathlib import Path
from typing import Any, overload

import numpy as np

from sbil import demonstrators, environments
from sbil.api.methods import algorithm_of, decided_by_methods
from sbil.api.notes import notes, notes_on_held_out
from sbil.demonstrations import Demonstrations, read_observations
from sbil.demonstrations.schema import OTHER
from sbil.environments.base import HostEnvironment, JaxEnvironment
from sbil.errors import UserError, flag, unknown, whole
from sbil.evaluation.alarm import Alarm, alarm_of, outside
from sbil.evaluation.calibration import reliability
from sbil.evaluation.decided import Decided, unit_of_intervals
from sbil.evaluation.familiarity import Familiarity, familiarity
from sbil.evaluation.imagined import Imagined, imagined_or_why
from sbil.evaluation.live import Policies, call, play
from sbil.evaluation.matching import Agreement, MethodScores, confusion, per_action, scores_of_methods
from sbil.evaluation.verdict import Verdict
from sbil.fitting import demonstrations_of
from sbil.keys import named
from sbil.policy import Policy
from sbil.statistics import bootstrap
from sbil.text import counted
from sbil.training import stack

NOT_ASKED = "to see where the policy would go, give imagine=True (--imagine): it learns a model, which takes a while"


@dataclass(frozen=True, eq=False)
class LiveReturns:
    """The returns of a policy in an environment.

    low, high: the ends of the 95 % interval of the mean, over episodes.
    scaled: the mean return on the scale random network 0, demonstrator 1.
    demonstrator: the one of that scale. Both are None if no demonstrator was measured.
    """

    environment: str
    returns: np.ndarray  # [episodes]
    low: float
    high: float
    demonstrator: str | None
    scaled: float | None

    @property
    def mean(self) -> float:
        return float(self.returns.mean())

    def as_json(self) -> dict[str, Any]:
        facts = {name: value for name, value in vars(self).items() if name != "returns"}
        ends = {"min": float(self.returns.min()), "max": float(self.returns.max())}
        return {**facts, "episodes": len(self.returns), "mean": self.mean, **ends}

    def __str__(self) -> str:
        told = (
            f"{self.environment}: mean return {self.mean:.2f} [{self.low:.2f}, {self.high:.2f}] over "
            f"{counted(len(self.returns), 'episode')} (min {self.returns.min():g}, max {self.returns.max():g})"
        )
        if self.scaled is None:
            return f"{told}; not scaled, because no demonstrator was measured there"
        return f"{told}; scaled {self.scaled:.3f} (0: random network, 1: {self.demonstrator} demonstrator)"


@dataclass(frozen=True, eq=False)
class MatchedDecisions:
    """How well a policy matches recorded decisions.

    compared: every metric with its interval, one row per method: the baselines, BC, for tables logistic regression and
        trees, and the policy.
    verdict: whether the policy is better or worse than the other methods.
    notes: reasons why the scores may say less than they seem to.
    familiarity: whether the policy knows which states are new to it; None for images.
    outside: [decisions, columns] which numbers lie outside their range in training; None if the ranges are not known.
    alarm: the states beside those of training, in a sentence; None likewise.
    imagined: where the policy would go if it acted; None if that was not asked for or there is no model.
    not_imagined: why it is None, in words.
    """

    data: Demonstrations
    decided: Decided
    agreement: Agreement
    compared: tuple[MethodScores, ...]
    notes: tuple[str, ...]
    familiarity: Familiarity | None
    outside: np.ndarray | None
    alarm: Alarm | None
    imagined: Imagined | None
    not_imagined: str
    verdict: Verdict

    def as_json(self) -> dict[str, Any]:
        """Everything as plain values; what is not a number is None."""
        rows = zip(self.data.action_names, per_action(self.decided), strict=True)
        return {
            **self.agreement._asdict(),
            "compared": [row.as_json() for row in self.compared],
            "verdict": self.verdict.as_json(),
            "notes": list(self.notes),
            "resampled": unit_of_intervals(self.data),
            "familiarity": self.familiarity.as_json() if self.familiarity else None,
            "alarm": self.alarm.as_json() if self.alarm else None,
            "imagined": self.imagined.as_json() if self.imagined else None,
            "not_imagined": self.not_imagined,
            "actions": [{"action": name, **_plain(row._asdict())} for name, row in rows],
            "confusion": confusion(self.decided).tolist(),
            "reliability": [part._asdict() for part in reliability(self.decided)],
        }


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: None if isinstance(value, float) and math.isnan(value) else value for key, value in values.items()}


Given = Policy | str | Path  # a policy, or the path of its folder
Several = Mapping[str, Given] | Sequence[Given]


@overload
def evaluate(
    policy: Given,
    on: JaxEnvironment | HostEnvironment,
    *,
    episodes: int = 300,
    seed: int = 0,
    sampled: bool = False,
) -> LiveReturns: ...
@overload
def evaluate(
    policy: Given,
    on: str,  # the name of an environment, or a path
    *,
    episodes: int = 300,
    seed: int = 0,
    sampled: bool = False,
    columns: Mapping[str, Any] | None = None,
    training: Any = None,
    another: Any = None,
    imagine: bool = False,
) -> LiveReturns | MatchedDecisions: ...
@overload
def evaluate(
    policy: Given,
    on: Any,  # Demonstrations, a path or a data frame
    *,
    columns: Mapping[str, Any] | None = None,
    training: Any = None,
    another: Any = None,
    imagine: bool = False,
) -> MatchedDecisions: ...
@overload
def evaluate(
    policy: Several,
    on: Any,
    *,
    episodes: int = 300,
    seed: int = 0,
    sampled: bool = False,
    columns: Mapping[str, Any] | None = None,
    training: Any = None,
    another: Any = None,
    imagine: bool = False,
) -> dict[str, Any]: ...
def evaluate(policy: Any, on: Any, **how: Any) -> Any:
    """Score one policy or many: play them in an environment, or compare them with recorded decisions.

        sbil.evaluate(policy, "CartPole-v1", episodes=300).mean
        sbil.evaluate(policy, "later.csv", training="stays.csv").agreement.accuracy
        sbil.evaluate({"bc": one, "edm": other}, later)["edm"].compared

    policy: a Policy, the path of its folder, or several policies: a list, or a dict by name. Several give a dict of
        results.
    on: an environment, or its name, such as CartPole-v1: the result is `LiveReturns`. Or Demonstrations, a path or a
        data frame: the result is `MatchedDecisions`. A keyword that has no effect is refused.

    With an environment:

    episodes: how many whole episodes are played (300).
    seed: the seed of the episodes (0).
    sampled: draw actions from the policy; otherwise the most probable action is taken.

    With recorded decisions:

    columns: what the columns of the table mean, where it differs from the training of the policy. Its `exclude`
        concerns `training`, and its `only` concerns the recorded decisions.
    training: what the policy was trained on. It adds BC, the previous action, for tables logistic regression and trees,
        and the distance to the nearest training states to the comparison.
    another: a table of another population: measure how well its states are distinguished from the recorded ones.
    imagine: learn from the recorded decisions what follows a decision, and let the policy act in that model. It takes
        seconds.
    """
    _must_concern(on, how)
    if isinstance(policy, Mapping | Sequence) and not policy:
        raise UserError("there is no policy to evaluate; give a Policy, the path of its folder, or several of them.")
    if isinstance(policy, Mapping):
        return {name: evaluate(one, on, **how) for name, one in policy.items()}
    if isinstance(policy, Sequence) and not isinstance(policy, str):
        return evaluate(_named(policy), on, **how)
    policy = policy if isinstance(policy, Policy) else Policy.load(policy)
    return evaluate_live(policy, on, **how) if is_environment(on) else evaluate_decisions(policy, on, **how)


def _must_concern(on: Any, how: Mapping[str, Any]) -> None:
    """Refuse keywords that would have no effect: some are for playing, others for recorded decisions."""
    live, matching = _keywords(evaluate_live), _keywords(evaluate_decisions)
    own, there = (live, "an environment") if is_environment(on) else (matching, "recorded decisions")
    for name in how.keys() - own:
        if name in live | matching:
            raise UserError(f"{name} has no effect with {there}; leave it out.")
        raise unknown("keyword of evaluate", name, own)


def _keywords(function: Callable[..., Any]) -> set[str]:
    return {each.name for each in signature(function).parameters.values() if each.kind is each.KEYWORD_ONLY}


def _named(policies: Sequence[Given]) -> dict[str, Policy]:
    """The policies by the names of their algorithms, numbered where several have one name."""
    found: dict[str, Policy] = {}
    for given in policies:
        policy = given if isinstance(given, Policy) else Policy.load(given)
        name, number = algorithm_of(policy), 2
        while name in found:
            name, number = f"{algorithm_of(policy)} {number}", number + 1
        found[name] = policy
    return found


def is_environment(on: Any) -> bool:
    """Whether something is an environment, or a name like NAME-v0 or a bare word that is not a file."""
    if isinstance(on, str):
        return bool(re.fullmatch(r"(?!minari:).*-v\d+|\w+", on)) and not Path(on).exists()
    return isinstance(on, JaxEnvironment | HostEnvironment)


def evaluate_live(
    policy: Policy,
    environment: str | JaxEnvironment | HostEnvironment,
    *,
    episodes: int = 300,
    seed: int = 0,
    sampled: bool = False,
) -> LiveReturns:
    """Play `episodes` whole episodes.

    sampled: draw actions from the policy; otherwise the most probable action is taken.
    """
    environment = environments.get(environment)
    seed, sampled = whole("seed", seed), flag("sampled", sampled)
    environments.must_fit(environment, policy.spec)
    key = named("sbil evaluate", environment.name, seed)
    policies = Policies(call, stack([policy.plain_network]))
    returns = play(environment, policies, key, episodes, greedy=not sampled)[0]
    who = demonstrators.suited(environment.name, policy=policy)
    scaled = None
    if who:
        zero, one = environments.scale(environment.name, *who)
        scaled = (float(returns.mean()) - zero) / (one - zero)
    return LiveReturns(environment.name, returns, *bootstrap(returns), f"{who[1]} {who[0]}" if who else None, scaled)


def evaluate_decisions(
    policy: Policy,
    data: Any,
    *,
    columns: Mapping[str, Any] | None = None,
    training: Any = None,
    another: Any = None,
    imagine: bool = False,
) -> MatchedDecisions:
    """Compare a policy with recorded decisions, and ask whether it knows which states are new to it.

    data: Demonstrations, a path or a data frame; tables are read with the columns that the policy was trained on,
        which `columns` may change. Of these, `exclude` concerns `training` and `only` concerns `data`.
    training: what the policy was trained on. It adds BC, the previous action, for tables logistic regression and trees,
        and the distance to the nearest training states to the comparison.
    another: a table of another population: measure how well its states are distinguished from those of `data`.
    imagine: learn from `data` what follows a decision, and let the policy act in that model. It takes seconds.
    """
    imagine = flag("imagine", imagine)
    if another is not None and policy.schema is None:
        raise UserError("another population needs a policy that was trained on a table: its columns are not known.")
    columns = columns or {}
    unweighted = replace(policy.schema, weights=None) if policy.schema else None  # scores need no weights
    held_out = as_trained_on(replace(policy, schema=unweighted), data, {**columns, "exclude": ()})
    known = None if training is None else as_trained_on(policy, training, {**columns, "only": ()})
    others = None if another is None else read_observations(another, policy.schema).observations  # type: ignore[arg-type]
    found, name = decided_by_methods(policy, held_out, known), algorithm_of(policy)
    learned = bool(notes_on_held_out(held_out, policy.provenance.get("data", {})))
    images = len(policy.spec.observation_shape) > 1
    going = imagined_or_why(policy, held_out) if imagine else NOT_ASKED
    return MatchedDecisions(
        data=held_out,
        decided=found[name],
        agreement=Agreement.of(found[name]),
        compared=scores_of_methods(found),
        notes=tuple(notes(policy, held_out, known)),
        familiarity=None if images else familiarity(policy, held_out, known, others),
        outside=outside(policy, held_out),
        alarm=alarm_of(policy, held_out, found[name].episodes),
        imagined=None if isinstance(going, str) else going,
        not_imagined=going if isinstance(going, str) else "",
        verdict=Verdict.of(found, name, held_out.unit, known=learned),
    )


def as_trained_on(policy: Policy, data: Any, columns: Mapping[str, Any] | None = None) -> Demonstrations:
    """The demonstrations, or those in a table that is read as the one that the policy was trained on."""
    if isinstance(data, Demonstrations):
        return data
    given = {name: value for name, value in (columns or {}).items() if value not in (None, ())}
    found = demonstrations_of(data, {"schema": policy.schema, **given})
    if found.action_names == (*policy.action_names, OTHER):
        raise UserError(
            f"some decisions have an action that the policy does not know, and it has no action '{OTHER}' to count "
            "them as; leave these rows out, or train it with unseen=other (--unseen other)."
        )
    return found
