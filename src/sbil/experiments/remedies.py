"""`python -m sbil.experiments.remedies`: what each remedy of EDM does, one by one and together.

Every method learns from the same draws with the same seeds; decisions of 50 trajectories that no run has seen say how
well it has learned them, and live episodes what that was worth. The default of `edm_robust` is chosen by the first
alone, before the second is looked at, by this rule:

    Candidates are methods with a state term that were run in all cells. Of a cell, a method's ratio is its mean error
    at unseen decisions over BC's. Left out are methods of which a run diverges. Of the others those come first whose
    error is clearly above BC's in the fewest cells, and among these the one with the smallest geometric mean of the
    ratio over all cells.

Clearly: in the same direction in the 95 % interval over draws and in the exact sign-flip test, as everywhere here.
"""

from dataclasses import dataclass
from pathlib import Path

import tyro

from sbil.errors import program, unknown
from sbil.experiments.cell import Cell
from sbil.experiments.experiment import Experiment, cells_of
from sbil.experiments.methods import Method
from sbil.experiments.run import run_grid
from sbil.experiments.store import Store

SIZES = (1, 3, 7, 15)
SETTINGS = {  # (thinning, demonstrators, episodes)
    "CartPole-v1": ((20,), (("dqn", "greedy"), ("ppo", "sampled")), 30),
    "Acrobot-v1": ((1, 5, 20), (("ppo", "sampled"),), 30),
    "LunarLander-v3": ((1, 5), (("ppo", "greedy"),), 20),
}
BARE = "edm_robust:bare"  # EDM with the square, every remedy off
WARM = "scaled=1+step_size=0.1+noise=0.4472"  # chains of temperature 1
CONTROLS = (
    "bc",
    "bc+weight_decay=0.1",
    "bc+weight_decay=0.3",
    "bc:decay",
    "bc+weight_decay=3",
    "bc+hidden=256x256",
    "bc+learning_rate=3e-3",
    "bc+batch=256",
    "edm_robust:bare+estimator=score+weight=0+average=0.999",
    "edm_robust:bare+estimator=score+weight=0+half_life=2000",
    "edm_robust+weight=0",  # the default but for its state term
)
WITHOUT_CHAINS = (
    f"{BARE}+estimator=score+noise=0.1",
    f"{BARE}+estimator=score+noise=0.1+weight=0.1",
    f"{BARE}+estimator=score+noise=0.3",
    f"{BARE}+estimator=score+noise=0.1+separate=true",
    f"{BARE}+estimator=contrastive",
    f"{BARE}+estimator=contrastive+weight=0.1",
    f"{BARE}+estimator=contrastive+separate=true",
)
CHAINS = (
    BARE,
    f"{BARE}+square=0",
    f"{BARE}+square=0+penalty=0.1",
    f"{BARE}+weight=0.1",
    f"{BARE}+fade=2000",
    f"{BARE}+balance=0.3",
    f"{BARE}+noise=0.1414",
    f"{BARE}+step_size=0.1+noise=0.1",
    f"{BARE}+step_size=0.1+noise=0.4472",
    f"{BARE}+{WARM}",
    f"{BARE}+batch=256",
    f"{BARE}+bound=0.5",
    f"{BARE}+average=0.999",
    f"{BARE}+half_life=2000",
    f"{BARE}+weight_decay=0.1",
    f"{BARE}+weight_decay=1",
)
OTHER_CHAINS = (
    f"{BARE}+separate=true",
    f"{BARE}+start=data",
    f"{BARE}+start=mixture",
    f"{BARE}+metropolis=true+{WARM}",
)
TOGETHER = (  # short chains of temperature 1, averaged weights, large batches; steps in the units of the states
    "edm_robust+prior=0",
    "edm_robust",
    "edm_robust+prior=100",
    "edm_robust+prior=300",
    "edm_robust+learning_rate=3e-3+prior=100",
    "edm_robust+learning_rate=3e-3+prior=300",
    "edm_robust+scaled=1",
    "edm_robust+scaled=1+prior=100",
)
FINAL = (  # with another seed, once the default was frozen; docs/understanding_edm.md has the commands
    "bc",
    "bc:decay",
    "bc+weight_decay=0/0.1/0.3/1/3/10",
    "edm:released",
    "edm_robust",
    "edm_robust+weight=0",
)
LISTS = {
    "controls": CONTROLS,
    "without-chains": WITHOUT_CHAINS,
    "chains": CHAINS,
    "other-chains": OTHER_CHAINS,
    "together": TOGETHER,
}


@dataclass(frozen=True)
class Options:
    """Run the study of remedies, or a part of it; what is done already is not run again."""

    out: Path
    """The folder of results."""
    env: tuple[str, ...] = tuple(SETTINGS)
    """Environments."""
    demonstrators: tuple[str, ...] = ()
    """Of these alone, like dqn:greedy (default: of all that the study has)."""
    sizes: tuple[int, ...] = SIZES
    """Numbers of trajectories."""
    methods: tuple[str, ...] = tuple(LISTS)
    """Lists of methods by name, or methods."""
    draws: int = 10
    initialisations: int = 5
    updates: int | None = None
    episodes: int | None = None
    """A run (default: 30, on LunarLander 20)."""
    seed: int = 0
    """Of demonstrations, draws and networks: 0 chose the default, another judges it."""
    every_state: bool = False
    """Show states whose decision is thinned away; what is not thinned is left out."""


def cells(options: Options) -> list[Cell]:
    """The cells of the study."""
    for environment in options.env:
        if environment not in SETTINGS:
            raise unknown("environment of the study", environment, SETTINGS)
    known = {f"{name}:{mode}" for environment in options.env for name, mode in SETTINGS[environment][1]}
    for demonstrator in options.demonstrators:
        if demonstrator not in known:
            raise unknown("demonstrator of the study", demonstrator, known)
    named = [name for word in options.methods for name in {**LISTS, "final": FINAL}.get(word, (word,))]
    methods = tuple(Method.parse(name) for name in named)
    return cells_of(
        [
            Experiment(
                environment,
                tuple(who for who in demonstrators if ":".join(who) in (options.demonstrators or known)),
                (method,),
                thin,
                options.sizes,
                every_state=options.every_state,
                seed=options.seed,
                draws=options.draws,
                initialisations=options.initialisations,
                updates=options.updates,
                episodes=options.episodes or episodes,
            )
            for environment in options.env
            for method in methods
            for thins, demonstrators, episodes in (SETTINGS[environment],)
            for thin in thins
            if thin > 1 or not options.every_state
        ]
    )


def main() -> None:
    """Run, and say what was done."""
    run(tyro.cli(Options))


def run(options: Options) -> None:
    """Run what is missing, a line a cell."""
    wanted = cells(options)
    for number, (result, fresh) in enumerate(run_grid(wanted, Store(options.out)), start=1):
        if fresh:
            print(
                f"{number}/{len(wanted)} {result.cell}: error {result.held_out['error'].mean():.4f}, "
                f"diverged {result.diverged}, {sum(result.seconds.values()):.1f} s",
                flush=True,
            )


if __name__ == "__main__":
    program("remedies", main)
