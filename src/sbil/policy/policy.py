"""A finished policy: its actions, probabilities and energy, and how familiar a state is."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from sbil.dataset import Spec, Standardisation, as_inputs
from sbil.demonstrations import Schema
from sbil.errors import UserError, flag
from sbil.files import as_path
from sbil.mixtures import Adapted, Composed, adapted
from sbil.networks import Acting, ConvNet, Dense, cooled, energy, in_float32
from sbil.policy.frames import is_frame, rows_of
from sbil.policy.guard import Guard
from sbil.policy.guard_measures import Measure
from sbil.trees import Trees

IMAGES = 64  # seen at a time
ROWS = 1 << 16  # likewise
FEW_ROWS = 1 << 14  # trees decide on so many in NumPy


@dataclass(frozen=True, eq=False)
class Policy:
    """A trained network with the names of its columns and actions, for one observation or many at a time.

    standardisation: applied to an observation before the network sees it; people give and get plain values.
    temperature: divides the logits before they become probabilities; it does not change the energy.
    energies: quantiles of the energies of the states it was trained on, smallest first.
    schema: what the columns of the table it was trained on mean.
    guard: the ranges of the columns in training, and the measure that decides which states are unfamiliar.

    Where a method takes observations, it takes an array, or a Pandas or Polars data frame. Columns of a data frame are
    found by their names, in any order.
    """

    network: Acting
    observation_names: tuple[str, ...]  # none for images
    action_names: tuple[str, ...]
    standardisation: Standardisation | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)
    temperature: float = 1.0
    energies: np.ndarray | None = None
    schema: Schema | None = None
    guard: Guard | None = None

    @property
    def spec(self) -> Spec:
        """The shape of the policy's task."""
        shape = self.network.shape if isinstance(self.network, ConvNet) else (len(self.observation_names),)
        return Spec(shape, len(self.action_names))

    @property
    def plain_network(self) -> Acting | Adapted:
        """The network of plain observations: its first layer includes the standardisation, its last the temperature."""
        network = self.network
        if isinstance(network, Trees):
            trees = network.cooled(self.temperature)
            return trees.of_plain(*self.standardisation) if self.standardisation else trees
        if isinstance(network, Composed):
            return adapted(network, self.spec.observation_shape[0], self.standardisation, self.temperature)
        if self.temperature != 1:
            network = cooled(network, self.temperature)
        if self.standardisation is None or isinstance(network, ConvNet):
            return network
        mean, scale = (np.asarray(part, np.float64) for part in self.standardisation)
        first = network.layers[0]
        weight = np.asarray(first.weight, np.float64) / scale[:, None]
        bias = np.asarray(first.bias) - mean @ weight
        folded = Dense(jnp.asarray(weight, jnp.float32), jnp.asarray(bias, jnp.float32))
        return eqx.tree_at(lambda whole: whole.layers[0], network, folded)

    def logits(self, observations: ArrayLike) -> np.ndarray:
        """Return one logit per action, for one observation [d] or [n, d]; images are uint8 [height, width, channel]."""
        if isinstance(self.network, ConvNet):
            return self._logits_of_images(np.asarray(observations), self.network)
        array = self.seen(observations)
        logits = self._in_parts(np.atleast_2d(array), ROWS, self._logits_of_rows)
        return logits if array.ndim == 2 else logits[0]

    def seen(self, observations: Any) -> np.ndarray:
        """Return observations as an array of float32, [d] or [n, d]: the numbers of this policy in their order."""
        if is_frame(observations):
            return rows_of(observations, self.observation_names, self.schema)
        try:
            with np.errstate(over="ignore"):
                array = np.asarray(observations, np.float32)
        except (TypeError, ValueError):
            kind = type(observations).__name__
            raise UserError(
                f"a policy sees arrays of numbers and data frames. Got {kind}; for a table use sbil.predict."
            ) from None
        if array.ndim not in (1, 2) or array.shape[-1] != len(self.observation_names):
            raise UserError(
                f"this policy sees {len(self.observation_names)} numbers ({', '.join(self.observation_names)}). "
                f"Got an array of shape {array.shape}."
            )
        return array

    def _in_parts(self, rows: np.ndarray, most: int, see: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        parts = [see(rows[start : start + most]) for start in range(0, len(rows), most)]
        return np.concatenate(parts) if parts else np.zeros((0, len(self.action_names)), np.float32)

    def _logits_of_rows(self, rows: np.ndarray) -> np.ndarray:
        if not np.isfinite(rows).all():
            column = np.argwhere(~np.isfinite(rows))[0][-1]
            raise UserError(f"'{self.observation_names[column]}' is not a finite number in the observation given.")
        if self.standardisation:
            with np.errstate(over="ignore"):
                rows = self.standardisation.apply(rows)
        if isinstance(self.network, Trees) and len(rows) <= FEW_ROWS:
            return self.network.in_numpy(rows)  # the same bits, and nothing is compiled
        # XLA rounds a single row differently from many. It goes in twice, so its bits do not depend on other rows.
        twice = np.repeat(rows, 2, axis=0) if len(rows) == 1 else rows
        logits = np.asarray(_forward(self.network, twice))[: len(rows)]
        if not np.isfinite(logits).all():
            column = np.abs(rows[np.argwhere(~np.isfinite(logits))[0][0]]).argmax()
            raise UserError(
                f"the policy has no finite answer to an observation given; '{self.observation_names[column]}' is far "
                "too large there."
            )
        return logits

    def _logits_of_images(self, images: np.ndarray, network: ConvNet) -> np.ndarray:
        if images.dtype != np.uint8 or images.ndim not in (3, 4) or images.shape[-3:] != network.shape:
            raise UserError(
                f"this policy sees images of bytes (uint8) of shape {network.shape}. Got {images.dtype} of shape "
                f"{images.shape}."
            )

        def see(batch: np.ndarray) -> np.ndarray:
            padding = np.zeros((IMAGES - len(batch), *network.shape), np.uint8)  # one size, so one rounding
            return np.asarray(_see(network, np.concatenate([batch, padding])))[: len(batch)]

        logits = self._in_parts(images.reshape(-1, *network.shape), IMAGES, see)
        return logits[0] if images.ndim == 3 else logits

    def act(self, observations: ArrayLike, names: bool = False) -> Any:
        """Return the most probable action for one observation or many: its number, or its name if `names`."""
        actions = self.logits(observations).argmax(axis=-1)
        return np.array(self.action_names)[actions] if flag("names", names) else actions

    def predict(
        self, observation: ArrayLike, state: Any = None, episode_start: Any = None, deterministic: bool = True
    ) -> tuple[np.ndarray, None]:
        """Return (action, state) like Stable-Baselines3: the most probable action, and no state."""
        if not deterministic:
            raise UserError("predict takes the most probable action; draw from policy.probabilities(observation).")
        return self.act(observation), None

    def probabilities(self, observations: ArrayLike) -> np.ndarray:
        """Return the probability of each action; they sum to one."""
        logits = self.logits(observations)
        return np.asarray(jax.nn.softmax(logits if self.temperature == 1 else logits / self.temperature, axis=-1))

    def energy(self, observations: ArrayLike) -> np.ndarray:
        """Return E(s), low where the training states were dense (meaningful for EDM)."""
        return np.asarray(energy(jnp.asarray(self.logits(observations))))

    def percentile(self, observations: ArrayLike) -> np.ndarray:
        """Return how many of 100 real states are more familiar; 100 means unlike all of them.

        The policy's measure decides. If it has none, the energy decides, compared with the states of training.
        """
        measure = self.guard.measure if self.guard else None
        if measure:
            return measure.percentile(self.unfamiliarity(observations))
        if self.energies is None:
            raise UserError("this policy does not know the energies of its training states; train it again.")
        place = np.searchsorted(self.energies, self.energy(observations), side="left")
        return np.minimum(100 * place / (len(self.energies) - 1), 100.0)

    def unfamiliarity(self, observations: ArrayLike, measure: Measure | None = None) -> np.ndarray:
        """Return the score of the policy's measure of the unfamiliar, or of another; higher is less familiar."""
        chosen = measure or (self._known_columns.measure or Measure("energy"))
        if chosen.name == "energy":
            return self.energy(observations).astype(np.float64)
        if chosen.name == "probability":
            return 1.0 - np.asarray(self.probabilities(observations), np.float64).max(axis=-1)
        rows = self.seen(observations)
        found = chosen.score(np.atleast_2d(rows)) if chosen.parts else self._known_columns.beyond(np.atleast_2d(rows))
        return found if rows.ndim == 2 else found[0]

    def outside(self, observations: ArrayLike) -> np.ndarray:
        """Return which numbers lie outside their range in training: [d] for one observation, or [n, d]."""
        return self._known_columns.outside(self.seen(observations))

    def outside_names(self, observations: ArrayLike) -> list[tuple[str, ...]]:
        """Return for each observation the names of its numbers that lie outside their range in training."""
        mask = np.atleast_2d(self.outside(observations))
        found: list[tuple[str, ...]] = [()] * len(mask)
        for row in np.flatnonzero(mask.any(axis=1)):
            found[row] = tuple(self.observation_names[column] for column in np.flatnonzero(mask[row]))
        return found

    @property
    def _known_columns(self) -> Guard:
        if self.guard is None:
            raise UserError("this policy does not know the ranges of its columns; train it again.")
        return self.guard

    def save(self, path: str | Path, overwrite: bool = False, extra: Mapping[str, bytes] | None = None) -> None:
        """Write the whole folder `path`, or nothing; `extra` files (for example metrics) are added to it."""
        from sbil.policy import folder

        folder.save(self, as_path("path", path), overwrite, extra or {})

    def export(self, path: str | Path, overwrite: bool = False) -> None:
        """Write the policy as one ONNX file: observations in, logits, probabilities and energy out."""
        from sbil.policy import onnx

        onnx.export(self, as_path("path", path), overwrite)

    @classmethod
    def load(cls, path: str | Path) -> "Policy":
        """Read a policy folder; a damaged, foreign or newer one is a UserError that names it."""
        from sbil.policy import folder

        return folder.load(as_path("a policy", path))


@jax.jit
def _forward(network: Acting, observations: jax.Array) -> jax.Array:
    with in_float32():
        return network(observations)


@jax.jit
def _see(network: ConvNet, images: jax.Array) -> jax.Array:
    with in_float32():
        return network(as_inputs(images))
