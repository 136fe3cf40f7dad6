"""What the study of remedies runs: each remedy of EDM alone, and several together.

Every method learns from the same draws with the same seeds. Decisions of 50 trajectories that no run has seen measure
how well a method has learned; live episodes measure what that is worth. The default of `edm_robust` is chosen by the
decisions alone, before anyone looks at the live episodes, by this rule:

    Candidates are the methods with a state term that were run in all cells. The ratio of a method in a cell is its
    mean error at unseen decisions over BC's. Methods of which a run diverges are left out. Of the others, those come
    first whose error is clearly above BC's in the fewest cells. Among these, the method with the smallest geometric
    mean of the ratio over all cells comes first.

A difference is clear if the 95 % interval over draws and the exact sign-flip test agree on its direction.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from sbil.errors import unknown
from sbil.experiments.experiment import Experiment, cells_of
from sbil.experiments.methods import Method
from sbil.experiments.run import run_grid
from sbil.experiments.store import Store
from sbil.experiments.task import Cell

SIZES = (1, 3, 7, 15)
SETTINGS: dict[str, tuple[tuple[int, ...], tuple[tuple[str, str], ...], int]] = {  # (thinning, demonstrators, episodes)
    "CartPole-v1": ((20,), (("dqn", "greedy"), ("ppo", "sampled")), 30),
    "Acrobot-v1": ((1, 5, 20), (("ppo", "sampled"),), 30),
    "LunarLander-v3": ((1, 5), (("ppo", "greedy"),), 20),
}
BARE = "edm_robust:bare"  # EDM with the square and without remedies
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
    "edm_robust+weight=0",  # the default without its state term
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
class Run:
    """Run the study of remedies, or a part of it. Finished cells are not run again."""

    out: Path
    """The folder of results."""
    env: tuple[str, ...] = tuple(SETTINGS)
    """Environments."""
    demonstrators: tuple[str, ...] = ()
    """Run these demonstrators only, for instance dqn:greedy (default: all of the study)."""
    sizes: tuple[int, ...] = SIZES
    """Numbers of trajectories."""
    methods: tuple[str, ...] = tuple(LISTS)
    """Methods, or names of lists of methods."""
    draws: int = 10
    initialisations: int = 5
    updates: int | None = None
    episodes: int | None = None
    """Episodes per run (default: 30; LunarLander 20)."""
    seed: int = 0
    """The seed of demonstrations, draws and networks. Seed 0 chose the default; another seed judges it."""
    every_state: bool = False
    """Show the states whose decisions are thinned away; run only the settings that thin."""


def cells(asked: Run) -> list[Cell]:
    """Return the cells of the study that were asked for."""
    _check(asked)
    return cells_of([experiment for environment in asked.env for experiment in _experiments(asked, environment)])


def _check(asked: Run) -> None:
    for environment in asked.env:
        if environment not in SETTINGS:
            raise unknown("environment of the study", environment, SETTINGS)
    known = {":".join(who) for environment in asked.env for who in SETTINGS[environment][1]}
    for demonstrator in asked.demonstrators:
        if demonstrator not in known:
            raise unknown("demonstrator of the study", demonstrator, known)


def _experiments(asked: Run, environment: str) -> Iterable[Experiment]:
    """Yield one experiment per method and thinning of an environment."""
    thins, demonstrators, episodes = SETTINGS[environment]
    shared = {name: getattr(asked, name) for name in ("every_state", "seed", "draws", "initialisations", "updates")}
    shared["episodes"] = asked.episodes or episodes
    if asked.demonstrators:
        demonstrators = tuple(who for who in demonstrators if ":".join(who) in asked.demonstrators)
    for method in _methods(asked.methods):
        for thin in thins:
            if thin > 1 or not asked.every_state:
                yield Experiment(environment, demonstrators, (method,), thin, asked.sizes, **shared)


def _methods(words: Iterable[str]) -> list[Method]:
    lists = {**LISTS, "final": FINAL}
    return [Method.parse(name) for word in words for name in lists.get(word, (word,))]


def run(asked: Run) -> None:
    """Run what is missing; print one line per cell."""
    wanted = cells(asked)
    for number, (result, fresh) in enumerate(run_grid(wanted, Store(asked.out)), start=1):
        if fresh:
            print(
                f"{number}/{len(wanted)} {result.cell}: error {result.metrics['held_out_error'].mean():.4f}, "
                f"diverged {result.diverged}, {sum(result.seconds.values()):.1f} s",
                flush=True,
            )
