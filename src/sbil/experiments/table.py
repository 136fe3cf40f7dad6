"""Tasks that match recorded decisions: runs learn from a part of a dataset and are judged by the decisions held out.

Run k learns from the random split with seed `seed` + k. Splits are by patient if the data name patients, else by stay
or episode. Standardisation, too, is fitted to the learning part alone. If the process behind the data is known, the
learned policies are also played in it.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from sbil import algorithms
from sbil.dataset import Dataset, make_dataset, spec_of, standardisation_of
from sbil.demonstrations import Demonstrations
from sbil.demonstrations.fingerprint import fingerprint
from sbil.errors import UserError
from sbil.evaluation.decided import Decided, decided
from sbil.evaluation.matching import METRICS, scores
from sbil.experiments.methods import BASELINES, Baseline, Learning, Method, Says, reference, scaled
from sbil.experiments.task import Cell, Prepared, Run, Scores, Task, at_least, mark
from sbil.keys import named
from sbil.policy import Policy
from sbil.training import pick

LEARNERS = ("bc", "bc:decay", "rcal", "edm", "edm:released", "edm:paper", "value_dice", "dsfn")
METHODS = (*BASELINES, *LEARNERS)  # the slowest come last
WHOLE = 0  # the size of every cell of a table: its runs learn from their whole learning part


class Process(NamedTuple):
    """A process that is known, in which policies are played."""

    name: str  # with everything that its metrics depend on
    references: Mapping[str, Policy]  # known policies, which are judged like learned ones
    asked: Demonstrations  # made-up decisions; a method's answers to them determine how it plays
    metrics: Mapping[str, str]  # the metrics of playing, and their titles in tables
    play: Callable[[str, Mapping[int, Decided]], dict[int, dict[str, float]]]
    # (method, its answers to `asked` by the seed of the split) -> metrics by seed


@dataclass(frozen=True)
class TableTask(Task):
    """Recorded decisions, how they are split, and notes for readers of the scores.

    A task that was read from a file of results has no demonstrations and cannot be run.
    """

    name: str  # of the dataset
    title: str  # of its tables and files
    origin: str  # a mark of the demonstrations and their groups
    held_out: float = 0.2
    standardise: bool = True  # bring every column to mean 0 and standard deviation 1 of the learning part
    seed: int = 0
    notes: tuple[str, ...] = ()
    process: str = ""  # the name of the process, if it is known
    played: tuple[tuple[str, str], ...] = ()  # the metrics of the process, and what tables call them
    demonstrations: Demonstrations | None = field(default=None, compare=False, repr=False)
    behind: Process | None = field(default=None, compare=False, repr=False)

    place: ClassVar[str] = "clinical"
    private: ClassVar[str] = "clinical/data"

    @classmethod
    def of(
        cls,
        name: str,
        demonstrations: Demonstrations,
        *,
        title: str = "",
        process: Process | None = None,
        **fields: Any,
    ) -> "TableTask":
        """Return the task of demonstrations. Give the process if it is known; `fields` are other fields of the task."""
        groups = None
        if demonstrations.groups is not None:
            groups = np.unique(demonstrations.groups, return_inverse=True)[1].tolist()
        origin = mark([fingerprint(demonstrations), groups])
        task = cls(name, title or name, origin, **fields, demonstrations=demonstrations, behind=process)
        return replace(task, process=process.name, played=tuple(process.metrics.items())) if process else task

    @property
    def setting(self) -> str:
        return self.title

    @property
    def asked(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("origin", "held_out", "standardise", "seed", "process")}

    def words(self, size: int) -> str:
        return ""

    def file_name(self, cell: Cell) -> str:
        return f"{slug(self.title)}.{slug(cell.method.algorithm)}"

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> Task:
        played = tuple((str(metric), str(title)) for metric, title in json.loads(row["played"]))
        return super().from_row({**row, "notes": tuple(json.loads(row["notes"])), "played": played})

    def check(self, cell: Cell) -> None:
        at_least(0, updates=cell.updates)
        if (cell.size, cell.initialisations) != (WHOLE, 1):
            raise UserError(f"runs of {self.title} differ in their split only; give size {WHOLE}, 1 initialisation.")

    def baseline(self, method: Method) -> Callable[[Run], Scores] | None:
        policies = self.behind.references if self.behind else {}
        known = BASELINES | {name: reference(policy) for name, policy in policies.items()}
        learn = known.get(str(method))
        return partial(self._scores_of_baseline, learn) if learn else None

    def _scores_of_baseline(self, learn: Baseline, run: Run) -> Scores:
        split = TableRuns(self, [run])
        return split.judge([learn(split.learning[0])], [0])

    def surroundings(self, cell: Cell) -> list[Any]:
        must_be_single(cell.method, cell.candidates)
        return []

    def require(self, methods: Sequence[Method]) -> None:
        learners = [method.algorithm for method in methods if not self.baseline(method)]
        if learners and self.demonstrations:
            whole = make_dataset(self.demonstrations)
            for name in learners:
                algorithms.require(name, whole)

    def program(self, cell: Cell) -> tuple[Any, ...]:
        return self, cell  # one cell per program: the splits fill the memory, and XLA rounds by the number of runs

    def prepare(self, runs: Sequence[Run]) -> Prepared:
        splits = TableRuns(self, runs)
        keys = jnp.stack([named("fit", part.seed) for part in splits.learning])
        return Prepared(spec_of(splits.whole), splits.dataset(), keys, splits.score)


class TableRuns:
    """Random splits of one dataset. Each run has its own split."""

    def __init__(self, task: TableTask, runs: Sequence[Run]) -> None:
        assert task.demonstrations is not None, f"{task.title} was read from results; open its data to run it"
        self.task, self.whole, self.method = task, task.demonstrations, runs[0].cell.method
        self.learning: list[Learning] = []
        self.judged: list[Demonstrations] = []
        for seed in (task.seed + run.draw for run in runs):
            training, judged = self.whole.split(task.held_out, seed)
            scaling = standardisation_of(training) if task.standardise else None
            self.learning.append(Learning(training, scaling, seed))
            self.judged.append(judged)

    def dataset(self) -> Dataset:
        """Return the rows of the learning part of each split, in one pool."""
        if self.task.standardise:
            return self.standardised()
        places = {id(trajectory): place for place, trajectory in enumerate(self.whole.trajectories)}
        parts = [part.demonstrations.trajectories for part in self.learning]
        return make_dataset(self.whole, [np.array([places[id(trajectory)] for trajectory in part]) for part in parts])

    def standardised(self) -> Dataset:
        """Return one pool that holds the learning part of each split. Each part has its own standardisation."""
        trajectories = [
            replace(trajectory, observations=scaled(part.scaling, trajectory.observations))
            for part in self.learning
            for trajectory in part.demonstrations.trajectories
        ]
        counts = [len(part.demonstrations) for part in self.learning]
        draws = [np.arange(end - count, end) for count, end in zip(counts, np.cumsum(counts), strict=True)]
        together = Demonstrations(tuple(trajectories), self.whole.action_names)
        return make_dataset(together, draws)

    def score(self, networks: Any, members: np.ndarray, diverged: np.ndarray) -> Scores:
        """Score the stacked networks of some runs."""
        # All networks go to the host at once. On several CPU devices, taking one run would be a collective program.
        networks, names = jax.device_get(networks), (self.whole.observation_names, self.whole.action_names)
        said = [
            None if lost else partial(decided, Policy(pick(networks, place), *names, self.learning[run].scaling))
            for place, (run, lost) in enumerate(zip(members, diverged, strict=True))
        ]
        return self.judge(said, members)

    def judge(self, said: Sequence[Says | None], members: Sequence[int] | np.ndarray) -> Scores:
        """Score the answers of some runs to held-out decisions. A run that diverged has no answers and no scores."""
        rows = [self._matched(says, run) for says, run in zip(said, members, strict=True)]
        if process := self.task.behind:
            seeds = [self.learning[run].seed for run in members]
            by_seed = {seed: says(process.asked) for seed, says in zip(seeds, said, strict=True) if says}
            played = process.play(str(self.method), by_seed)
            lost = dict.fromkeys(process.metrics, float("nan"))
            rows = [row | played.get(seed, lost) for row, seed in zip(rows, seeds, strict=True)]
        return {name: np.array([row[name] for row in rows], np.float64) for name in rows[0]}

    def _matched(self, says: Says | None, run: int) -> dict[str, float]:
        judged = self.judged[run]
        return {
            **(scores(says(judged)) if says else dict.fromkeys(METRICS, float("nan"))),
            "trajectories": len(self.learning[run].demonstrations),
            "held_out_trajectories": len(judged),
            "held_out_decisions": judged.steps,
        }


class Wanted(NamedTuple):
    """A method of a table, the number of splits it is run on, and its updates."""

    method: Method
    splits: int
    updates: int


def wanted(
    methods: Sequence[str], splits: int = 10, updates: int | None = None, baselines: Sequence[str] = ()
) -> list[Wanted]:
    """Read the methods of a table, such as edm:released or bc+weight_decay=1; dsfn@2 is run on the first 2 splits only.

    updates: of every algorithm (default: those of its preset). A method that learns in rounds keeps its own number.
    baselines: the references of a process, which are no algorithms either.
    """
    at_least(1, splits=splits, **({} if updates is None else {"updates": updates}))
    found: dict[str, Wanted] = {}
    for text in methods:
        name, _, fewer = text.strip().partition("@")
        if fewer and not (fewer.isdecimal() and 1 <= int(fewer) <= splits):
            raise UserError(f"{text}: after @ comes a number of splits from 1 to {splits}.")
        if name in found:
            raise UserError(f"{name} is there twice; name every method once.")
        count, method = int(fewer or splits), Method.parse(name)
        counted = name in (*BASELINES, *baselines)
        found[name] = Wanted(method, count, 0 if counted else _updates(method, updates))
    return list(found.values())


def _updates(method: Method, asked: int | None) -> int:
    must_be_single(method, method.candidates)
    return method.updates(None if algorithms.get(method.algorithm).rounds else asked)


def must_be_single(method: Method, candidates: Sized) -> None:
    """Refuse a method with several values of a setting."""
    if len(candidates) > 1:
        raise UserError(f"{method}: settings are not chosen here; give one value of each.")


def cells_of_table(task: TableTask, methods: Sequence[Wanted]) -> list[Cell]:
    """The cells of a table."""
    return [Cell(task, method, WHOLE, splits, 1, updates) for method, splits, updates in methods]


def slug(text: str) -> str:
    """A name that a file may have."""
    return re.sub(r"[^A-Za-z0-9_=.-]+", "-", text)
