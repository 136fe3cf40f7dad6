"""Cross-validation with baselines: policies that were not trained on its episode judge every decision."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sbil.choosing import Watch
from sbil.demonstrations import Demonstrations
from sbil.errors import UserError
from sbil.evaluation.baselines import Baselines
from sbil.evaluation.decided import Decided, decided, units
from sbil.fitting import fit


def cross_validate(
    learners: Sequence[str],
    demonstrations: Demonstrations,
    *,
    folds: int = 5,
    seed: int = 0,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    watch: Watch | None = None,
    **how: Any,
) -> dict[str, Decided]:
    """Return what the baselines, BC and `learners` predict for every decision while its episode (or group) is held out.

    All have the rows of demonstrations.decisions(), so any two can be compared decision by decision. Everything that is
    fitted, also the standardisation, is fitted to the other folds alone.

    learners: names of algorithms; BC is always one of them.
    settings: changes to the preset by algorithm, such as {"edm": {"noise": 0.1}}.
    how: keywords of `sbil.fit` for all of them, such as updates.
    """
    learners, settings = tuple(dict.fromkeys(["bc", *learners])), settings or {}
    strange = sorted(set(settings) - set(learners))
    if strange:
        raise UserError(f"settings are given for '{strange[0]}', which is not trained; choose from {list(learners)}.")
    steps = demonstrations.decisions()
    shape = len(steps.action), len(demonstrations.action_names)
    found: dict[str, np.ndarray] = {}
    fold = np.empty(len(steps.action), np.int32)
    for number, part in enumerate(demonstrations.folds(folds, seed)):
        training = demonstrations.select(np.setdiff1d(np.arange(len(demonstrations)), part))
        held_out = demonstrations.select(part)
        judged = Baselines.from_demonstrations(training).decided(held_out)
        for place, name in enumerate(learners):
            if watch:
                watch((number + place / len(learners)) / folds, f"{name}, fold {number + 1} of {folds}")
            policy = fit(name, training, seed=seed, pad=True, **how, **settings.get(name, {}))
            judged[name] = decided(policy, held_out)
        rows = np.isin(steps.trajectory, part)
        fold[rows] = number
        for name, one in judged.items():
            found.setdefault(name, np.empty(shape))[rows] = one.probabilities
    episodes = units(demonstrations, steps.trajectory)
    return {name: Decided(probabilities, steps.action, episodes, fold) for name, probabilities in found.items()}
