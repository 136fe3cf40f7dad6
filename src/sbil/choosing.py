"""Which policy to keep: the candidates are trained, and the demonstrations alone say which of them to take.

By imagined rollouts: every candidate is trained on all demonstrations and acts in a model of the dynamics that was
learned from them. The one that stays nearest to the demonstrated states is kept. Where the model cannot be trusted, the
held-out log-loss of cross-validation decides.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from sbil.dataset import Dataset, Spec
from sbil.dynamics.measures import SHORTEST, Measures, View, horizons_of, measure_many, views_of
from sbil.dynamics.model import Model, Trust, learn
from sbil.dynamics.triples import triples_of
from sbil.errors import UserError
from sbil.folds import FOLDS
from sbil.selection import Candidate, Criterion, Job, select, trainings
from sbil.text import counted
from sbil.training import Report, Trained

RESAMPLES = 1000
FEW = 10  # steps with a known successor: with fewer the model is not even tried

Tell = Callable[[float, Report], None]


class Judges(NamedTuple):
    """The models of R draws, what they say of themselves, and how long policies act in them."""

    models: Model
    trust: Trust
    views: View
    horizons: np.ndarray  # [R]

    @property
    def trusted(self) -> np.ndarray:
        """[R], whether a model can choose a policy."""
        return self.horizons >= SHORTEST


def judges_of(
    spec: Spec,
    dataset: Dataset,
    keys: PRNGKeyArray,
    *,
    groups: np.ndarray | None = None,
    one_hot: Sequence[Sequence[int]] = (),
) -> Judges:
    """Learn the models of R draws."""
    triples = triples_of(dataset, groups, one_hot)
    models, trust = jax.vmap(partial(learn, actions=spec.actions))(keys, triples)
    return Judges(models, trust, views_of(dataset), horizons_of(trust))


def judged(judges: Judges, keys: PRNGKeyArray, trained: Trained, runs: np.ndarray) -> Measures:
    """Let trained policies act in the models of their runs."""
    horizons = np.maximum(judges.horizons[runs], 1)
    return measure_many(keys[runs], judges.models, judges.views, trained.states.network, runs, horizons)


@dataclass(frozen=True)
class Choice:
    """The candidate that is kept, and what a policy records of the choice."""

    candidate: Candidate
    record: dict[str, Any]
    trained: Trained | None = None  # its finished run, if the choice trained it on everything


def choose(
    spec: Spec,
    candidates: Sequence[Candidate],
    dataset: Dataset,
    key: PRNGKeyArray,
    *,
    criterion: Criterion,
    groups: np.ndarray | None = None,
    one_hot: Sequence[Sequence[int]] = (),
    names: Sequence[str] = (),
    watch: Tell | None = None,
) -> Choice:
    """Choose among candidates for a dataset of one run.

    names: of the columns, for the record.
    """
    keys = key[None]
    if criterion in ("log_loss", "error"):
        return _by_crossvalidation(spec, candidates, dataset, keys, criterion, groups, watch, {})
    why, judges = _judge(spec, dataset, keys, groups, one_hot)
    facts = _facts(judges, names) if judges else {}
    if not why and judges:
        return _by_imagination(spec, candidates, dataset, keys, judges, facts, watch)
    if criterion == "imagined":
        raise UserError(f"imagined rollouts cannot choose here: {why}; use the criterion auto, log_loss or error.")
    first = [candidate for candidate in candidates if candidate.network == 0]
    return _by_crossvalidation(spec, first, dataset, keys, "log_loss", groups, watch, {"why": why, **facts})


def _judge(
    spec: Spec, dataset: Dataset, keys: PRNGKeyArray, groups: np.ndarray | None, one_hot: Sequence[Sequence[int]]
) -> tuple[str, Judges | None]:
    """(why no model can choose, or nothing; the model)."""
    if dataset.pool.images:
        return "the observations are images", None
    steps = np.asarray(dataset.labelled.indices[0])[: int(dataset.labelled.size[0])]
    known = int(np.asarray(dataset.pool.has_next)[steps].sum())
    if known == 0:
        return "no decision has its next state recorded", None
    if known < FEW:
        return f"only {known} decisions have their next state recorded, and a model needs {FEW}", None
    judges = judges_of(spec, dataset, keys, groups=groups, one_hot=one_hot)
    if judges.trusted[0]:
        return "", judges
    return f"the model of the dynamics predicts too little (R2 of the next state {_r2_next(judges):.2f})", judges


def _r2_next(judges: Judges) -> float:
    return float(judges.trust.r2_after[0, 0])


def _facts(judges: Judges, names: Sequence[str]) -> dict[str, Any]:
    """What the model says of itself, as plain values."""
    r2 = {name: _plain(value) for name, value in zip(names, np.asarray(judges.trust.r2[0]), strict=True)}
    horizon = int(judges.horizons[0])
    return {"model": {"r2_of_next_state": _plain(_r2_next(judges)), "r2_of_step": r2, "horizon": horizon}}


def _plain(value: Any) -> float | None:
    return round(float(value), 6) if np.isfinite(value) else None


def _by_crossvalidation(
    spec: Spec,
    candidates: Sequence[Candidate],
    dataset: Dataset,
    keys: PRNGKeyArray,
    criterion: Literal["log_loss", "error"],
    groups: np.ndarray | None,
    watch: Tell | None,
    facts: dict[str, Any],
) -> Choice:
    found = select(spec, candidates, dataset, keys, criterion=criterion, groups=groups, watch=watch)
    chosen = candidates[found.chosen[0]]
    scores = {"held_out_log_loss": found.losses, "held_out_error": found.errors}
    told = {
        name: {candidate.label: _plain(value) for candidate, value in zip(candidates, values[0], strict=True)}
        for name, values in scores.items()
    }
    return Choice(chosen, {"criterion": criterion, "chosen": chosen.label, **told, "folds": FOLDS, **facts})


class Rehearsed(NamedTuple):
    """A candidate that was trained on everything, and what it does in the model."""

    candidate: Candidate
    trained: Trained
    measures: Measures  # of this policy alone

    @property
    def distance(self) -> float:
        """The smaller, the better; infinite if training diverged."""
        return np.inf if self.trained.diverged[0] else float(self.measures.distance)


def _by_imagination(
    spec: Spec,
    candidates: Sequence[Candidate],
    dataset: Dataset,
    keys: PRNGKeyArray,
    judges: Judges,
    facts: dict[str, Any],
    watch: Tell | None,
) -> Choice:
    """Train every candidate on everything, and keep the one that stays nearest to the demonstrated states."""
    jobs = [Job(0, number) for number in range(len(candidates))]
    found = []
    for program, trained in trainings(spec, candidates, dataset, keys, jobs, watch):
        measures = judged(judges, keys, trained, np.zeros(len(program), int))
        for place, job in enumerate(program):
            own = jax.tree.map(lambda leaf, place=place: leaf[place], measures)
            found.append(Rehearsed(candidates[job.candidate], trained.only(place), own))
    found.sort(key=lambda one: one.distance)
    best = found[0]
    others = [one for one in found if one.candidate.name != best.candidate.name]
    record = {
        "criterion": "imagined",
        "chosen": best.candidate.label,
        "distance": {one.candidate.label: _plain(one.distance) for one in found},
        **facts,
    }
    if others:
        record |= {"runner_up": others[0].candidate.label, "sure": _sure(best.measures, others[0].measures)}
    return Choice(best.candidate, record, best.trained)


def _sure(best: Measures, other: Measures) -> float:
    """Return the share of resamples, of members of the model and of starts, in which `best` is nearer than `other`."""
    random = np.random.default_rng(0)
    ahead = np.zeros(RESAMPLES)
    for mine, theirs in ((best.near, other.near), (best.drift, other.drift)):
        difference = np.asarray(theirs - mine)
        members, starts = (random.integers(0, size, (RESAMPLES, size)) for size in difference.shape)
        ahead += difference[members[:, :, None], starts[:, None, :]].mean(axis=(1, 2))
    return round(float((ahead > 0).mean()), 3)


def in_words(record: Mapping[str, Any]) -> str:
    """Say what was chosen, why, and how sure that is."""
    if record["criterion"] == "imagined":
        return _imagined_in_words(record)
    by = record["criterion"]
    scores = record[f"held_out_{by}"]
    words = [f"{name}: {'none' if score is None else format(score, '.3f')}" for name, score in scores.items()]
    none = "; none: training diverged or nothing was held out" if None in scores.values() else ""
    why = f". Imagined rollouts could not choose: {record['why']}" if record.get("why") else ""
    return f"chose {record['chosen']} by held-out {by.replace('_', '-')} ({', '.join(words)}{none}){why}"


def _imagined_in_words(record: Mapping[str, Any]) -> str:
    distances, model = record["distance"], record["model"]
    steps = counted(model["horizon"], "step")
    found = f"{_shown(distances[record['chosen']])} standard deviations from the demonstrated states over {steps}"
    words = [f"chose {record['chosen']} of {counted(len(distances), 'policy')} by imagined rollouts: {found}"]
    if "runner_up" in record:
        runner_up, sure = record["runner_up"], f"{record['sure']:.0%} of resamples"
        words.append(f"the best of another method, {runner_up}: {_shown(distances[runner_up])}; farther in {sure}")
    words.append(f"the model of the dynamics explains {model['r2_of_next_state']:.1%} of the next state")
    return "; ".join(words)


def _shown(distance: float | None) -> str:
    return "infinitely far" if distance is None else f"{distance:.3f}"
