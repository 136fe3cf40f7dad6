"""Which policy to keep: the candidates are trained, and the demonstrations alone say which of them to take.

By imagined rollouts: every candidate is trained on all demonstrations and acts in a model of the dynamics that was
learned from them. The one that stays nearest to the demonstrated states is kept. Where the model cannot be trusted, the
held-out log-loss of cross-validation decides among the candidates of behavioural cloning, and for tables also among
classifiers.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from sbil.checkpoint import Checkpoint
from sbil.dataset import Dataset, Spec
from sbil.demonstrations import Demonstrations
from sbil.dynamics.measures import SHORTEST, DrawView, Measures, horizons_of, measure_many, views_of
from sbil.dynamics.model import Model, Trust, learn
from sbil.dynamics.triples import triples_of
from sbil.errors import UserError
from sbil.folds import FOLDS
from sbil.selection import Candidate, Criterion, Job, Tell, select, share_of_work, trainings
from sbil.statistics import means_over_both
from sbil.text import counted
from sbil.training import Trained

MODEL = 0.1  # of the time of a choice: learning the model
CLONING = "bc"  # without a trusted model only its settings compete: held-out decisions compare other methods badly
FEW = 10  # steps with a known successor: with fewer the model is not even tried

Watch = Callable[[float, str], None]  # the share of the work that is done, and what is known now


class Judges(NamedTuple):
    """The models of R draws, what they say of themselves, and how long policies act in them."""

    models: Model
    trust: Trust
    views: DrawView
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
    repeated: int = 0,
) -> Judges:
    """Learn the models of R draws. repeated: so many columns, the last ones, say nothing about a model."""
    triples = triples_of(dataset, groups, one_hot)
    models, trust = jax.vmap(partial(learn, actions=spec.actions))(keys, triples)
    trust = trust.without_last(repeated)
    return Judges(models, trust, views_of(dataset), horizons_of(trust))


def judged(judges: Judges, keys: PRNGKeyArray, networks: Any, runs: np.ndarray) -> Measures:
    """Let stacked networks act in the models of their runs."""
    horizons = np.maximum(judges.horizons[runs], 1)
    return measure_many(keys[runs], judges.models, judges.views, networks, runs, horizons)


class Draw(NamedTuple):
    """What a choice is made with: the data of one run, and what is known of them."""

    spec: Spec
    dataset: Dataset
    key: PRNGKeyArray
    groups: np.ndarray | None = None  # of each trajectory
    one_hot: Sequence[Sequence[int]] = ()  # lists of columns of which exactly one is 1
    names: Sequence[str] = ()  # of the columns
    repeated: int = 0  # so many columns, the last ones, repeat what rows before hold

    @classmethod
    def of(cls, demonstrations: Demonstrations, spec: Spec, dataset: Dataset, key: PRNGKeyArray) -> "Draw":
        """A choice on all of some demonstrations."""
        schema = demonstrations.schema
        one_hot, repeated = (schema.one_hot, len(schema.names_of_history)) if schema else ((), 0)
        return cls(spec, dataset, key, demonstrations.groups, one_hot, demonstrations.observation_names, repeated)

    @property
    def keys(self) -> PRNGKeyArray:
        """[1], of the run."""
        return self.key[None]


@dataclass(frozen=True)
class Choice:
    """The candidate that is kept, and what a policy records of the choice."""

    candidate: Candidate
    record: dict[str, Any]
    trained: Trained | None = None  # its finished run, if the choice trained it on everything
    together: int = 1  # runs in the program of that run
    others: tuple[Candidate, ...] = ()  # what to take if its training on everything diverges, best first

    @property
    def next(self) -> "Choice":
        """The choice without this candidate, because its training diverged."""
        candidate, diverged = self.others[0], [*self.record.get("diverged", ()), self.candidate.label]
        record = {**self.record, "chosen": candidate.label, "diverged": diverged}
        return Choice(candidate, record, others=self.others[1:])


@dataclass
class Progress:
    """How much of the work is done. The reported share rises from 0 to 1."""

    watch: Watch | None = None
    done: float = 0.0

    def part(self, share: float = 1.0) -> Watch:
        """Return a callback for the progress of the next part, which is this share of what is left."""
        began, size = self.done, share * (1 - self.done)

        def tell(done: float, words: str) -> None:
            self.done = began + size * done
            if self.watch:
                self.watch(self.done, words)

        return tell

    def of_training(self, share: float, words: str) -> Tell:
        """Return the same for trainings that report; their words begin with `words`."""
        tell = self.part(share)
        return lambda done, latest: tell(done, f"{words}: {latest.words}")


def choose(
    draw: Draw,
    candidates: Sequence[Candidate],
    criterion: Criterion,
    progress: Progress,
    checkpoint: Checkpoint | None = None,
    classifiers: Sequence[Candidate] = (),
) -> Choice:
    """Choose among candidates for one run. A training of the chosen candidate may follow; its progress is left.

    classifiers: candidates that compete only where held-out decisions choose.
    """
    if criterion in ("log_loss", "error"):
        return _by_crossvalidation(draw, [*candidates, *classifiers], criterion, progress, checkpoint)
    why, judges = judge(draw, progress)
    facts = facts_of(judges, draw.names) if judges else {}
    if judges and not why:
        if choice := _by_imagination(draw, candidates, judges, facts, progress, checkpoint):
            return choice
        why = "no policy stays at a finite distance from the demonstrated states"
    if criterion == "imagined":
        raise UserError(f"imagined rollouts cannot choose here: {why}; use the criterion auto, log_loss or error.")
    cloned = [candidate for candidate in candidates if candidate.algorithm == CLONING] or candidates
    choice = _by_crossvalidation(draw, [*cloned, *classifiers], "log_loss", progress, checkpoint)
    return replace(choice, record={**choice.record, "why": why, **facts})


def judge(draw: Draw, progress: Progress) -> tuple[str, Judges | None]:
    """(why policies cannot act in a model, or nothing; the model)."""
    if why := _without_model(draw):
        return why, None
    judges = _learned(draw, progress)
    return _distrust(judges), judges


def _without_model(draw: Draw) -> str:
    """Why no model can be learned, or nothing."""
    labelled, pool = draw.dataset.labelled, draw.dataset.pool
    if pool.images:
        return "the observations are images"
    steps = np.asarray(labelled.indices[0])[: int(labelled.size[0])]
    known = int(np.asarray(pool.has_next)[steps].sum())
    if known == 0:
        return "no decision has its next state recorded"
    if known < FEW:
        return f"only {counted(known, 'next state')} recorded, and a model needs {FEW}"
    return ""


def _learned(draw: Draw, progress: Progress) -> Judges:
    """Learn the model, and say so."""
    tell = progress.part(MODEL)
    tell(0.0, "learning a model of the dynamics")
    judges = judges_of(
        draw.spec, draw.dataset, draw.keys, groups=draw.groups, one_hot=draw.one_hot, repeated=draw.repeated
    )
    horizon = int(judges.horizons[0])
    tell(1.0, f"the model of the dynamics is trusted for {counted(horizon, 'step')}")
    return judges


def _distrust(judges: Judges) -> str:
    """Why a model is not trusted, or nothing."""
    if judges.trusted[0]:
        return ""
    return f"the model of the dynamics predicts too little (R2 of the next state: {_shown(_r2_next(judges), 2)})"


def _r2_next(judges: Judges) -> float | None:
    return _plain(judges.trust.after[0, 0])


def facts_of(judges: Judges, names: Sequence[str]) -> dict[str, Any]:
    """What the model says of itself, as plain values."""
    r2 = {name: _plain(value) for name, value in zip(names, np.asarray(judges.trust.r2[0]), strict=True)}
    return {"model": {"r2_of_next_state": _r2_next(judges), "r2_of_step": r2, "horizon": int(judges.horizons[0])}}


def _plain(value: Any) -> float | None:
    return round(float(value), 6) if np.isfinite(value) else None


def _by_crossvalidation(
    draw: Draw,
    candidates: Sequence[Candidate],
    criterion: Literal["log_loss", "error"],
    progress: Progress,
    checkpoint: Checkpoint | None,
) -> Choice:
    """Score the first network of every candidate on held-out decisions, and keep the best candidate."""
    first = [candidate for candidate in candidates if candidate.network == 0]
    how: Any = {"criterion": criterion, "groups": draw.groups, "checkpoint": checkpoint}
    watch = progress.of_training(share_of_work(len(first)), "cross-validation")
    found = select(draw.spec, first, draw.dataset, draw.keys, watch=watch, **how)
    chosen, scored = first[found.chosen[0]], found.losses if criterion == "log_loss" else found.errors
    others = [first[place] for place in scored[0].argsort(kind="stable") if np.isfinite(scored[0, place])][1:]
    scores = {"held_out_log_loss": found.losses, "held_out_error": found.errors}
    told = {
        name: {candidate.label: _plain(value) for candidate, value in zip(first, values[0], strict=True)}
        for name, values in scores.items()
    }
    record = {"criterion": criterion, "chosen": chosen.label, **told, "folds": FOLDS}
    return Choice(chosen, record, others=tuple(others))


class Rehearsed(NamedTuple):
    """A candidate that was trained on everything, and what it does in the model."""

    candidate: Candidate
    trained: Trained
    together: int  # runs in the program that trained it
    measures: Measures  # of this policy alone

    @property
    def distance(self) -> float:
        """The smaller, the better; infinite if training diverged."""
        distance = float(self.measures.distance)
        return np.inf if self.trained.diverged[0] or np.isnan(distance) else distance


def _by_imagination(
    draw: Draw,
    candidates: Sequence[Candidate],
    judges: Judges,
    facts: dict[str, Any],
    progress: Progress,
    checkpoint: Checkpoint | None,
) -> Choice | None:
    """Train every candidate on everything, and keep the one that stays nearest to the demonstrated states, if any."""
    started = time.perf_counter()
    watch = progress.of_training(len(candidates) / (len(candidates) + 1), counted(len(candidates), "policy"))
    jobs = [Job(0, number) for number in range(len(candidates))]
    found = []
    for program, trained in trainings(draw.spec, candidates, draw.dataset, draw.keys, jobs, watch, checkpoint):
        measures = judged(judges, draw.keys, trained.states.network, np.zeros(len(program), int))
        for place, job in enumerate(program):
            own = jax.tree.map(lambda leaf, place=place: leaf[place], measures)
            found.append(Rehearsed(candidates[job.candidate], trained.only(place), len(program), own))
    best, *others = sorted(found, key=lambda one: one.distance)
    if best.distance == np.inf:
        return None
    record = {
        "criterion": "imagined",
        "chosen": best.candidate.label,
        "distance": {one.candidate.label: _plain(one.distance) for one in (best, *others)},
        **facts,
    }
    if other := next((one for one in others if one.candidate.name != best.candidate.name), None):
        record |= {"runner_up": other.candidate.label, "sure": _sure(best.measures, other.measures)}
    trained = best.trained._replace(seconds=time.perf_counter() - started)
    return Choice(best.candidate, record, trained, best.together)


def _sure(best: Measures, other: Measures) -> float:
    """Return the share of resamples, of members of the model and of starts, in which `best` is nearer than `other`."""
    random = np.random.default_rng(0)
    near = means_over_both(np.asarray(other.near - best.near), random)
    drift = means_over_both(np.asarray(other.drift - best.drift), random)
    return round(float((near + drift > 0).mean()), 3)


def in_words(record: Mapping[str, Any]) -> str:
    """Say what was chosen, why, and how sure that is."""
    if record["criterion"] == "imagined":
        return _imagined_in_words(record)
    by = record["criterion"]
    scores = record[f"held_out_{by}"]
    words = [f"{name}: {_shown(score)}" for name, score in scores.items()]
    none = "; none: training diverged or nothing was held out" if None in scores.values() else ""
    if diverged := record.get("diverged"):
        none += f"; diverged when trained on everything: {', '.join(diverged)}"
    why = f". Imagined rollouts could not choose: {record['why']}" if record.get("why") else ""
    return f"chose {record['chosen']} by held-out {by.replace('_', '-')} ({', '.join(words)}{none}){why}"


def _imagined_in_words(record: Mapping[str, Any]) -> str:
    distances, model = record["distance"], record["model"]
    steps = counted(model["horizon"], "step")
    found = f"{_shown(distances[record['chosen']])} standard deviations from the demonstrated states over {steps}"
    words = [f"chose {record['chosen']} of {counted(len(distances), 'policy')} by imagined rollouts: {found}"]
    if "runner_up" in record:
        runner_up, sure = record["runner_up"], f"farther in {record['sure']:.0%} of resamples"
        words.append(f"the next best method is {runner_up}: {_shown(distances[runner_up])}, {sure}")
    words.append(f"the model of the dynamics explains {model['r2_of_next_state']:.1%} of the next state")
    return "; ".join(words)


def _shown(number: float | None, digits: int = 3) -> str:
    return "none" if number is None else f"{number:.{digits}f}"
