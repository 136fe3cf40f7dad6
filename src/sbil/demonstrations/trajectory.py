"""What people bring: trajectories of observations and the decisions taken."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from sbil.demonstrations.schema import LARGEST, Schema
from sbil.errors import UserError


@dataclass(frozen=True, eq=False, slots=True)
class Trajectory:
    """One episode.

    observations: [T + 1, ...], the last one being the state that the last action led to; or [T, ...] where
        that state was not recorded, so that the last action has no known successor. Of images each frame is here
        once; how many of them make an observation is for the demonstrations to say.
    actions: [T], whole numbers from 0.
    terminal: the process itself ended after the last action (the pole fell, the patient was discharged).
    truncated: the recording ended (time limit) while the process would have gone on.
    weights: [T] how much each decision counts in training; None: all the same.
    """

    observations: np.ndarray
    actions: np.ndarray
    terminal: bool = False
    truncated: bool = False
    weights: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.actions)

    @property
    def has_last_observation(self) -> bool:
        """Whether the successor of the last action was recorded."""
        return len(self.observations) == len(self.actions) + 1


class FlatDecisions(NamedTuple):
    """Recorded decisions of many trajectories, flat: row i is one of them (NumPy arrays)."""

    action: np.ndarray
    has_next: np.ndarray
    terminal: np.ndarray
    time: np.ndarray
    trajectory: np.ndarray


class Steps(NamedTuple):
    """Decisions, and the observations before and after each."""

    observation: np.ndarray
    action: np.ndarray
    next_observation: np.ndarray  # equals `observation` where the successor is not known
    has_next: np.ndarray
    terminal: np.ndarray
    time: np.ndarray
    trajectory: np.ndarray


@dataclass(frozen=True, eq=False)
class Demonstrations:
    """Trajectories of one task, with the names of what was observed and decided, and where they came from.

    stack: where frames were recorded, how many of them make an observation: the latest ones, black where the episode
        had not begun. 0 where each recorded observation is one.
    schema: where they were read from a table, what its columns mean.
    groups: [trajectories] the number of the group each belongs to; a split never tears a group apart. None where each
        trajectory stands alone.
    ids: what each trajectory is called in the table it was read from.
    """

    trajectories: tuple[Trajectory, ...]
    action_names: tuple[str, ...]
    observation_names: tuple[str, ...] = ()
    provenance: Mapping[str, Any] = field(default_factory=dict)
    stack: int = 0
    schema: Schema | None = None
    groups: np.ndarray | None = None
    ids: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if not self.trajectories:
            raise UserError("there are no trajectories in these demonstrations; at least one is needed.")
        if not self.action_names:
            raise UserError("there are no actions in these demonstrations; give action_names.")
        shape = self.trajectories[0].observations.shape[1:]
        if len(shape) == 1:
            names = self.observation_names or tuple(f"observation_{i}" for i in range(shape[0]))
            object.__setattr__(self, "observation_names", names)
            if len(names) != shape[0]:
                counts = f"{len(names)} observation names for {shape[0]} observation columns"
                raise UserError(f"{counts}; give one name per column.")
        self._check_frames(shape)
        for name, what in (("groups", "number"), ("ids", "name")):
            values = getattr(self, name)
            if values is not None and np.shape(values) != (len(self),):
                raise UserError(f"{name} must hold one {what} per trajectory. Got shape {np.shape(values)}.")
        if len({trajectory.weights is None for trajectory in self.trajectories}) > 1:
            raise UserError("some trajectories have weights and others do not; give all of them weights, or none.")
        for index, trajectory in enumerate(self.trajectories):
            _check(trajectory, f"trajectory {index}", shape, len(self.action_names))

    def _check_frames(self, shape: tuple[int, ...]) -> None:
        images = {trajectory.observations.dtype == np.uint8 for trajectory in self.trajectories}
        if len(images) > 1:
            raise UserError("some trajectories hold bytes (uint8) and others do not; bring all in one type.")
        if self.stack < 0 or (self.stack and (len(shape) != 2 or images == {False})):
            raise UserError(f"stack is for uint8 frames of height x width. Got stack {self.stack}, frames {shape}.")

    def __len__(self) -> int:
        return len(self.trajectories)

    def __repr__(self) -> str:
        size = f"{len(self)} {self.words[1]}, {self.steps} steps"
        seen = f"observations {self.observation_shape}, actions {list(self.action_names)}"
        terminal, truncated = (sum(getattr(t, end) for t in self.trajectories) for end in ("terminal", "truncated"))
        return f"Demonstrations({size}, {seen}, {terminal} terminal, {truncated} truncated)"

    @property
    def steps(self) -> int:
        """Number of recorded decisions."""
        return sum(len(trajectory) for trajectory in self.trajectories)

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """Shape of one observation; stacked frames are its last axis."""
        frame = self.trajectories[0].observations.shape[1:]
        return (*frame, self.stack) if self.stack else frame

    @property
    def lengths(self) -> np.ndarray:
        """[trajectories] number of decisions in each trajectory."""
        return np.array([len(trajectory) for trajectory in self.trajectories])

    @property
    def weights(self) -> np.ndarray | None:
        """[steps] how much each decision counts in training, 1 on average; None if all count the same."""
        balance = self.schema is not None and self.schema.balance
        if self.trajectories[0].weights is None and not balance:
            return None
        own = [np.ones(len(t)) if t.weights is None else t.weights for t in self.trajectories]
        found = np.concatenate(own).astype(np.float64)
        if balance:
            action = np.concatenate([t.actions for t in self.trajectories])
            total = np.bincount(action, found)[action]
            found = np.divide(found, total, out=np.zeros_like(found), where=total > 0)
        if not found.any():
            raise UserError(f"the weights of these {self.words[1]} are all 0; nothing would be learned.")
        return found * (len(found) / found.sum())

    def select(self, indices: Sequence[int] | np.ndarray) -> "Demonstrations":
        """The trajectories at `indices`, in that order."""
        chosen = np.asarray(indices, int)
        groups = None if self.groups is None else self.groups[chosen]
        ids = None if self.ids is None else tuple(self.ids[i] for i in chosen)
        return replace(self, trajectories=tuple(self.trajectories[i] for i in chosen), groups=groups, ids=ids)

    def draw(self, size: int, seed: int) -> np.ndarray:
        """Indices of `size` trajectories drawn without replacement.

        The draw of a smaller size with the same seed is the beginning of the larger one, so that learning
        curves over sizes are paired.
        """
        if not 1 <= size <= len(self):
            raise UserError(f"cannot draw {size} {self.words[1]} from {len(self)}; choose 1 to {len(self)}.")
        return np.random.default_rng(seed).permutation(len(self))[:size]

    def split(self, held_out: float, seed: int) -> "tuple[Demonstrations, Demonstrations]":
        """(training, held-out) demonstrations, split by trajectory, or by group; both sides get at least one."""
        if not 0 < held_out < 1:
            raise UserError(f"the share to hold out must be between 0 and 1. Got {held_out}.")
        group, groups = self._grouped("split")
        count = min(max(round(held_out * groups), 1), groups - 1)
        out = np.zeros(groups, bool)
        out[np.random.default_rng(seed).permutation(groups)[:count]] = True
        return self.select(np.flatnonzero(~out[group])), self.select(np.flatnonzero(out[group]))

    def folds(self, count: int, seed: int) -> list[np.ndarray]:
        """`count` lists of trajectories, each held out once; by group where there are groups."""
        group, groups = self._grouped("shared out into folds")
        if not 2 <= count <= groups:
            raise UserError(f"folds must be 2 to {groups}, how many there are to share out. Got {count}.")
        fold = np.empty(groups, int)
        fold[np.random.default_rng(seed).permutation(groups)] = np.arange(groups) % count
        return [np.flatnonzero(fold[group] == index) for index in range(count)]

    def _grouped(self, done: str) -> tuple[np.ndarray, int]:
        """[trajectories] what is split whole, numbered from 0, and how many of them there are: at least two."""
        units = np.arange(len(self)) if self.groups is None else self.groups
        names, numbers = np.unique(units, return_inverse=True)
        if len(names) < 2:
            raise UserError(f"one {self.unit} cannot be {done}; bring at least two.")
        return numbers, len(names)

    @property
    def words(self) -> tuple[str, str]:
        """What one of them is called, and several: episodes, where they were read from a table."""
        return ("trajectory", "trajectories") if self.schema is None else ("episode", "episodes")

    @property
    def unit(self) -> str:
        """What is split whole, in a word."""
        return self.words[0] if self.groups is None else "group"

    def flat(self, thin: int = 1, thin_offset: int = 0) -> Steps:
        """All decisions as flat arrays; with `thin` = k only those at steps thin_offset + 0, k, 2k, ...

        Successors are attached before thinning: the next observation is always the one a single step later.
        """
        kept = [thinned(len(t), thin, thin_offset) for t in self.trajectories]
        after = [np.minimum(keep + 1, len(t.observations) - 1) for t, keep in zip(self.trajectories, kept, strict=True)]
        action, *rest = self.decisions(thin, thin_offset)
        return Steps(self._observed(kept), action, self._observed(after), *rest)

    def _observed(self, times: Iterable[np.ndarray]) -> np.ndarray:
        """The observations of each trajectory at its `times`, one trajectory after the other."""
        return np.concatenate([_at(t, at, self.stack) for t, at in zip(self.trajectories, times, strict=True)])

    def decisions(self, thin: int = 1, thin_offset: int = 0) -> FlatDecisions:
        """`flat` without the observations, which may be large."""
        counts = np.array([len(thinned(length, thin, thin_offset)) for length in self.lengths.tolist()])
        trajectory = np.repeat(np.arange(len(self)), counts)
        time = thin_offset + thin * (np.arange(len(trajectory)) - np.repeat(np.cumsum(counts) - counts, counts))
        visited = np.array([len(t.observations) for t in self.trajectories])
        last = np.where([t.terminal for t in self.trajectories], self.lengths - 1, -1)
        return FlatDecisions(
            action=np.concatenate([t.actions[thin_offset::thin] for t in self.trajectories]),
            has_next=time + 1 < visited[trajectory],
            terminal=time == last[trajectory],
            time=time,
            trajectory=trajectory,
        )


def thinned(length: int, thin: int, thin_offset: int = 0) -> np.ndarray:
    """The steps of a trajectory of `length` decisions that thinning keeps."""
    if not 1 <= thin < 2**31:
        raise UserError(f"thin must be a whole number from 1 (keep every step) to {2**31 - 1}. Got {thin}.")
    if not 0 <= thin_offset < thin:
        raise UserError(f"thin_offset must be a whole number from 0 to thin - 1 = {thin - 1}. Got {thin_offset}.")
    return np.arange(thin_offset, length, thin)


def _at(trajectory: Trajectory, times: np.ndarray, stack: int) -> np.ndarray:
    """The observations at `times`; of frames the latest `stack`, black before the first."""
    if not stack:
        return trajectory.observations[times]
    wanted = times[:, None] + np.arange(1 - stack, 1)
    frames = trajectory.observations[np.maximum(wanted, 0)]
    frames[wanted < 0] = 0
    return np.moveaxis(frames, 1, -1)


def _check(trajectory: Trajectory, where: str, shape: tuple[int, ...], actions: int) -> None:
    """Refuse what no algorithm can use, saying where it stands; messages never quote recorded values."""
    observations, taken = trajectory.observations, trajectory.actions
    if taken.ndim != 1 or len(taken) == 0:
        raise UserError(f"{where}: actions must be a list of at least one action. Got shape {taken.shape}.")
    if not np.issubdtype(taken.dtype, np.integer):
        raise UserError(f"{where}: actions must be whole numbers from 0. Got type {taken.dtype}.")
    if len(observations) - len(taken) not in (0, 1):
        counts = f"{len(observations)} observations for {len(taken)} actions"
        raise UserError(f"{where}: {counts}; one observation per action is needed, and one more for a last state.")
    if observations.ndim < 2 or observations.size == 0:
        raise UserError(f"{where}: observations must be a table with at least one column. Got {observations.shape}.")
    if observations.shape[1:] != shape:
        raise UserError(f"{where}: observations have shape {observations.shape[1:]}, trajectory 0 has {shape}.")
    if not (np.issubdtype(observations.dtype, np.floating) or observations.dtype == np.uint8):
        raise UserError(f"{where}: observations must be real numbers or uint8 images. Got {observations.dtype}.")
    if taken.min() < 0 or taken.max() >= actions:
        step = np.argmax((taken < 0) | (taken >= actions))
        known = f"the {actions} actions 0 to {actions - 1}"
        raise UserError(f"{where}, step {step}: action {taken[step]} is not one of {known}.")
    _check_finite(observations, where)
    if trajectory.weights is not None:
        _check_weights(trajectory.weights, len(taken), where)
    if trajectory.terminal and trajectory.truncated:
        raise UserError(f"{where}: an episode is either terminal or truncated, not both.")


def _check_weights(weights: np.ndarray, length: int, where: str) -> None:
    if np.shape(weights) != (length,):
        raise UserError(f"{where}: weights must hold one number per action. Got shape {np.shape(weights)}.")
    if not (np.isfinite(weights) & (weights >= 0)).all():
        raise UserError(f"{where}: weights must be finite numbers from 0.")


def _check_finite(observations: np.ndarray, where: str) -> None:
    """Refuse a number that is not finite as float32, which is what the device holds."""
    if observations.dtype == np.uint8 or max(-float(observations.min()), float(observations.max())) <= LARGEST:
        return
    with np.errstate(over="ignore"):
        step, *column = np.argwhere(~np.isfinite(observations.astype(np.float32)))[0]
    place = f"{where}, step {step}, column {', '.join(map(str, column))}"
    raise UserError(f"{place}: the observation is not a finite float32 number; remove the step or fill the value in.")
