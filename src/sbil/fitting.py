"""From demonstrations to a policy: `fit` for people, `Recipe` and `follow` for the rest of the library."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np

from sbil import algorithms, devices
from sbil.checkpoint import Checkpoint
from sbil.choosing import Choice, Draw, Progress, Watch, choose, in_words
from sbil.dataset import Dataset, Rows, Spec, Standardisation, make_dataset, spec_of, standardisation_of
from sbil.demonstrations import Demonstrations, Trajectory, read
from sbil.demonstrations.roles import Columns
from sbil.errors import UserError, flag, unknown, whole
from sbil.keys import named
from sbil.policy import Policy, guard
from sbil.policy.folder import ENERGIES
from sbil.policy.guard import Guard
from sbil.portfolio import AUTO, chooses_itself, classifiers, portfolio, require_known, usable
from sbil.selection import Candidate, Criterion
from sbil.training import Report, Trained, pick, train_many
from sbil.version import __version__

SEEN = 100_000  # training states whose energies are looked at
LEAST = 512  # rows, where they are padded


class Diverged(UserError):
    """Training diverged; there is no policy to keep."""

    def __init__(self, algorithm: str, candidate: Candidate, trained: Trained) -> None:
        name, remedy = algorithm, "try another preset or a smaller learning_rate"
        if algorithm == AUTO:
            name = f"{candidate.label}, the best of the policies of auto,"
            remedy = "look for columns of huge numbers with `sbil check`, and let them be standardised"
        super().__init__(
            f"{name} diverged by update {trained.diverged_at[0]}: its losses, energies or weights exploded, "
            f"so there is no policy to keep; {remedy}."
        )
        self.trained = trained


@dataclass
class Recipe:
    """How one policy is trained, apart from the data; `fit` explains the fields. What is wrong with them is refused.

    candidates: what to choose from; a single one is taken as it is.
    """

    algorithm: str  # or "auto": the candidates are of several algorithms
    preset: str = "default"
    config: Any = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    criterion: Criterion | None = None
    updates: int | None = None
    seed: int = 0
    thin: int = 1
    thin_offset: int = 0
    standardise: bool | None = None
    candidates: Sequence[Candidate] = field(init=False)

    def __post_init__(self) -> None:
        self.seed, self.thin = whole("seed", self.seed), whole("thin", self.thin, 1)
        self.thin_offset = whole("thin_offset", self.thin_offset)
        if self.standardise is not None:
            flag("standardise", self.standardise)
        if self.updates is not None:
            self.updates = whole("updates", self.updates, 1)
        if self.criterion not in (None, *get_args(Criterion)):
            raise unknown("criterion", self.criterion, get_args(Criterion))
        self.candidates = self._candidates()
        if self.criterion and len(self.candidates) == 1:
            raise UserError("criterion decides among several candidates; give a list of values for a setting as well.")
        self.criterion = self.criterion or ("auto" if self.algorithm == AUTO else "log_loss")

    def _candidates(self) -> list[Candidate]:
        given: Any = self.algorithm
        if not isinstance(given, str):
            kind = type(given).__name__
            raise UserError(f'unknown algorithm; it comes first and is a name, such as "bc". Got {kind}.')
        require_known(self.algorithm)
        if self.algorithm == AUTO:
            given = [f"the setting '{name}'" for name in self.settings]
            given += ["a config"] * (self.config is not None)
            given += [f"the preset '{self.preset}'"] * (self.preset != "default")
            if given:
                raise chooses_itself(given[0])
            return portfolio(updates=self.updates)
        configs = _configs(self.algorithm, self.preset, self.config, self.settings)
        updates = algorithms.updates_for(self.algorithm, self.preset, configs.values(), self.updates)
        return [Candidate(self.algorithm, config, updates, name) for name, config in configs.items()]


def _configs(algorithm: str, preset: str, config: Any, settings: Mapping[str, Any]) -> Mapping[str, Any]:
    kind = algorithms.get(algorithm).config
    for name in settings:
        if name in Columns.__annotations__ and name not in kind.__annotations__:
            raise UserError(f"{name} says what a column means; give it in columns={{'{name}': ...}}.")
    if config is None:
        chosen = algorithms.candidates(algorithm, preset, settings)
        return {name: algorithms.plain(one) for name, one in chosen.items()}
    if type(config) is not kind:
        raise UserError(f"the config of {algorithm} must be of the class {kind.__name__}. Got {type(config).__name__}.")
    if settings:
        raise UserError(f"both config and the setting '{next(iter(settings))}' are given; change the config instead.")
    if preset != "default":
        raise UserError(f"both config and the preset '{preset}' are given; give one of them.")
    return {"": algorithms.plain(config)}


def demonstrations_of(data: Any, columns: Mapping[str, Any] | None = None) -> Demonstrations:
    """The demonstrations themselves, or those that `sbil.read` reads from a path or a data frame.

    columns: what the columns of the table mean, as the keywords of `sbil.read`: {"action": "treatment"}.
    """
    if not isinstance(columns, Mapping | None):
        raise UserError(f'columns must be a dict, such as {{"action": "treatment"}}. Got {columns!r}.')
    if not isinstance(data, Demonstrations):
        return read(data, **(columns or {}))
    if columns:
        raise UserError("columns say how to read a table, and these demonstrations are read already; leave them out.")
    return data


def fit(
    algorithm: str,
    data: Any,
    *,
    columns: Mapping[str, Any] | None = None,
    preset: str = "default",
    config: Any = None,
    criterion: Criterion | None = None,
    seed: int = 0,
    updates: int | None = None,
    thin: int = 1,
    thin_offset: int = 0,
    standardise: bool | None = None,
    pad: bool = False,
    **settings: Any,
) -> Policy:
    """Train `algorithm` on demonstrations and return the policy.

        policy = sbil.fit("edm", data, seed=0, weight_decay=1.0)
        policy = sbil.fit("bc", "stays.csv", columns={"episode": "stay", "action": "treatment"})
        policy = sbil.fit("auto", data)  # several algorithms and settings, several networks each; keeps one policy

    The same seed on the same machine gives the same policy, byte for byte. `sbil.train` also scores it.

    data: Demonstrations, or a path or a data frame that `sbil.read` reads with `columns`.
    config: a Config of the algorithm, such as EDMConfig(noise=0.1), instead of a preset and settings.
    updates: how many gradient updates; default: as many as the preset asks for.
    thin, thin_offset: keep only the steps thin_offset, thin_offset + thin, ... of each trajectory.
    standardise: bring every column to mean 0 and standard deviation 1 of the training states. Default: tables are
        standardised; images and recordings of environments are not, as in the paper.
    pad: add rows that are never read, up to a power of two, so that many fits share one compiled program. The policy
        is the same.
    settings: changes to the preset. A list means a choice, weight_decay=[0, 0.1, 1]; `criterion` decides.
    criterion: what decides among several candidates: "log_loss" or "error" in cross-validation by trajectory,
        "imagined" (what the policies do in a model of the dynamics), or "auto" (imagined if that model can be trusted,
        else log_loss). Default: "log_loss"; of the algorithm "auto": "auto".
    """
    recipe = Recipe(algorithm, preset, config, settings, criterion, updates, seed, thin, thin_offset, standardise)
    return follow(recipe, demonstrations_of(data, columns), pad=pad)[0]


def follow(
    recipe: Recipe,
    demonstrations: Demonstrations,
    *,
    pad: bool = False,
    watch: Watch | None = None,
    checkpoint: Checkpoint | None = None,
) -> tuple[Policy, Trained]:
    """Train by a recipe: the policy, and the record of its training.

    watch: called after every chunk of updates.
    """
    standardisation = _standardisation(recipe, demonstrations)
    dataset = _dataset(recipe, demonstrations, standardisation, pad)
    progress = Progress(watch)
    choice, trained, together = _trained(recipe, demonstrations, dataset, progress, checkpoint)
    policy = Policy(
        network=pick(trained.states, 0).network,
        observation_names=demonstrations.observation_names,
        action_names=demonstrations.action_names,
        standardisation=standardisation,
        provenance=_provenance(recipe, demonstrations, dataset, choice, standardisation is not None, together),
        schema=demonstrations.schema,
        guard=training_guard(demonstrations),
    )
    policy = replace(policy, energies=training_energies(policy, demonstrations))
    if progress.done < 1:
        progress.part()(1.0, f"keeps {choice.candidate.label}")
    return policy, trained


def _standardisation(recipe: Recipe, demonstrations: Demonstrations) -> Standardisation | None:
    """Mean and scale of the training states, if they are asked for."""
    asked = demonstrations.schema is not None if recipe.standardise is None else recipe.standardise
    if asked and len(demonstrations.observation_shape) > 1:
        raise UserError("images are not standardised: their pixels are brought to [-1, 1] already.")
    return standardisation_of(demonstrations, recipe.thin, recipe.thin_offset) if asked else None


def _dataset(
    recipe: Recipe, demonstrations: Demonstrations, standardisation: Standardisation | None, pad: bool
) -> Dataset:
    """All steps that the recipe keeps, as one draw."""
    everything = [np.arange(len(demonstrations))]
    dataset = make_dataset(
        demonstrations,
        everything,
        thin=recipe.thin,
        thin_offset=recipe.thin_offset,
        standardisation=standardisation,
    )
    if recipe.algorithm != AUTO:
        algorithms.require(recipe.algorithm, dataset)
    return _padded(dataset) if pad else dataset


def _trained(
    recipe: Recipe,
    demonstrations: Demonstrations,
    dataset: Dataset,
    progress: Progress,
    checkpoint: Checkpoint | None,
) -> tuple[Choice, Trained, int]:
    """Choose a candidate and train it; where training diverges, train the next best one.

    Returns the choice, its training, and how many runs were in the program of that training.
    """
    key, spec = named("fit", recipe.seed), spec_of(demonstrations)
    choice = _chosen(recipe, spec, dataset, key, demonstrations, progress, checkpoint)
    trained, together = choice.trained, choice.together
    # The winner of the portfolio is kept as it was judged. Settings are chosen, then trained with like any others.
    if trained is None or recipe.algorithm != AUTO:
        trained, together = _train(spec, choice.candidate, dataset, key, progress, checkpoint), 1
    while trained.diverged[0] and choice.others:
        choice = choice.next
        trained = _train(spec, choice.candidate, dataset, key, progress, None)
    if trained.diverged[0]:
        raise Diverged(recipe.algorithm, choice.candidate, trained)
    return choice, trained, together


def _provenance(
    recipe: Recipe,
    demonstrations: Demonstrations,
    dataset: Dataset,
    choice: Choice,
    standardised: bool,
    together: int,
) -> dict[str, Any]:
    """What a policy records of its training.

    together: how many runs were in the program that trained it.
    """
    settings = algorithms.settings_of(choice.candidate.config)
    asked = {"criterion": recipe.criterion, "updates": recipe.updates}
    return {
        "algorithm": recipe.algorithm,
        "preset": recipe.preset,
        "settings": {"algorithm": choice.candidate.algorithm, **settings} if recipe.algorithm == AUTO else settings,
        "updates": choice.candidate.updates,
        "seed": recipe.seed,
        "thin": recipe.thin,
        "thin_offset": recipe.thin_offset,
        "standardised": standardised,
        "data": {
            "sha256": fingerprint(demonstrations),
            "trajectories": len(demonstrations),
            "steps": demonstrations.steps,
            "steps_used": int(dataset.labelled.size[0]),
            "provenance": dict(demonstrations.provenance),
        },
        "sbil": __version__,
        "device": devices.describe(together),
        **({"selection": {**choice.record, "words": in_words(choice.record), "asked": asked}} if choice.record else {}),
    }


def _chosen(
    recipe: Recipe,
    spec: Spec,
    dataset: Dataset,
    key: Any,
    demonstrations: Demonstrations,
    progress: Progress,
    checkpoint: Checkpoint | None,
) -> Choice:
    """The candidate to keep; a single one is taken as it is."""
    auto = recipe.algorithm == AUTO
    candidates = usable(recipe.candidates, dataset) if auto else recipe.candidates
    others = usable(classifiers(), dataset) if auto and demonstrations.schema else []
    if len([*candidates, *others]) == 1:
        return Choice(candidates[0], {})
    assert recipe.criterion is not None
    draw = Draw.of(demonstrations, spec, dataset, key)
    return choose(draw, candidates, recipe.criterion, progress, checkpoint, others)


def _train(
    spec: Spec, candidate: Candidate, dataset: Dataset, key: Any, progress: Progress, checkpoint: Checkpoint | None
) -> Trained:
    """Train one candidate on everything."""
    entry, tell = algorithms.get(candidate.algorithm), progress.part()

    def report(latest: Report) -> None:
        tell(latest.update / latest.updates, latest.words)

    program = (entry.make, spec, candidate.config, dataset, key[None], candidate.updates)
    return train_many(*program, report, checkpoint, chunk=entry.chunk)


def _padded(dataset: Dataset) -> Dataset:
    """The dataset with every array filled up to a power of two rows; the counts stay, so the rows are never read."""

    def fill(array: Any, axis: int) -> Any:
        more = _power(array.shape[axis]) - array.shape[axis]
        return jnp.asarray(np.pad(np.asarray(array), [(0, more * (axis == each)) for each in range(array.ndim)]))

    pool, steps = jax.tree.map(lambda array: fill(array, 0), dataset.pool), len(dataset.pool.trajectory)
    after = dataset.pool.trajectory[-1] + 1  # numbers of trajectories stay in order
    pool = pool._replace(trajectory=jnp.where(jnp.arange(len(pool.trajectory)) < steps, pool.trajectory, after))
    return Dataset(pool, Rows(fill(dataset.labelled.indices, 1), dataset.labelled.size), dataset.unlabelled)


def filled(rows: np.ndarray) -> np.ndarray:
    """The rows, then the first row again up to a power of two of them: few sizes need few compiled programs."""
    return np.concatenate([rows, np.repeat(rows[:1], _power(len(rows)) - len(rows), axis=0)])


def _power(size: int) -> int:
    return max(LEAST, 1 << (size - 1).bit_length())


def training_energies(policy: Policy, demonstrations: Demonstrations) -> np.ndarray | None:
    """Quantiles of the energies of the training states (at most SEEN of them, evenly chosen); None for images."""
    if len(demonstrations.observation_shape) > 1:
        return None
    states, _ = some_states(demonstrations)
    energies = policy.energy(filled(states))[: len(states)]
    return np.quantile(energies, np.linspace(0, 1, ENERGIES)).astype(np.float32)


def training_guard(demonstrations: Demonstrations) -> Guard | None:
    """What is known of the columns of the training states; None for images and for too few states."""
    if len(demonstrations.observation_shape) > 1:
        return None
    states, episode = some_states(demonstrations)
    units = episode if demonstrations.groups is None else demonstrations.groups[episode]
    return guard.learned(states, units, demonstrations.schema.codes if demonstrations.schema else ())


def some_states(demonstrations: Demonstrations) -> tuple[np.ndarray, np.ndarray]:
    """States at which decisions were taken, at most SEEN of them, evenly chosen; and the trajectory of each."""
    visited = np.array([len(trajectory) for trajectory in demonstrations.trajectories])
    ends = np.cumsum(visited)
    wanted = np.unique(np.linspace(0, ends[-1] - 1, SEEN).astype(int)) if ends[-1] > SEEN else np.arange(ends[-1])
    episode = np.searchsorted(ends, wanted, side="right")
    within = wanted - (ends - visited)[episode]
    chosen = zip(episode, within, strict=True)
    return np.stack([demonstrations.trajectories[i].observations[t] for i, t in chosen]), episode


def twins(some: Demonstrations, others: Demonstrations) -> int:
    """How many trajectories of some demonstrations are also among others, with the same values."""
    known = {hashlib.sha256(b"".join(_content(trajectory))).digest() for trajectory in others.trajectories}
    return sum(hashlib.sha256(b"".join(_content(trajectory))).digest() in known for trajectory in some.trajectories)


def fingerprint(demonstrations: Demonstrations) -> str:
    """The SHA-256 of what is learned from: observations, actions and ends of all trajectories."""
    digest = hashlib.sha256(f"stack {demonstrations.stack}".encode() if demonstrations.stack else b"")
    for trajectory in demonstrations.trajectories:
        for part in _content(trajectory):
            digest.update(part)
    return digest.hexdigest()


def _content(trajectory: Trajectory) -> tuple[bytes, bytes, bytes]:
    ends: Any = (len(trajectory), trajectory.observations.shape, trajectory.terminal, trajectory.truncated)
    observations = np.ascontiguousarray(trajectory.observations)
    return repr(ends).encode(), observations.tobytes(), np.ascontiguousarray(trajectory.actions, np.int32).tobytes()
