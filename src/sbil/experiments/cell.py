"""A cell: all runs of one environment, demonstrator, algorithm and size."""

import hashlib
import json
from dataclasses import asdict, dataclass, field, fields
from functools import lru_cache
from typing import Any

import numpy as np

from sbil.errors import UserError
from sbil.version import __version__

TRAJECTORIES = 200  # demonstrations collected for an experiment; draws are taken from these
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

    def __post_init__(self) -> None:
        for name in ("thin", "size", "draws", "initialisations", "updates", "episodes"):
            value = getattr(self, name)
            if value < 1:
                raise UserError(f"{name} must be a whole number from 1. Got {value}.")
        if self.size > TRAJECTORIES:
            raise UserError(f"size must be at most {TRAJECTORIES} trajectories. Got {self.size}.")

    def __str__(self) -> str:
        return f"{self.environment} {self.demonstrator}-{self.mode} thin {self.thin} {self.method} n={self.size}"

    @property
    def runs(self) -> list[tuple[int, int]]:
        """(draw, initialisation) of each run."""
        return [(draw, i) for draw in range(self.draws) for i in range(self.initialisations)]

    @property
    def candidates(self) -> dict[str, Any]:
        """The settings of the method, by name; where there are several, every run chooses among them."""
        from sbil.algorithms import candidates

        return candidates(self.method.algorithm, self.method.preset, self.method.settings)

    @property
    def fingerprint(self) -> str:
        """A name that changes with everything that was asked for; wrong names are refused here.

        The device and the versions of libraries are recorded with the result instead: they change bits, not
        what was measured, and results of several machines may lie in one folder.
        """
        from sbil import demonstrators, environments
        from sbil.algorithms import settings_of
        from sbil.selection import FOLDS

        environments.get(self.environment)

        settings = [settings_of(config) for config in self.candidates.values()]
        expert = demonstrators.fingerprint(f"{self.environment}-{self.demonstrator}")
        environments.scale(self.environment, self.demonstrator, self.mode)
        content = [__version__, asdict(self), settings, expert, TRAJECTORIES, FOLDS]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Result:
    """What a cell gave; one entry a run, in the order of `cell.runs`."""

    cell: Cell
    returns: np.ndarray  # [runs, episodes], raw
    diverged_at: np.ndarray  # [runs], -1 where the run stayed sound
    metrics: dict[str, np.ndarray]  # [runs], means over the last chunk of training
    seconds: dict[str, float]
    device: dict[str, Any] = field(default_factory=dict)
    chosen: np.ndarray | None = None  # [runs], the candidate that each run chose, where there were several

    @property
    def choices(self) -> list[str]:
        """[runs], the settings that each run chose, as name=value; nothing where there was no choice."""
        names = list(self.cell.candidates)
        return [""] * len(self.cell.runs) if self.chosen is None else [names[number] for number in self.chosen]

    @property
    def scores(self) -> np.ndarray:
        """[draws, initialisations], mean return scaled so that random is 0 and the demonstrator is 1."""
        from sbil import environments

        low, high = environments.scale(self.cell.environment, self.cell.demonstrator, self.cell.mode)
        scores = (self.returns.mean(axis=1) - low) / (high - low)
        return scores.reshape(self.cell.draws, self.cell.initialisations)

    def as_json(self) -> dict[str, Any]:
        """Plain values, for a file."""
        return {
            "cell": asdict(self.cell),
            "returns": np.round(self.returns, 4).tolist(),
            "diverged_at": self.diverged_at.tolist(),
            "metrics": {name: [_plain(v) for v in values] for name, values in self.metrics.items()},
            "seconds": {name: round(value, 3) for name, value in self.seconds.items()},
            "device": self.device,
            "chosen": None if self.chosen is None else self.chosen.tolist(),
        }

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "Result":
        """The inverse of `as_json`."""
        cell = dict(content["cell"])
        method = cell.pop("method")
        method = Method(method["algorithm"], method["preset"], tuple(method["settings"]))
        names = {f.name for f in fields(Cell)} - {"method"}
        return cls(
            Cell(method=method, **{name: cell[name] for name in names}),
            np.array(content["returns"], np.float64),
            np.array(content["diverged_at"]),
            {name: np.array(values, np.float64) for name, values in content["metrics"].items()},
            content["seconds"],
            content["device"],
            None if content["chosen"] is None else np.array(content["chosen"]),
        )


def _plain(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None


@lru_cache(maxsize=8)
def demonstrations_for(environment: str, demonstrator: str, mode: str) -> Any:
    """The pool that the draws of an experiment are taken from, collected anew (it takes a second)."""
    from sbil import demonstrators, environments

    policy = demonstrators.get(f"{environment}-{demonstrator}")
    if mode not in demonstrators.MODES:
        raise UserError(f"a demonstrator is greedy or sampled. Got '{mode}'.")
    return demonstrators.collect(
        environments.get(environment),
        policy,
        TRAJECTORIES,
        seed=0,
        greedy=mode == "greedy",
        provenance={"demonstrator": demonstrator},
    )
