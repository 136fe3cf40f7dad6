"""An experiment: environments x demonstrators x methods x sizes, each a cell of draws x initialisations."""

from collections.abc import Sequence
from dataclasses import dataclass

from sbil.experiments.cell import SIZES, Cell, Method


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
    updates: int | None = None  # without, what the preset of each method asks for
    episodes: int = 300

    def cells(self) -> list[Cell]:
        """Every cell, demonstrator by demonstrator and method by method."""
        return [
            Cell(
                environment=self.environment,
                demonstrator=demonstrator,
                mode=mode,
                thin=self.thin,
                method=method,
                size=size,
                draws=self.draws,
                initialisations=self.initialisations,
                updates=updates_for(method, self.updates),
                episodes=self.episodes,
                unlabelled=unlabelled,
                every_state=self.every_state,
                seed=self.seed,
            )
            for demonstrator, mode in self.demonstrators
            for method in self.methods
            for size in self.sizes
            for unlabelled in self.unlabelled
        ]


def updates_for(method: Method, asked: int | None) -> int:
    """The updates of a method's cells."""
    from sbil import algorithms

    return algorithms.updates_for(method.algorithm, method.preset, method.candidates.values(), asked)


def cells_of(experiments: Sequence[Experiment]) -> list[Cell]:
    """The cells of several experiments, each once."""
    return list(dict.fromkeys(cell for experiment in experiments for cell in experiment.cells()))
