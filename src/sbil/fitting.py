"""From demonstrations to a policy in one call."""

import hashlib
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from sbil import algorithms, devices
from sbil.checkpoint import Checkpoint
from sbil.dataset import make_dataset, spec_of
from sbil.demonstrations import Demonstrations
from sbil.errors import UserError
from sbil.keys import named
from sbil.policy import Policy
from sbil.selection import FOLDS, select, share_of_work
from sbil.training import Report, Trained, pick, train_many
from sbil.version import __version__


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
) -> Policy:
    """Train `algorithm` on demonstrations; the same seed on the same machine gives the same policy, byte for byte.

    settings: changes to the preset, as name=value. Among values separated by slashes, weight_decay=0/0.1/1, the one
        with the smallest log-loss in cross-validation by trajectory is taken.
    updates: default, as many as the preset asks for.
    """
    policy, _ = fit_watched(
        algorithm,
        demonstrations,
        seed=seed,
        preset=preset,
        settings=settings,
        updates=updates,
        thin=thin,
        thin_offset=thin_offset,
    )
    return policy


def fit_watched(
    algorithm: str,
    demonstrations: Demonstrations,
    *,
    seed: int,
    preset: str,
    settings: tuple[str, ...],
    updates: int | None,
    thin: int,
    thin_offset: int,
    watch: Callable[[float, Report], None] | None = None,
    checkpoint: Checkpoint | None = None,
) -> tuple[Policy, Trained]:
    """`fit`, with the share done and a report after every chunk, and the training record beside the policy."""
    entry, candidates = algorithms.get(algorithm), algorithms.candidates(algorithm, preset, settings)
    configs = list(candidates.values())
    updates = algorithms.updates_for(algorithm, preset, configs, updates)
    everything = [np.arange(len(demonstrations))]
    dataset = make_dataset(demonstrations, everything, thin=thin, thin_offset=thin_offset)
    algorithms.require(algorithm, dataset)
    keys = jnp.stack([named("fit", seed)])
    spec = spec_of(demonstrations)
    config, selecting, selection = configs[0], share_of_work(len(configs)), None
    if len(configs) > 1:
        early = (lambda share, report: watch(selecting * share, report)) if watch else None
        selection = select(algorithm, spec, configs, dataset, keys, updates, watch=early)
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
    network = pick(trained.states, 0).network
    names = demonstrations.observation_names, demonstrations.action_names
    return Policy(network, *names, provenance=provenance), trained


def fingerprint(demonstrations: Demonstrations) -> str:
    """The SHA-256 of what is learned from: observations, actions and ends of all trajectories."""
    digest = hashlib.sha256(f"stack {demonstrations.stack}".encode() if demonstrations.stack else b"")
    for trajectory in demonstrations.trajectories:
        ends: Any = (len(trajectory), trajectory.observations.shape, trajectory.terminal, trajectory.truncated)
        digest.update(repr(ends).encode())
        digest.update(np.ascontiguousarray(trajectory.observations).tobytes())
        digest.update(np.ascontiguousarray(trajectory.actions, np.int32).tobytes())
    return digest.hexdigest()
