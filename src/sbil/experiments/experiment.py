"""An experiment: environments x demonstrators x methods x sizes, each a cell of draws x initialisations."""

from collections.abc import Sequence
from dataclasses import dataclass

from sbil.experiments.environment import SIZES, EnvironmentTask
from sbil.experiments.methods import Method
from sbil.experiments.task import Cell


@dataclass(frozen=True)
class Experiment:
    """One environment, thinned in one way; every combination of the rest is a cell."""

    environment: str
    demonstrators: tuple[tuple[str, str], ...]  # (name, mode)
    methods: tuple[Method, ...]
    thin: int = 1
    sizes: tuple[int, ...] = SIZES
    unlabelled: tuple[int, ...] = (0,)  # further trajectories of which only states are shown
    every_state: bool = False  # whether states are shown whose decision is thinned away
    seed: int = 0
    draws: int = 10
    initialisations: int = 5
    updates: int | None = None  # None: what the preset of each method asks for
    episodes: int = 300

    def cells(self) -> list[Cell]:
        """Every cell, demonstrator by demonstrator and method by method."""
        shown, seed = self.every_state, self.seed
        return [
            Cell(
                EnvironmentTask(self.environment, *who, self.thin, self.episodes, unlabelled, shown, seed),
                method,
                size,
                self.draws,
                self.initialisations,
                method.updates(self.updates),
            )
            for who in self.demonstrators
            for method in self.methods
            for size in self.sizes
            for unlabelled in self.unlabelled
        ]


def cells_of(experiments: Sequence[Experiment]) -> list[Cell]:
    """The cells of several experiments, each once."""
    return list(dict.fromkeys(cell for experiment in experiments for cell in experiment.cells()))
