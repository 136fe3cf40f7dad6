"""From demonstrations to a policy in one call."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sbil import algorithms, devices
from sbil.checkpoint import Checkpoint
from sbil.dataset import Dataset, Rows, make_dataset, spec_of, standardisation_of
from sbil.demonstrations import Demonstrations, Trajectory
from sbil.errors import UserError
from sbil.keys import named
from sbil.policy import Policy
from sbil.policy.folder import ENERGIES
from sbil.selection import FOLDS, select, share_of_work
from sbil.training import Report, Trained, pick, train_many
from sbil.version import __version__

SEEN = 100_000  # training states whose energies are looked at
LEAST = 512  # rows, where they are padded


class Diverged(UserError):
    """Training left the range in which its numbers mean anything; there is no policy to keep."""

    def __init__(self, algorithm: str, trained: Trained) -> None:
        super().__init__(
            f"{algorithm} diverged by update {trained.diverged_at[0]}: its losses, energies or weights exploded, "
            "so there is no policy to keep; try another preset or a smaller learning_rate."
        )
        self.trained = trained


def fit(
    algorithm: str,
    demonstrations: Demonstrations,
    *,
    seed: int = 0,
    preset: str = "default",
    settings: tuple[str, ...] = (),
    updates: int | None = None,
    thin: int = 1,
    thin_offset: int = 0,
    standardise: bool | None = None,
    pad: bool = False,
) -> Policy:
    """Train `algorithm` on demonstrations; the same seed on the same machine gives the same policy, byte for byte.

    settings: changes to the preset, as name=value. Among values separated by slashes, weight_decay=0/0.1/1, the one
        with the smallest log-loss in cross-validation by trajectory is taken.
    updates: default, as many as the preset asks for.
    standardise: bring every column to mean 0 and standard deviation 1 of the training states. Default: what was read
        from a table is, images and what an environment recorded are not, as in the paper.
    pad: fill the decisions up to a power of two with rows that are never read, so that many fits share one compiled
        program. The policy is the same.
    """
    candidates = algorithms.candidates(algorithm, preset, algorithms.parse_words(algorithm, settings))
    policy, _ = fit_watched(
        algorithm,
        demonstrations,
        seed=seed,
        preset=preset,
        candidates=candidates,
        updates=algorithms.updates_for(algorithm, preset, candidates.values(), updates),
        thin=thin,
        thin_offset=thin_offset,
        standardise=standardise,
        pad=pad,
    )
    return policy


def fit_watched(
    algorithm: str,
    demonstrations: Demonstrations,
    *,
    seed: int,
    preset: str,
    candidates: Mapping[str, Any],
    updates: int,
    thin: int,
    thin_offset: int,
    standardise: bool | None = None,
    pad: bool = False,
    watch: Callable[[float, Report], None] | None = None,
    checkpoint: Checkpoint | None = None,
) -> tuple[Policy, Trained]:
    """`fit`, with the share done and a report after every chunk, and the training record beside the policy.

    candidates: the Configs to choose from, by what is particular to each; one is taken as it is.
    """
    entry, configs = algorithms.get(algorithm), list(candidates.values())
    everything = [np.arange(len(demonstrations))]
    if standardise is None:
        standardise = demonstrations.schema is not None
    if standardise and len(demonstrations.observation_shape) > 1:
        raise UserError("images are not standardised: their pixels are brought to [-1, 1] already.")
    standardisation = standardisation_of(demonstrations, thin, thin_offset) if standardise else None
    dataset = make_dataset(
        demonstrations, everything, thin=thin, thin_offset=thin_offset, standardisation=standardisation
    )
    algorithms.require(algorithm, dataset)
    if pad:
        dataset = _padded(dataset)
    keys = jnp.stack([named("fit", seed)])
    spec = spec_of(demonstrations)
    config, selecting, selection = configs[0], share_of_work(len(configs)), None
    if len(configs) > 1:
        early = (lambda share, report: watch(selecting * share, report)) if watch else None
        selection = select(algorithm, spec, configs, dataset, keys, updates, groups=demonstrations.groups, watch=early)
        config = selection.configs[0]
    late = (lambda r: watch(selecting + (1 - selecting) * r.update / r.updates, r)) if watch else None
    trained = train_many(entry.make, spec, config, dataset, keys, updates, late, checkpoint, chunk=entry.chunk)
    if trained.diverged[0]:
        raise Diverged(algorithm, trained)
    provenance = {
        "algorithm": algorithm,
        "preset": preset,
        "settings": algorithms.settings_of(config),
        "updates": updates,
        "seed": seed,
        "thin": thin,
        "thin_offset": thin_offset,
        "standardised": standardise,
        "data": {
            "sha256": fingerprint(demonstrations),
            "trajectories": len(demonstrations),
            "steps": demonstrations.steps,
            "steps_used": int(dataset.labelled.size[0]),
            "provenance": dict(demonstrations.provenance),
        },
        "sbil": __version__,
        "device": devices.describe(runs=1),
    }
    if selection:
        losses = [round(float(loss), 6) if np.isfinite(loss) else None for loss in selection.losses[0]]
        provenance["selection"] = {
            "chosen": list(candidates)[selection.chosen[0]],
            "held_out_log_loss": dict(zip(candidates, losses, strict=True)),  # none: it diverged
            "folds": FOLDS,
        }
    policy = Policy(
        network=pick(trained.states, 0).network,
        observation_names=demonstrations.observation_names,
        action_names=demonstrations.action_names,
        standardisation=standardisation,
        provenance=provenance,
        schema=demonstrations.schema,
    )
    return replace(policy, energies=training_energies(policy, demonstrations)), trained


def _padded(dataset: Dataset) -> Dataset:
    """The same with every array filled up to a power of two rows, which no size counts."""

    def fill(array: Any, axis: int) -> Any:
        more = _power(array.shape[axis]) - array.shape[axis]
        return jnp.asarray(np.pad(np.asarray(array), [(0, more * (axis == each)) for each in range(array.ndim)]))

    pool = jax.tree.map(lambda array: fill(array, 0), dataset.pool)
    return Dataset(pool, Rows(fill(dataset.labelled.indices, 1), dataset.labelled.size), dataset.unlabelled)


def filled(rows: np.ndarray) -> np.ndarray:
    """The rows and, up to a power of two of them, the first one again: few sizes need few compiled programs."""
    return np.concatenate([rows, np.repeat(rows[:1], _power(len(rows)) - len(rows), axis=0)])


def _power(size: int) -> int:
    return max(LEAST, 1 << (size - 1).bit_length())


def training_energies(policy: Policy, demonstrations: Demonstrations) -> np.ndarray | None:
    """Quantiles of the energies of (at most SEEN, evenly chosen) training states; none for images."""
    if len(demonstrations.observation_shape) > 1:
        return None
    visited = np.array([len(trajectory) for trajectory in demonstrations.trajectories])
    ends = np.cumsum(visited)
    wanted = np.unique(np.linspace(0, ends[-1] - 1, SEEN).astype(int)) if ends[-1] > SEEN else np.arange(ends[-1])
    episode = np.searchsorted(ends, wanted, side="right")
    within = wanted - (ends - visited)[episode]
    states = np.stack([demonstrations.trajectories[i].observations[t] for i, t in zip(episode, within, strict=True)])
    energies = policy.energy(filled(states))[: len(states)]
    return np.quantile(energies, np.linspace(0, 1, ENERGIES)).astype(np.float32)


def twins(some: Demonstrations, others: Demonstrations) -> int:
    """How many trajectories of some demonstrations are among others too, value for value."""
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
