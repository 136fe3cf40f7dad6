"""The experiments of the paper, by protocol.

released: as its authors' code runs them. Demonstrators act by drawing from PPO's probabilities; on CartPole, the only
    environment of that code, every 20th step is kept.
paper: as its text says. A greedy DQN demonstrates CartPole, PPO Acrobot; nothing is thinned.

LunarLander and BeamRider are the same in both: PPO, greedy in the first (the same mean as sampled, half its spread) and
sampled in the second (greedy games repeat each other), without thinning. BeamRider has 3 runs per cell, 20 games per
run: BC, RCAL and EDM.

Both compare every method of the paper's table, EDM in its three forms (our default, the loss as printed, the settings
of the authors' code) and BC with weight decay, the control that the paper lacks. Then comes the paper's semi-supervised
figure: one trajectory of pairs, and the states of 1 to 7 more. The paper has it for CartPole; here Acrobot and
LunarLander (100 episodes per run) have it too.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sbil.errors import unknown
from sbil.experiments.experiment import Experiment
from sbil.experiments.methods import Method

EDM = (Method("edm"), Method("edm", "released"), Method("edm", "paper"))
METHODS = (Method("bc"), Method("bc", "decay"), Method("rcal"), Method("dsfn"), Method("value_dice"), *EDM)
SAMPLED, DQN = (("ppo", "sampled"),), (("dqn", "greedy"),)
STATES = tuple(range(1, 8))


def _with_states(main: Experiment) -> Experiment:
    return replace(main, methods=EDM, sizes=(1,), unlabelled=STATES)


_CARTPOLE = Experiment("CartPole-v1", SAMPLED, METHODS, thin=20)
_AS_PRINTED = Experiment("CartPole-v1", DQN, METHODS)
_ACROBOT = Experiment("Acrobot-v1", SAMPLED, METHODS)
_LANDER = Experiment("LunarLander-v3", (("ppo", "greedy"),), METHODS)
_BEAMS = Experiment(
    "BeamRiderNoFrameskip-v4", SAMPLED, (Method("bc"), Method("rcal"), *EDM), draws=3, initialisations=1, episodes=20
)
_MORE_STATES = _with_states(_ACROBOT), _with_states(replace(_LANDER, episodes=100))

PROTOCOLS: dict[str, tuple[Experiment, ...]] = {
    "released": (_CARTPOLE, _ACROBOT, _LANDER, _BEAMS, _with_states(_CARTPOLE), *_MORE_STATES),
    "paper": (_AS_PRINTED, _ACROBOT, _LANDER, _BEAMS, _with_states(_AS_PRINTED), *_MORE_STATES),
}
MINUTES = ("CartPole-v1", "Acrobot-v1")  # what is quick on two cores
NEEDS_A_GPU = ("BeamRiderNoFrameskip-v4",)


def protocol(name: str, quick: bool = False) -> tuple[Experiment, ...]:
    """Return the experiments of a protocol. quick: 6 runs per cell, two sizes, fast methods; on BeamRider BC only."""
    if name not in PROTOCOLS:
        raise unknown("protocol", name, PROTOCOLS)
    return tuple(map(_quick, PROTOCOLS[name])) if quick else PROTOCOLS[name]


def _quick(full: Experiment) -> Experiment:
    if full.unlabelled == STATES:
        return replace(full, methods=EDM[1:2], unlabelled=(1, 3), draws=6, initialisations=1)
    if full.environment in NEEDS_A_GPU:
        return replace(full, methods=full.methods[:1], sizes=(1, 3), draws=2, episodes=5)
    fast = tuple(method for method in full.methods if method.algorithm not in ("dsfn", "value_dice"))
    return replace(full, methods=fast, sizes=(1, 3), draws=6, initialisations=1)


def experiments(
    name: str = "released",
    quick: bool = False,
    environments: Sequence[str] | None = None,
    images: bool = True,
    **changes: Any,
) -> list[Experiment]:
    """The experiments of a protocol, narrowed and changed.

    environments: those of the protocol to keep (default: all; of a quick one those that take minutes).
    images: without names of environments, whether to keep those that take days without a GPU.
    changes: other values for fields of every experiment, such as methods, sizes or draws.
    """
    found = _semi_supervised(_in_environments(protocol(name, quick), quick, environments, images), changes)
    return [replace(experiment, **changes) for experiment in found]


def _in_environments(
    found: Sequence[Experiment], quick: bool, names: Sequence[str] | None, images: bool
) -> list[Experiment]:
    if names is None:
        left_out = () if images else NEEDS_A_GPU
        names = MINUTES if quick else [one.environment for one in found if one.environment not in left_out]
    for name in names:
        if name not in {experiment.environment for experiment in found}:
            raise unknown("environment", name, sorted({experiment.environment for experiment in found}))
    return [experiment for experiment in found if experiment.environment in names]


def _semi_supervised(found: Sequence[Experiment], changes: dict[str, Any]) -> list[Experiment]:
    """Choose between experiments with further states and those without, by what was asked for.

    Who asks for further states gets the experiments that have some, in environments that have such experiments. Who
    asks for methods or sizes alone gets those without further states.
    """
    if "unlabelled" in changes:
        with_states = {one.environment for one in found if one.unlabelled != (0,)}
        return [one for one in found if one.unlabelled != (0,) or one.environment not in with_states]
    if changes.keys() & {"methods", "sizes"}:
        return [one for one in found if one.unlabelled == (0,)]
    return list(found)
