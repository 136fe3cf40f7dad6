"""From demonstrations to a policy: `fit` for people, `follow` for the rest of the library."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from sbil import algorithms, blending, devices
from sbil.checkpoint import Checkpoint
from sbil.choosing import Choice, Draw, Progress, Watch, choose, in_words
from sbil.dataset import Dataset, Spec, Standardisation, make_dataset, spec_of, standardisation_of
from sbil.demonstrations import Demonstrations, read
from sbil.demonstrations.fingerprint import fingerprint
from sbil.errors import UserError
from sbil.keys import named
from sbil.padding import full
from sbil.policy import Policy
from sbil.policy.training_states import training_energies, training_guard
from sbil.portfolio import AUTO, of_tables, usable
from sbil.recipe import Recipe
from sbil.selection import Candidate, Criterion
from sbil.training import Report, Trained, pick, train_many
from sbil.version import __version__


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
        else log_loss). Default: "log_loss"; of the algorithm "auto": "auto", which on tables is a blend of methods.
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
    return full(dataset) if pad else dataset


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
    draw = Draw.of(demonstrations, spec, dataset, key)
    choice = _chosen(recipe, draw, demonstrations.schema is not None, progress, checkpoint)
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
        **({"selection": {**choice.record, "words": _words(choice.record), "asked": asked}} if choice.record else {}),
    }


def _words(record: Mapping[str, Any]) -> str:
    """Say what was chosen, and why."""
    return blending.in_words(record) if record["criterion"] == blending.BLEND else in_words(record)


def _chosen(recipe: Recipe, draw: Draw, table: bool, progress: Progress, checkpoint: Checkpoint | None) -> Choice:
    """The candidate to keep; a single one is taken as it is. Of a table, `auto` blends several methods."""
    auto = recipe.algorithm == AUTO
    candidates = usable(recipe.candidates, draw.dataset) if auto else recipe.candidates
    others = usable(of_tables(recipe.updates), draw.dataset) if auto and table else []
    if others and recipe.criterion == "auto":
        return blending.blend(draw, others, progress, checkpoint)
    others = [other for other in others if other.name not in [candidate.name for candidate in candidates]]
    if len([*candidates, *others]) == 1:
        return Choice(candidates[0], {})
    assert recipe.criterion is not None
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
