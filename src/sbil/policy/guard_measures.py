"""Measures of how unfamiliar a state is, as plain arrays; a higher score is less familiar. Only NumPy is needed.

range: how far the farthest number is from its median, where 1 is an end of its range.
mahalanobis: the distance from the mean of the training states, in standard deviations, with their correlations.
distance: the distance to the nearest of at most 64 centres. A centre is a mean of at least ten training states.
probability: one minus the largest probability. energy: the energy. The network gives these two.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sbil.errors import UserError
from sbil.text import counted

OF_COLUMNS = ("mahalanobis", "distance")  # measures that bring arrays of their own
NAMES = ("range", *OF_COLUMNS, "probability", "energy")
WORDS = {
    "range": "the range of each column",
    "mahalanobis": "the Mahalanobis distance",
    "distance": "the distance to the nearest centre of training states",
    "probability": "the largest probability",
    "energy": "the energy",
}
FAULTS = {
    "times 100": "a number times 100",
    "over 18": "a number divided by 18",
    "absurd": "an absurd value",
    "swapped": "two columns swapped",
}
QUANTILES = 1001  # of the scores of real states
CENTRES, ROUNDS, FEWEST = 64, 10, 10  # of k-means; states of a centre
MOST_COLUMNS = 256  # with which a covariance is kept
LARGEST = float(np.finfo(np.float32).max)
RIDGE = 0.01  # added to every variance of the standardised columns
BLOCK = 1 << 14  # rows looked at together


@dataclass(frozen=True, eq=False)
class Measure:
    """A measure with what it needs.

    scores: quantiles of its scores of real states, smallest first.
    record: how it was chosen, and the rates that were measured; empty if no other measure was tried.
    """

    name: str
    parts: Mapping[str, np.ndarray] = field(default_factory=dict)
    scores: np.ndarray = field(default_factory=lambda: np.zeros(QUANTILES, np.float32))
    record: Mapping[str, Any] = field(default_factory=dict)

    def score(self, rows: np.ndarray) -> np.ndarray:
        """[n] the scores of rows; only of a measure that has arrays of its own."""
        return in_blocks(self._score, rows)

    def _score(self, rows: np.ndarray) -> np.ndarray:
        scaled = (rows.astype(np.float64) - self.parts["centre"]) / self.parts["spread"]
        if self.name == "mahalanobis":
            return np.sqrt(((scaled @ self.parts["whitening"]) ** 2).sum(axis=1))
        return _nearest(scaled, self.parts["centres"])[1]

    def percentile(self, scores: np.ndarray) -> np.ndarray:
        """Of 100 real states, how many are more familiar."""
        place = np.searchsorted(self.scores, np.asarray(scores, np.float32), side="left")
        return np.minimum(100 * place / (len(self.scores) - 1), 100.0)

    def arrays(self) -> dict[str, np.ndarray]:
        """Every array by its name in the file of weights."""
        parts = {**self.parts, "scores": self.scores}
        return {f"measure.{name}": np.asarray(part, np.float32) for name, part in parts.items()}

    def as_json(self) -> dict[str, Any]:
        """What stands in policy.json."""
        return {"name": self.name, "centres": len(self.parts.get("centres", ())), "record": dict(self.record)}

    @classmethod
    def shapes(cls, described: Any, columns: int) -> dict[str, tuple[int, ...]]:
        """The shapes of the arrays of a measure that policy.json describes; a wrong description is refused."""
        good = isinstance(described, Mapping) and set(described) == {"name", "centres", "record"}
        good = good and described["name"] in NAMES and _sound_record(described["record"], described["name"])
        good = good and type(described["centres"]) is int
        if not good or (described["centres"] in range(1, CENTRES + 1)) != (described["name"] == "distance"):
            raise UserError("the measure of the unfamiliar is not described as it should be; the folder is damaged.")
        found: dict[str, tuple[int, ...]] = {"measure.scores": (QUANTILES,)}
        if described["name"] in OF_COLUMNS:
            found |= {"measure.centre": (columns,), "measure.spread": (columns,)}
        if described["name"] == "mahalanobis":
            found["measure.whitening"] = (columns, columns)
        if described["name"] == "distance":
            found["measure.centres"] = (described["centres"], columns)
        return found

    @classmethod
    def restored(cls, described: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> "Measure":
        """The measure of a description and its arrays, whose shapes were checked."""
        parts = {name.removeprefix("measure."): part for name, part in arrays.items() if name.startswith("measure.")}
        scores = parts.pop("scores")
        if (np.diff(scores) < 0).any() or not (parts.get("spread", np.ones(1)) > 0).all():
            raise UserError("the numbers of the measure of the unfamiliar are wrong; the folder is damaged.")
        return cls(described["name"], parts, scores, described["record"])


def quantiles_of(scores: np.ndarray) -> np.ndarray:
    """[1001] quantiles of scores, of which none beyond the tenth largest is a state's own score.

    Beyond the tenth largest, the tail is drawn on through it and the fiftieth largest as an exponential one: the
    largest score could give away the most extreme value.
    """
    descending = np.sort(np.asarray(scores, np.float64))[::-1]
    share = np.linspace(1, 0, QUANTILES)  # of the scores that lie above
    near, far = (min(rank, len(descending)) for rank in (FEWEST, max(len(descending) // 2, 1)))
    far = min(5 * FEWEST, far)
    top = descending[near - 1]
    found = np.minimum(np.quantile(descending, 1 - share), top)
    if far > near:
        rank = np.maximum(share * len(descending), 0.5)
        step = (top - descending[far - 1]) / np.log(far / near)
        found = np.where(rank < near, top + step * np.log(near / rank), found)
    return np.maximum.accumulate(np.minimum(found, LARGEST)).astype(np.float32)


def in_blocks(score: Callable[[np.ndarray], np.ndarray], rows: np.ndarray) -> np.ndarray:
    """[n] the scores of rows [n, columns], some rows at a time."""
    parts = [score(rows[start : start + BLOCK]) for start in range(0, len(rows), BLOCK)]
    return np.concatenate(parts) if parts else np.zeros(0)


def in_words(measure: Measure) -> str:
    """How a measure was chosen, and how well it and the others did."""
    record = measure.record
    if not record:
        return f"Which states are unfamiliar is decided by {WORDS[measure.name]}; no other measure was tried."
    kept, others = record["measures"][measure.name], {**record["measures"]}
    del others[measure.name]
    kinds = ", ".join(f"{share:.1%} with {FAULTS[kind]}" for kind, share in kept["found"].items())
    source = "held-out" if record["held_out"] else "training"
    states = counted(record["states"], f"{source} state")
    told = (
        f"Which states are unfamiliar is decided by {WORDS[measure.name]}. Of {states} "
        f"it flags {kept['clean']:.1%}; of copies of them with a fault it flags {kinds}{_chance(kept)}."
    )
    rest = "; ".join(f"{WORDS[name]} {_rate(found)}" for name, found in others.items())
    told += f" A number lies outside its range in {record['outside']:.1%} of these states without a fault."
    return f"{told} On average over these faults the other measures flag: {rest}." if rest else told


def _rate(found: Mapping[str, Any]) -> str:
    mean = float(np.mean([*found["found"].values()]))
    return f"{mean:.1%} (without a fault {found['clean']:.1%}){_chance(found)}"


def _chance(found: Mapping[str, Any]) -> str:
    return ", which is worse than chance" if found["area"] < 0.5 else ""


def _sound_record(record: Any, name: str) -> bool:
    """Whether a record is empty, or has what `in_words` says."""
    if record == {}:
        return True
    if not (isinstance(record, dict) and set(record) == {"states", "held_out", "asked", "outside", "measures"}):
        return False
    rates = record["measures"]
    good = (
        type(record["states"]) is int
        and type(record["held_out"]) is bool
        and _share(record["asked"])
        and _share(record["outside"])
    )
    return bool(good and isinstance(rates, dict) and name in rates and all(map(_sound_rates, rates, rates.values())))


def _sound_rates(name: str, rates: Any) -> bool:
    if name not in NAMES or not isinstance(rates, dict) or set(rates) != {"clean", "found", "area"}:
        return False
    found = rates["found"]
    known = isinstance(found, dict) and found and set(found) <= set(FAULTS)
    return bool(known and all(map(_share, (rates["clean"], rates["area"], *found.values()))))


def _share(number: Any) -> bool:
    return type(number) in (int, float) and 0 <= number <= 1


def fitted(name: str, rows: np.ndarray) -> Measure | None:
    """A measure made from states [n, columns]; None if it cannot be made from them."""
    if name not in OF_COLUMNS:
        return Measure(name)
    rows = np.asarray(rows, np.float64)
    centre = rows.mean(axis=0)
    spread = np.maximum(rows.std(axis=0), 1e-3 * np.maximum(np.abs(centre), 1e-3))
    centre, spread = (part.astype(np.float32) for part in (centre, spread))
    scaled = (rows - centre) / spread
    common = {"centre": centre, "spread": spread}
    if name == "distance":
        centres = _centres(scaled)
        return None if centres is None else Measure(name, {**common, "centres": centres})
    if rows.shape[1] > MOST_COLUMNS:
        return None
    covariance = scaled.T @ scaled / len(scaled) + RIDGE * np.eye(rows.shape[1])
    whitening = np.linalg.inv(np.linalg.cholesky(covariance)).T
    return Measure(name, {**common, "whitening": whitening.astype(np.float32)})


def _centres(rows: np.ndarray) -> np.ndarray | None:
    """The centres of k-means that stand for at least FEWEST rows each; None for too few rows."""
    count = min(CENTRES, len(rows) // (2 * FEWEST))
    if count < 1:
        return None
    centres = rows[np.sort(np.random.default_rng(0).choice(len(rows), count, replace=False))]
    for _ in range(ROUNDS):
        own, _ = _nearest(rows, centres)
        sizes = np.bincount(own, minlength=len(centres))
        sums = np.zeros_like(centres)
        np.add.at(sums, own, rows)
        centres = sums[sizes >= FEWEST] / sizes[sizes >= FEWEST, None]
    return centres.astype(np.float32)


def _nearest(rows: np.ndarray, centres: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """[n] the number of the nearest centre, and the distance to it."""
    squares = (rows**2).sum(axis=1)[:, None] - 2 * rows @ centres.T + (centres.astype(np.float64) ** 2).sum(axis=1)
    own = squares.argmin(axis=1)
    return own, np.sqrt(np.maximum(squares[np.arange(len(rows)), own], 0.0))
