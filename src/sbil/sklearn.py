"""Policies as scikit-learn classifiers: for pipelines, searches, calibration and cross-validation.

    from sbil.sklearn import EDMClassifier
    model = EDMClassifier(random_state=0).fit(X, y)
    model.predict_proba(X); model.energy(X); model.policy_.save("policy/")

Every row of X is an episode of its own: what was observed at one decision, and y what was decided.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from sbil import algorithms
from sbil.demonstrations import Column, Demonstrations, Schema, Trajectory
from sbil.errors import UserError
from sbil.fitting import fit
from sbil.padding import filled
from sbil.policy import Policy

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError:
    raise UserError("sbil.sklearn needs scikit-learn; install it with: pip install 'sbil[sklearn]'") from None


@dataclass(kw_only=True, eq=False, repr=False)
class _PolicyClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """What the classifiers share."""

    algorithm: ClassVar[str]

    updates: int | None = 1000
    standardise: bool = True
    random_state: Any = None

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn the decisions y taken at the rows of X."""
        observations, decisions = self._validated(X, y)
        check_classification_targets(decisions)
        self.classes_, actions = np.unique(decisions, return_inverse=True)
        rows = zip(observations[:, None], actions.astype(np.int32)[:, None], strict=True)
        demonstrations = Demonstrations(
            tuple(Trajectory(observation, action) for observation, action in rows),
            action_names=tuple(map(str, self.classes_)),
            observation_names=tuple(getattr(self, "feature_names_in_", ())),
        )
        self.policy_: Policy = fit(
            self.algorithm,
            self._described(demonstrations),
            seed=int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max)),
            updates=self.updates,
            standardise=self.standardise,
            pad=True,
            **self._settings(),
        )
        self.n_iter_: int = self.policy_.provenance["updates"]
        return self

    def predict(self, X: ArrayLike) -> np.ndarray:
        """The most probable decision at each row."""
        actions = self._of_each_row(X, lambda policy: policy.act)
        return self.classes_[actions]

    def predict_proba(self, X: ArrayLike) -> np.ndarray:
        """The probability of each decision, in the order of `classes_`."""
        return self._of_each_row(X, lambda policy: policy.probabilities)

    def energy(self, X: ArrayLike) -> np.ndarray:
        """E(s) of each row: low where the training rows were dense (meaningful for EDM)."""
        return self._of_each_row(X, lambda policy: policy.energy)

    def score_samples(self, X: ArrayLike) -> np.ndarray:
        """How familiar each row is: minus its energy."""
        return -self.energy(X)

    def _of_each_row(self, X: ArrayLike, method: Callable[[Policy], Callable[[ArrayLike], np.ndarray]]) -> np.ndarray:
        check_is_fitted(self)
        rows = self._validated(X, reset=False)
        return method(self.policy_)(filled(rows))[: len(rows)]

    def _validated(self, *data: ArrayLike, reset: bool = True) -> Any:
        with np.errstate(over="ignore", invalid="ignore"):  # what is too large for float32 is refused as infinite
            return validate_data(self, *data, dtype=np.float32, reset=reset)

    def _settings(self) -> dict[str, Any]:
        """What else the policy is trained with."""
        return {}

    def _described(self, demonstrations: Demonstrations) -> Demonstrations:
        """The decisions as `fit` gets them."""
        return demonstrations


@dataclass(kw_only=True, eq=False, repr=False)
class AutoClassifier(_PolicyClassifier):
    """The blend of logistic regression, trees and networks that predicts held-out decisions best.

    The weights are in `policy_.provenance["selection"]`; `sbil algorithms auto` lists the methods.

    updates: steps of the optimiser; None: as many as the preset asks for.
    standardise: bring every column to mean 0 and standard deviation 1 of the training rows.
    """

    algorithm: ClassVar = "auto"

    def _described(self, demonstrations: Demonstrations) -> Demonstrations:
        """The decisions as those of a table."""
        columns = tuple(map(Column, demonstrations.observation_names))
        return replace(demonstrations, schema=Schema("decision", columns, demonstrations.action_names))


@dataclass(kw_only=True, eq=False, repr=False)
class _SettingsClassifier(_PolicyClassifier):
    """What the classifiers of one algorithm share; a parameter that is None has the value of the preset."""

    preset: str = "default"
    learning_rate: float | None = None
    weight_decay: float | None = None
    batch: int | None = None
    hidden: tuple[int, ...] | None = None

    def _settings(self) -> dict[str, Any]:
        """The preset, and the parameters that are settings of the algorithm; a list of widths is a tuple."""
        names = algorithms.settings_of(algorithms.configure(self.algorithm, self.preset))
        given = {name: value for name, value in self.get_params(deep=False).items() if name in names}
        given = {name: value for name, value in given.items() if value is not None}
        changed = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
        return {"preset": self.preset, **changed}


@dataclass(kw_only=True, eq=False, repr=False)
class BCClassifier(_SettingsClassifier):
    """Behavioural cloning: a network that learns the decisions by maximum likelihood.

    updates: steps of the optimiser; None: as many as the preset asks for.
    standardise: bring every column to mean 0 and standard deviation 1 of the training rows.
    The others are settings of `sbil algorithms bc`; None: the value of the preset.
    """

    algorithm: ClassVar = "bc"


@dataclass(kw_only=True, eq=False, repr=False)
class EDMClassifier(_SettingsClassifier):
    """Energy-based distribution matching: behavioural cloning whose energy also says how familiar a row is.

    updates: steps of the optimiser; None: as many as the preset asks for.
    standardise: bring every column to mean 0 and standard deviation 1 of the training rows.
    The others are settings of `sbil algorithms edm`; None: the value of the preset.
    """

    algorithm: ClassVar = "edm"

    weight: float | None = None
    square: float | None = None
    step_size: float | None = None
    noise: float | None = None
    chain_length: int | None = None
    buffer_size: int | None = None
    restart: float | None = None
    start: str | None = None
