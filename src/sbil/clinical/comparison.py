"""How well every algorithm matches held-out decisions of recorded patients: the paper's clinical table.

The data are split at random several times, 80 % to learn from and 20 % to be judged by: by patient where the data say
who that is, else by stay or episode. Whatever is fitted here, standardisation too, is fitted to the learning part alone
(MIMIC-III's missing values are filled before, with means of the whole cohort). One Parquet file a method holds the
metrics, a row a split, and no row of the data; a second call runs only what is missing. Where the process behind
the data is known (ICU-Sepsis), what was learned is played in it as well.

The standard errors and intervals over splits are those of `sbil.statistics.estimate_over_splits`.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl

from sbil import algorithms, files
from sbil.checkpoint import Checkpoint
from sbil.dataset import Dataset, Standardisation, make_dataset, spec_of, standardisation_of
from sbil.demonstrations import Demonstrations
from sbil.errors import UserError
from sbil.evaluation.baselines import MAJORITY, PREVIOUS, Baselines
from sbil.evaluation.matching import METRICS, Decided, decided, scores, units
from sbil.experiments.methods import Method
from sbil.experiments.store import sealed, unpacked
from sbil.fitting import fingerprint
from sbil.keys import named
from sbil.policy import Policy
from sbil.statistics import Estimate, estimate_over_splits
from sbil.training import pick, train_many
from sbil.version import MADE_BY

LOGISTIC, TREES = "logistic regression", "gradient-boosted trees"
BASELINES = (MAJORITY, PREVIOUS, LOGISTIC, TREES)
LEARNERS = ("bc", "bc:decay", "rcal", "edm", "edm:released", "edm:paper", "value_dice", "dsfn")
METHODS = (*BASELINES, *LEARNERS)  # what takes longest comes last
REFERENCE = "bc"  # what others are compared with

Watch = Callable[[str, float], None]  # a method, and the share of it that is done: 1 when it is stored
Says = Callable[[Demonstrations], Decided]  # what was fitted -> what it thinks of decisions


class Process(NamedTuple):
    """A process that is known, in which policies are played."""

    name: str  # with everything that its metrics depend on
    references: Mapping[str, Policy]  # policies that are judged as what was learned is
    asked: Demonstrations  # made-up decisions: what a method thinks of them is all there is to know about it
    metrics: Mapping[str, str]  # what playing gives, and what it is called in print
    play: Callable[[str, Mapping[int, Decided]], dict[int, dict[str, float]]]
    # (method, its say on `asked` by the seed of the split) -> metrics by seed


class Comparison(NamedTuple):
    """What every method scored on the held-out decisions of every split."""

    name: str
    held_out: float
    scores: dict[str, dict[str, np.ndarray]]  # by method and metric: [its splits], not a number where it diverged
    notes: tuple[str, ...] = ()  # what must be known to read the numbers
    played: Mapping[str, str] = {}  # the metrics of a process, and what they are called in print
    origin: str = ""  # a mark of the data, and of all that is the same for every method

    @property
    def splits(self) -> int:
        """How many there are; a method may have been run on the first of them only."""
        return max(map(self.splits_of, self.scores))

    def splits_of(self, method: str) -> int:
        """On how many of them a method was run."""
        return len(self.scores[method]["accuracy"])

    def diverged(self, method: str) -> int:
        """In how many splits the training of a method diverged."""
        return int(np.isnan(self.scores[method]["accuracy"]).sum())

    def score(self, method: str, metric: str) -> Estimate:
        """Over the splits in which it did not diverge."""
        return estimate_over_splits(self.scores[method][metric], self.held_out)

    def difference(self, method: str, metric: str, reference: str = REFERENCE) -> Estimate:
        """What a method scored more than another on the same splits."""
        ours, theirs = self.scores[method][metric], self.scores[reference][metric]
        both = min(len(ours), len(theirs))
        return estimate_over_splits(ours[:both] - theirs[:both], self.held_out)


def run(
    name: str,
    demonstrations: Demonstrations,
    out: Path,
    methods: Sequence[str] = METHODS,
    *,
    splits: int = 10,
    held_out: float = 0.2,
    seed: int = 0,
    updates: int | None = None,
    standardise: bool = True,
    process: Process | None = None,
    notes: tuple[str, ...] = (),
    watch: Watch | None = None,
) -> Comparison:
    """Compare methods on one dataset; what is stored in the folder `out` already is not run again.

    What the table in that folder holds beside what is asked for stays in the comparison: a part that is run again, or
    on fewer splits, takes nothing away. A table that was made in another way is not replaced.

    name: of the dataset, for files and tables.
    methods: the baselines above, the references of the process, or algorithms as edm, edm:released, bc+weight_decay=1;
        dsfn@2 is run on the first 2 splits only.
    seed: split k and what is trained on it have the seed `seed` + k.
    updates: of algorithms; default, what the preset of each asks for. Where an update is a round (DSFN), always that.
    standardise: bring every column to mean 0 and standard deviation 1 of the learning part.
    process: what produced the data, where it is known: what was learned is played in it.
    notes: what must be known to read the numbers.
    """
    references = tuple(process.references) if process else ()
    requests = check(methods, splits, updates, references)
    wanted = {one.method: one.splits for one in requests}
    if updates is not None:
        notes = (*notes, f"{updates:,} updates (a method that learns in rounds: its own number).")
    groups = None if demonstrations.groups is None else np.unique(demonstrations.groups, return_inverse=True)[1]
    data = _mark([fingerprint(demonstrations), groups if groups is None else groups.tolist()])
    way = [*([] if standardise else ["as they are"]), *([process.name] if process else [])]
    origin = _mark([MADE_BY, data, held_out, *way])
    before = _before(Path(out) / f"{slug(name)}.json", notes, origin)
    more = [_kept(method, count, updates, references) for method, count in before.items()]
    requests += [one for one in more if one and one.method not in [asked.method for asked in requests]]
    known = {*BASELINES, *references}
    asked = [[data, one.method, *one.settings, held_out, *way] for one in requests]
    metrics = (*METRICS, *(process.metrics if process else ()))
    out = Path(out)
    files.probe(out)
    files.sweep(out)
    files.write_text(out / "data" / ".gitignore", "*\n")  # nobody commits by accident what is there
    _must_learn([Method.parse(one.method).algorithm for one in requests if one.method not in known], demonstrations)
    made = cache(lambda seeds: Splits.of(demonstrations, held_out, seeds, standardise))
    found = {}
    for (method, count, _), request in zip(requests, asked, strict=True):
        path = out / f"{slug(name)}.{slug(method)}.parquet"
        marks = {seed + k: _mark([MADE_BY, *request, seed + k]) for k in range(max(count, before.get(method, 0)))}
        rows = _stored(path, metrics)
        here = next((each - seed for each, mark in marks.items() if mark not in rows), len(marks))
        marks = {each: mark for each, mark in marks.items() if each - seed < max(here, wanted.get(method, 0))}
        if not marks:
            continue  # of an earlier call, and no longer what it would give
        missing = tuple(each for each, mark in marks.items() if mark not in rows)
        for part in [(each,) for each in missing] if method in known else [missing] * bool(missing):
            tell = partial(_tell, watch, method, missing.index(part[0]) / len(missing), len(part) / len(missing))
            # With the patients' rows, for chains may begin at some of them.
            checkpoint = Checkpoint.beside(out / "data" / path.name, {"runs": [marks[each] for each in part]})
            for each, row in zip(part, _run(method, made(part), updates, tell, checkpoint, process), strict=True):
                rows[marks[each]] = {"dataset": name, "method": method, "seed": each, "run": marks[each], **row}
            files.write_bytes(path, sealed(pl.DataFrame(sorted(rows.values(), key=lambda row: row["seed"]))))
            checkpoint.remove()
        found[method] = {metric: np.array([rows[mark][metric] for mark in marks.values()]) for metric in metrics}
        if watch and method in wanted:
            watch(method, 1.0)
    order = [*before, *(method for method in found if method not in before)]  # as they stood, what is new at the end
    found = {method: found[method] for method in order if method in found}
    return Comparison(name, held_out, found, notes, process.metrics if process else {}, origin)


def _must_learn(names: Sequence[str], demonstrations: Demonstrations) -> None:
    """Refuse algorithms that cannot learn from the data, before any is run; the copy that is looked at goes again."""
    if names:
        whole = make_dataset(demonstrations)
        for name in names:
            algorithms.require(name, whole)


def _before(path: Path, notes: Sequence[str], origin: str) -> dict[str, int]:
    """The methods of the table that is there, and on how many splits each was run."""
    if not path.exists():
        return {}
    try:
        table = json.loads(path.read_bytes())
        found = {method: int(values.get("splits", table["splits"])) for method, values in table["methods"].items()}
        said, made_of = list(table.get("notes", [])), str(table.get("origin", ""))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UserError(f"{path}: damaged; delete it and run the command again.") from None
    if said != list(notes):
        raise UserError(
            f"{path} is a table of other settings ({' '.join(said)[:100] or 'default updates'}); it is not replaced: "
            "name another --out, or delete it."
        )
    if made_of != origin:
        raise UserError(
            f"{path} is a table of other data, of another number of episodes, or by another version of sbil; it is not "
            "replaced: name another --out, or delete it."
        )
    return found


def _kept(method: str, count: int, updates: int | None, references: Sequence[str]) -> Request | None:
    """What an earlier call asked for, if there is still such a method."""
    try:
        return check([method], count, updates, references)[0]
    except UserError:
        return None


def _tell(watch: Watch | None, method: str, done: float, part: float, share: float) -> None:
    if watch:
        watch(method, min(done + part * share, 0.999))


class Request(NamedTuple):
    """A method, on how many splits, and what its results depend on beside its name."""

    method: str
    splits: int
    settings: list[Any]


def check(methods: Sequence[str], splits: int, updates: int | None, references: Sequence[str] = ()) -> list[Request]:
    """Refuse what cannot be run, before anything is."""
    if splits < 1:
        raise UserError(f"splits must be a whole number from 1. Got {splits}.")
    if updates is not None and updates < 1:
        raise UserError(f"updates must be a whole number from 1. Got {updates}.")
    known, found = (*BASELINES, *references), list[Request]()
    for text in methods:
        method, _, fewer = text.partition("@")
        if fewer and not (fewer.isdecimal() and 1 <= int(fewer) <= splits):
            raise UserError(f"{text}: after @ comes a number of splits from 1 to {splits}.")
        if method in [one.method for one in found]:
            raise UserError(f"{method} is there twice; name every method once.")
        count = int(fewer) if fewer else splits
        found.append(Request(method, count, [] if method in known else _settings(method, updates)))
    return found


def _settings(method: str, updates: int | None) -> list[Any]:
    asked = Method.parse(method)
    configs = asked.candidates
    if len(configs) > 1:
        raise UserError(f"{method}: settings are not chosen here; give one value of each.")
    (config,) = configs.values()
    return [_updates(asked, config, updates), algorithms.settings_of(config)]


def _updates(method: Method, config: Any, updates: int | None) -> int:
    """Those asked for; of a method that learns in rounds, always its own number of them."""
    own = None if algorithms.get(method.algorithm).rounds else updates
    return algorithms.updates_for(method.algorithm, method.preset, [config], own)


def _mark(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


class Splits(NamedTuple):
    """Random splits of one dataset."""

    whole: Demonstrations
    seeds: tuple[int, ...]
    training: list[Demonstrations]
    judged: list[Demonstrations]
    scalings: list[Standardisation | None]  # none: states are taken as they are

    @classmethod
    def of(
        cls, demonstrations: Demonstrations, held_out: float, seeds: tuple[int, ...], standardise: bool = True
    ) -> Splits:
        """Split by patient (group, or trajectory) with each of the seeds."""
        training, judged = zip(*(demonstrations.split(held_out, seed) for seed in seeds), strict=True)
        scalings = [standardisation_of(part) if standardise else None for part in training]
        return cls(demonstrations, seeds, list(training), list(judged), scalings)

    def dataset(self) -> Dataset:
        """A run a split. One pool with the learning part of each, standardised by itself; or with all data once."""
        if self.scalings[0] is None:
            places = {id(trajectory): place for place, trajectory in enumerate(self.whole.trajectories)}
            return make_dataset(self.whole, [np.array([places[id(t)] for t in p.trajectories]) for p in self.training])
        trajectories = [
            replace(trajectory, observations=_scaled(scaling, trajectory.observations))
            for part, scaling in zip(self.training, self.scalings, strict=True)
            for trajectory in part.trajectories
        ]
        ends = np.cumsum([len(part) for part in self.training])
        draws = [np.arange(end - len(part), end) for part, end in zip(self.training, ends, strict=True)]
        together = Demonstrations(tuple(trajectories), self.training[0].action_names)
        return make_dataset(together, draws)


def _scaled(scaling: Standardisation | None, observations: np.ndarray) -> np.ndarray:
    return scaling.apply(observations) if scaling else observations


def _run(
    method: str,
    splits: Splits,
    updates: int | None,
    tell: Callable[[float], None],
    checkpoint: Checkpoint,
    process: Process | None,
) -> list[dict[str, Any]]:
    """The metrics of one method on the held-out decisions of every split."""
    tell(0.0)
    started = time.perf_counter()
    fitted = list(_fitted(method, splits, updates, tell, checkpoint, process))
    said = [says and says(judged) for says, judged in zip(fitted, splits.judged, strict=True)]
    seconds = (time.perf_counter() - started) / len(splits.seeds)
    rows = [
        {
            **(scores(one) if one else dict.fromkeys(METRICS, float("nan"))),
            "seconds": seconds,
            "trajectories": len(training),
            "held_out_trajectories": len(judged),
            "held_out_decisions": judged.steps,
        }
        for one, training, judged in zip(said, splits.training, splits.judged, strict=True)
    ]
    if process:
        each = zip(splits.seeds, fitted, strict=True)
        played = process.play(method, {seed: says(process.asked) for seed, says in each if says})
        lost = dict.fromkeys(process.metrics, float("nan"))
        rows = [{**row, **played.get(seed, lost)} for seed, row in zip(splits.seeds, rows, strict=True)]
    return rows


def _fitted(
    method: str,
    splits: Splits,
    updates: int | None,
    tell: Callable[[float], None],
    checkpoint: Checkpoint,
    process: Process | None,
) -> Iterable[Says | None]:
    """What every split gives; nothing where training diverged."""
    if process and method in process.references:
        return [partial(decided, process.references[method])] * len(splits.seeds)
    if method not in BASELINES:
        return _learned(method, splits, updates, tell, checkpoint)
    return [_baseline(method, *part) for part in zip(splits.training, splits.scalings, splits.seeds, strict=True)]


def _learned(
    method: str, splits: Splits, updates: int | None, tell: Callable[[float], None], checkpoint: Checkpoint
) -> Iterator[Says | None]:
    """Train an algorithm on all splits in one program."""
    asked, one = Method.parse(method), splits.training[0]
    entry, (config,) = algorithms.get(asked.algorithm), asked.candidates.values()
    dataset = splits.dataset()
    algorithms.require(asked.algorithm, dataset)
    trained = train_many(
        entry.make,
        spec_of(one),
        config,
        dataset,
        jnp.stack([named("fit", seed) for seed in splits.seeds]),
        _updates(asked, config, updates),
        lambda report: tell(report.update / report.updates),
        checkpoint,
        chunk=entry.chunk,
    )
    # To the host in one piece: on several CPU devices every run picked there is a collective, and many of these at once
    # can wait for each other until XLA ends the process.
    networks = jax.device_get(trained.states.network)
    for run, scaling in enumerate(splits.scalings):
        policy = Policy(pick(networks, run), one.observation_names, one.action_names, scaling)
        yield None if trained.diverged[run] else partial(decided, policy)


def _baseline(method: str, training: Demonstrations, scaling: Standardisation | None, seed: int) -> Says:
    if method in (MAJORITY, PREVIOUS):
        counted = Baselines.from_demonstrations(training)
        return lambda judged: counted.decided(judged)[method]
    return _classifier(method, training, scaling, seed)


def _classifier(method: str, training: Demonstrations, scaling: Standardisation | None, seed: int) -> Says:
    """A classifier of scikit-learn with its default settings."""
    try:
        from sklearn.ensemble import HistGradientBoostingClassifier
        from sklearn.linear_model import LogisticRegression
    except ImportError:
        raise UserError(f"{method} needs scikit-learn; install it with: pip install 'sbil[clinical]'") from None
    steps = training.flat()
    taken = np.unique(steps.action)
    model = LogisticRegression(max_iter=2000) if method == LOGISTIC else HistGradientBoostingClassifier()
    if method == TREES:
        model.set_params(random_state=seed)
    if len(taken) > 1:  # else there is nothing to tell apart
        model.fit(_scaled(scaling, steps.observation), steps.action)

    def says(judged: Demonstrations) -> Decided:
        asked = judged.flat()
        probabilities = np.zeros((len(asked.action), len(training.action_names)))
        probabilities[:, taken] = model.predict_proba(_scaled(scaling, asked.observation)) if len(taken) > 1 else 1
        return Decided(probabilities, asked.action, units(judged, asked.trajectory))

    return says


def _stored(path: Path, metrics: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The rows of a file of metrics, by what was asked for."""
    if not path.exists():
        return {}
    try:
        rows = unpacked(path.read_bytes()).rows(named=True)
        return {row["run"]: row for row in rows if all(metric in row for metric in metrics)}
    except (ValueError, KeyError, OSError, pl.exceptions.PolarsError):
        raise UserError(f"{path}: damaged, or no file of metrics; delete it and run the command again.") from None


def slug(text: str) -> str:
    """A name that a file may have."""
    return re.sub(r"[^A-Za-z0-9_=.-]+", "-", text)
