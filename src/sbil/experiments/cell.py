"""A cell: all runs of one environment, demonstrator, method and size."""

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from sbil.errors import UserError
from sbil.version import MADE_BY

TRAJECTORIES = 200  # the most that any environment collects for an experiment
SIZES = (1, 3, 7, 10, 15)


@dataclass(frozen=True)
class Method:
    """An algorithm, one of its presets, and settings changed by hand.

    Values separated by slashes are chosen from by every run, on held-out demonstrations (see `sbil.selection`).
    """

    algorithm: str
    preset: str = "default"
    settings: tuple[str, ...] = ()

    def __str__(self) -> str:
        name = self.algorithm if self.preset == "default" else f"{self.algorithm}:{self.preset}"
        return "+".join((name, *self.settings))

    @property
    def candidates(self) -> dict[str, Any]:
        """The Configs that the settings allow, by name; where there are several, every run chooses among them."""
        from sbil.algorithms import candidates, parse_words

        return candidates(self.algorithm, self.preset, parse_words(self.algorithm, self.settings))

    @classmethod
    def parse(cls, text: str) -> "Method":
        """From "edm", "edm:released", "edm:released+noise=0.1" or "bc+weight_decay=0/0.1/1"."""
        name, *settings = text.strip().split("+")
        algorithm, _, preset = name.partition(":")
        return cls(algorithm, preset or "default", tuple(settings))


@dataclass(frozen=True)
class Cell:
    """What to run: the runs are every draw of demonstrations with every initialisation."""

    environment: str
    demonstrator: str
    mode: str
    thin: int
    method: Method
    size: int
    draws: int = 10
    initialisations: int = 5
    updates: int = 10_000
    episodes: int = 300
    unlabelled: int = 0  # further trajectories of which the states are shown, and no decision
    every_state: bool = False  # whether states are shown whose decision is thinned away
    seed: int = 0  # of the demonstrations, their draws and the networks: another makes everything anew

    def __post_init__(self) -> None:
        least = {"thin": 1, "size": 1, "draws": 1, "initialisations": 1, "updates": 1, "episodes": 1}
        least |= {"unlabelled": 0, "seed": 0}
        for name, low in least.items():
            value = getattr(self, name)
            if value < low:
                raise UserError(f"{name} must be a whole number from {low}. Got {value}.")
        if self.size + self.unlabelled > TRAJECTORIES:
            shown = f"{self.size} and {self.unlabelled} unlabelled" if self.unlabelled else str(self.size)
            raise UserError(f"size must be at most {TRAJECTORIES} trajectories. Got {shown}.")

    def __str__(self) -> str:
        states = f" +{self.unlabelled} unlabelled" if self.unlabelled else ""
        states += " every state" if self.every_state else ""
        seed = f" seed {self.seed}" if self.seed else ""
        return f"{self.setting} {self.method} n={self.size}{states}{seed}"

    @property
    def setting(self) -> str:
        """Environment, demonstrator and thinning, in words that also make a file name."""
        return f"{self.environment}-{self.demonstrator}-{self.mode}-thin{self.thin}"

    @property
    def runs(self) -> list[tuple[int, int]]:
        """(draw, initialisation) of each run."""
        return [(draw, i) for draw in range(self.draws) for i in range(self.initialisations)]

    @property
    def candidates(self) -> dict[str, Any]:
        """The Configs that the settings of the method allow, by name."""
        return self.method.candidates

    @property
    def fingerprint(self) -> str:
        """A name that changes with everything that was asked for; wrong names are refused here.

        The device and the versions of libraries are recorded with the result instead: they change bits, not
        what was measured, and results of several machines may lie in one folder.
        """
        from sbil import algorithms, demonstrators, environments
        from sbil.algorithms import settings_of
        from sbil.selection import FOLDS

        pool = environments.get(self.environment).demonstrations
        if self.size + self.unlabelled > pool:
            raise UserError(f"{self.environment} has {pool} demonstrations to draw from. Got {self}.")
        if (self.unlabelled or self.every_state) and not algorithms.get(self.method.algorithm).uses_states:
            raise UserError(f"{self.method.algorithm} learns nothing from unlabelled states; leave it out with them.")
        settings = [settings_of(config) for config in self.candidates.values()]
        expert = demonstrators.fingerprint(f"{self.environment}-{self.demonstrator}")
        environments.scale(self.environment, self.demonstrator, self.mode)
        asked = {name: value for name, value in asdict(self).items() if value or name not in ("every_state", "seed")}
        content = [MADE_BY, asked, settings, expert, pool, FOLDS]
        if isinstance(environments.get(self.environment), environments.Environment):
            content.append("demonstrations in float32")  # and play; before, a GPU rounded both
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


@lru_cache(maxsize=8)
def demonstrations_for(environment: str, demonstrator: str, mode: str, seed: int = 0) -> Any:
    """The pool that the draws of an experiment are taken from, collected anew."""
    from sbil import demonstrators, environments

    policy, task = demonstrators.get(f"{environment}-{demonstrator}"), environments.get(environment)
    if mode not in demonstrators.MODES:
        raise UserError(f"a demonstrator is greedy or sampled. Got '{mode}'.")
    return demonstrators.collect(
        task,
        policy,
        task.demonstrations,
        seed=seed,
        greedy=mode == "greedy",
        provenance={"demonstrator": demonstrator},
    )
