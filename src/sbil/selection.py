"""The choice among candidates on the demonstrations alone: by cross-validation, or by what policies do in a model.

Candidates may differ in algorithm, settings and initialisation. Every run of a dataset chooses for itself.

Cross-validation: the trajectories of a run are dealt into folds, every candidate is trained on all folds but one, and
its decisions in that fold are scored by their log-loss and by their errors. The only trajectory of a run is cut into
stretches.
Imagined rollouts: every candidate is trained on everything, and acts in a model of the dynamics that was learned from
the same demonstrations (`sbil.dynamics`).
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from sbil import algorithms
from sbil.algorithms.base import cross_entropy
from sbil.checkpoint import Checkpoint
from sbil.dataset import Dataset, Pool, Rows, Spec, padded
from sbil.errors import UserError
from sbil.folds import FOLDS, Fold, folds_of, states_left
from sbil.training import Report, Trained, room_for, train_many

Criterion = Literal["auto", "imagined", "log_loss", "error"]
MOST_RUNS = 1000  # in one program on a GPU; a CPU is fastest with few
MOST_RUNS_CPU = 50
UNUSED = 2**32 - 1  # no update has this number, so folds and further networks have their own random numbers

Tell = Callable[[float, Report], None]  # the share of the work that is done, and the latest report


class Candidate(NamedTuple):
    """One way to train a policy."""

    algorithm: str
    config: Any
    updates: int
    name: str = ""  # of the method: what tells it from the other candidates
    network: int = 0  # the number of its initialisation

    @property
    def label(self) -> str:
        """The name, with the initialisation if it is a further one."""
        return f"{self.name}, network {self.network + 1}" if self.network else self.name


class Selection(NamedTuple):
    """The choices of R runs among C candidates, by cross-validation."""

    candidates: tuple[Candidate, ...]
    losses: np.ndarray  # [R, C], held-out log-loss per decision; infinite: training diverged, NaN: nothing held out
    errors: np.ndarray  # [R, C], share of held-out decisions for which another action is preferred; likewise
    chosen: np.ndarray  # [R], the number of the candidate with the smallest loss (or error)


class Job(NamedTuple):
    """One training to do: a candidate, by its number, for a run; on a fold, or on everything."""

    run: int
    candidate: int
    fold: Fold | None = None


def select(
    spec: Spec,
    candidates: Sequence[Candidate],
    dataset: Dataset,
    keys: PRNGKeyArray,
    *,
    criterion: Literal["log_loss", "error"] = "log_loss",
    folds: int = FOLDS,
    groups: np.ndarray | None = None,
    watch: Tell | None = None,
    checkpoint: Checkpoint | None = None,
) -> Selection:
    """For every run of `dataset`, choose the candidate with the smallest log-loss (or error) on held-out decisions.

    groups: [trajectories of the pool], the group of each; a fold holds whole groups.
    checkpoint: each program has a part of it.
    A run takes the first candidate, with NaN losses, if it has nothing to hold out, or if an algorithm cannot use the
    rest of its data.
    """
    names = dict.fromkeys(candidate.algorithm for candidate in candidates)
    parts = [part for part in folds_of(dataset, folds, groups) if all(_usable(name, dataset, part) for name in names)]
    jobs = [Job(part.run, number, part) for number in range(len(candidates)) for part in parts]
    total, count = np.zeros((2, len(keys), len(candidates))), np.zeros(len(keys))
    for part in parts:
        count[part.run] += len(part.held_out)
    for program, trained in trainings(spec, candidates, dataset, keys, jobs, watch, checkpoint):
        judged = _held_out(trained, dataset, program)
        for job, scores in zip(program, judged, strict=True):
            total[:, job.run, job.candidate] += scores
    losses, errors = np.where(count[:, None] > 0, total / np.maximum(count, 1)[:, None], np.nan)
    chosen = (losses if criterion == "log_loss" else errors).argmin(axis=1)
    return Selection(tuple(candidates), losses, errors, chosen)


def held_out_chances(
    spec: Spec,
    candidates: Sequence[Candidate],
    dataset: Dataset,
    keys: PRNGKeyArray,
    *,
    groups: np.ndarray | None = None,
    watch: Tell | None = None,
    checkpoint: Checkpoint | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return (chances, weights) of the decisions of the only run that were held out once.

    chances: [candidates, decisions], the probability of the action taken, by a network that did not learn from the
        decision; NaN where training diverged.
    weights: [decisions], how much each decision counts.
    """
    names = dict.fromkeys(candidate.algorithm for candidate in candidates)
    parts = [part for part in folds_of(dataset, FOLDS, groups) if all(_usable(name, dataset, part) for name in names)]
    jobs = [Job(0, number, part) for number in range(len(candidates)) for part in parts]
    found = np.zeros((len(candidates), len(dataset.pool.row)), np.float32)
    for program, trained in trainings(spec, candidates, dataset, keys, jobs, watch, checkpoint):
        held_out = [job.fold.held_out for job in program if job.fold]
        rows = padded(held_out, dataset.labelled.indices.shape[1])
        chances = np.array(_held_out_chances(trained.states.network, rows, dataset.pool))
        chances[trained.diverged] = np.nan
        for job, steps, own in zip(program, held_out, chances, strict=True):
            found[job.candidate, steps] = own[: len(steps)]
    judged = np.sort(np.concatenate([part.held_out for part in parts])) if parts else np.zeros(0, int)
    weight = dataset.pool.weight
    return found[:, judged], np.ones(len(judged)) if weight is None else np.asarray(weight, np.float64)[judged]


def trainings(
    spec: Spec,
    candidates: Sequence[Candidate],
    dataset: Dataset,
    keys: PRNGKeyArray,
    jobs: Sequence[Job],
    watch: Tell | None = None,
    checkpoint: Checkpoint | None = None,
) -> Iterator[tuple[list[Job], Trained]]:
    """Do all jobs in few programs. Yield the jobs of each program, and what came of them."""
    work = sum(candidates[job.candidate].updates for job in jobs)
    done = 0
    for number, program in enumerate(_programs(spec, candidates, dataset, jobs)):
        updates = candidates[program[0].candidate].updates

        def report(latest: Report, done: int = done, runs: int = len(program)) -> None:
            if watch:
                watch((done + runs * latest.update) / work, latest)

        # A checkpoint of networks for images would be too large.
        name = f"{'fold' if program[0].fold else 'whole'}-{number}"
        part = checkpoint.part(name) if checkpoint and not dataset.pool.images else None
        yield program, _train(spec, candidates, dataset, keys, program, report, part)
        done += len(program) * updates


def _programs(
    spec: Spec, candidates: Sequence[Candidate], dataset: Dataset, jobs: Sequence[Job]
) -> Iterator[list[Job]]:
    """Yield the jobs that are trained together: jobs with settings of one kind, as many as suit the device."""
    suited = MOST_RUNS_CPU if jax.default_backend() == "cpu" else MOST_RUNS
    for kind in alike([candidates[job.candidate] for job in jobs]):
        first = candidates[jobs[kind[0]].candidate]
        most = min(suited, room_for(algorithms.get(first.algorithm).make, spec, first.config, dataset))
        size = -(-len(kind) // -(-len(kind) // most))  # only the last program may be smaller
        for start in range(0, len(kind), size):
            yield [jobs[place] for place in kind[start : start + size]]


def _train(
    spec: Spec,
    candidates: Sequence[Candidate],
    dataset: Dataset,
    keys: PRNGKeyArray,
    jobs: list[Job],
    watch: Callable[[Report], None],
    checkpoint: Checkpoint | None,
) -> Trained:
    """Train the candidates of one program."""
    chosen = [candidates[job.candidate] for job in jobs]
    entry, updates = algorithms.get(chosen[0].algorithm), chosen[0].updates
    config = jax.tree.map(lambda *leaves: np.array(leaves, np.float32), *(candidate.config for candidate in chosen))
    own = keys[np.array([job.run for job in jobs])]
    own = _further(own, jnp.array([candidate.network for candidate in chosen]))
    if jobs[0].fold:
        own = _of_fold(own, jnp.array([job.fold.number for job in jobs if job.fold]))
    program = (entry.make, spec, config, _data(dataset, jobs), own, updates)
    return train_many(*program, watch, checkpoint, chunk=entry.chunk)


def _data(dataset: Dataset, jobs: list[Job]) -> Dataset:
    """Return what the jobs learn from."""
    sample = dataset.runs(np.array([job.run for job in jobs]))
    parts = [job.fold for job in jobs if job.fold]
    if not parts:
        return sample
    sample = sample._replace(labelled=padded([part.training for part in parts], dataset.labelled.indices.shape[1]))
    if width := dataset.unlabelled.indices.shape[1]:
        sample = sample._replace(unlabelled=padded([states_left(dataset, part) for part in parts], width))
    return sample


def _held_out(trained: Trained, dataset: Dataset, jobs: list[Job]) -> np.ndarray:
    """[jobs, 2], summed log-loss and errors of the held-out decisions; infinite if training diverged."""
    parts = [job.fold.held_out for job in jobs if job.fold]
    held_out = padded(parts, dataset.labelled.indices.shape[1])
    scores = np.asarray(_held_out_scores(trained.states.network, held_out, dataset.pool), np.float64)
    scores[trained.diverged | ~np.isfinite(scores).all(axis=1)] = np.inf
    return scores


def alike(configs: Sequence[Any]) -> list[np.ndarray]:
    """Return groups of places of configs, or candidates, that one program can train: they differ in floats only."""
    kinds: dict[Any, list[int]] = {}
    for place, config in enumerate(configs):
        kinds.setdefault(_kind(config), []).append(place)
    return [np.array(places) for places in kinds.values()]


def _kind(config: Any) -> Any:
    if isinstance(config, Candidate):
        return config.algorithm, config.updates, jax.tree.structure(config.config)
    return jax.tree.structure(config)


def share_of_work(candidates: int) -> float:
    """Return the share of the choice in all work; the rest is the training itself."""
    return 1 - 1 / (1 + FOLDS * candidates) if candidates > 1 else 0.0


def _usable(algorithm: str, dataset: Dataset, part: Fold) -> bool:
    """Whether the algorithm can learn from the rest of the data of a fold."""
    rows = Rows(part.training.astype(np.int32), np.int32(len(part.training)))  # type: ignore[arg-type]
    try:
        algorithms.require(algorithm, Dataset(dataset.pool, rows, rows))
    except UserError:
        return False
    return True


@jax.jit
@jax.vmap
def _of_fold(key: PRNGKeyArray, fold: Array) -> PRNGKeyArray:
    return jax.random.fold_in(jax.random.fold_in(key, UNUSED), fold)


@jax.jit
@jax.vmap
def _further(key: PRNGKeyArray, network: Array) -> PRNGKeyArray:
    """The key of a further network; the first one has the run's own."""
    other = jax.random.fold_in(jax.random.fold_in(key, UNUSED - 1), network)
    return jax.lax.cond(network > 0, lambda: other, lambda: key)


@jax.jit
def _held_out_scores(networks: Any, rows: Rows, pool: Pool) -> Array:
    """[runs, 2], the sums of -log pi(a|s) and of errors over the rows of each run."""
    return jnp.stack(jax.vmap(lambda network, rows: held_out_sums(network, rows, pool))(networks, rows), axis=1)


@jax.jit
def _held_out_chances(networks: Any, rows: Rows, pool: Pool) -> Array:
    """[runs, rows], the probability of the action taken at the rows of each run."""

    def of(network: Any, rows: Rows) -> Array:
        return jnp.exp(-cross_entropy(network(pool.before(rows.indices)), pool.action[rows.indices]))

    return jax.vmap(of)(networks, rows)


def held_out_sums(network: Any, rows: Rows, pool: Pool) -> tuple[Array, Array]:
    """Return the sums of -log pi(a|s) and of errors over the rows of one run."""
    if pool.images:  # a few at a time, because they are large
        logits = jax.lax.map(lambda step: network(pool.before(step)), rows.indices, batch_size=64)
    else:
        logits = network(pool.before(rows.indices))
    action = pool.action[rows.indices]
    losses, wrong = cross_entropy(logits, action), logits.argmax(axis=-1) != action
    return losses.sum(where=rows.mask), wrong.sum(where=rows.mask)
