"""Logistic regression and gradient-boosted trees: what a table of decisions is usually learned with.

    logistic: L = -sum log pi(a|s) + l2 / 2 |W|^2,   pi = softmax(s W + b), on standardised states
    trees:    pi = softmax(sum of shallow trees), each a step down L = -sum log pi(a|s)

Both need pairs whose states are rows of numbers. scikit-learn trains them, outside of compiled programs, and what it
finds is kept as plain arrays. An action that was never taken has a share of about 1 / (decisions + actions).
"""

import warnings
from contextlib import AbstractContextManager
from functools import lru_cache
from importlib import import_module
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from sbil.algorithms.base import Algorithm, Entry, config, setting
from sbil.algorithms.controls import ControlState, unchanged
from sbil.dataset import Dataset, Spec, features_of
from sbil.errors import UserError
from sbil.networks import MLP, Dense
from sbil.trees import Nodes, Trees

MANY = 100_000  # rows from which on several threads are worth their start
TINIEST = 1e-12  # probability
ITERATIONS = 2000  # of the solver of logistic regression, at most
PRIVATE = ("_baseline_prediction", "_predictors")  # of scikit-learn's trees: the first logits, and the trees per round

Host = dict[str, Any]  # what is learned from, as NumPy arrays: observation, action, unit; and settings


class Sizes(NamedTuple):
    """The settings of trees that are whole numbers."""

    trees: int
    leaves: int
    leaf_rows: int
    folds: int


@config
class LogisticConfig:
    """Settings of logistic regression."""

    l2: float = setting(1.0, "penalty on squared weights, for standardised states (1 / C)", open_low=True)


@config
class TreesConfig:
    """Settings of gradient-boosted trees."""

    trees: int = setting(100, "trees per action, at most", low=1)
    leaves: int = setting(15, "leaves per tree, at most", low=2)
    leaf_rows: int = setting(20, "decisions per leaf, at least", low=1)
    shrinkage: float = setting(0.05, "step of each tree", open_low=True, high=1)
    l2: float = setting(1.0, "penalty on squared values of leaves")
    folds: int = setting(
        3, "parts of the episodes or groups; held-out log-loss says how many trees to keep (1: all)", low=1
    )


def logistic(spec: Spec, config: LogisticConfig) -> Algorithm:
    """Logistic regression as three pure functions."""
    shapes = _floats(features_of(spec), spec.actions), _floats(spec.actions)

    def init(key: PRNGKeyArray, dataset: Dataset) -> ControlState:
        learned = _on_host(lambda own: fit_logistic(spec.actions, own), shapes, dataset, {"l2": config.l2})
        return ControlState(MLP((Dense(*learned),), "elu"))

    return Algorithm(init, unchanged, on_host=True)


def trees(spec: Spec, config: TreesConfig) -> Algorithm:
    """Gradient-boosted trees as three pure functions."""
    size = config.trees, spec.actions if spec.actions > 2 else 1, 2 * config.leaves - 1
    whole = jax.ShapeDtypeStruct(size, jnp.int32)
    shapes = Nodes(whole, _floats(*size), whole, _floats(*size)), _floats(spec.actions)
    sizes = Sizes(config.trees, config.leaves, config.leaf_rows, config.folds)
    floats = {"shrinkage": config.shrinkage, "l2": config.l2}

    def init(key: PRNGKeyArray, dataset: Dataset) -> ControlState:
        _must_be_readable()
        nodes, start = _on_host(lambda own: fit_trees(spec.actions, sizes, own), shapes, dataset, floats)
        return ControlState(Trees(nodes, start, features_of(spec)))

    return Algorithm(init, unchanged, on_host=True)


def _floats(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def _on_host(learn: Any, shapes: Any, dataset: Dataset, settings: dict[str, Any]) -> Any:
    """Return what `learn` makes of the rows of a run on the host; NaN if some of its numbers are not finite."""
    steps = dataset.labelled.indices
    asked = {
        "observation": dataset.pool.before(steps),
        "action": dataset.pool.action[steps],
        "unit": dataset.pool.unit[steps],
        "size": dataset.labelled.size,
        **settings,
    }
    if dataset.pool.weight is not None:
        asked["weight"] = dataset.pool.weight[steps]

    def called(given: Host) -> Any:
        host = {name: np.asarray(value) for name, value in given.items()}
        size = int(host.pop("size"))
        own = {name: value[:size] if value.ndim else value for name, value in host.items()}
        if np.isfinite(own["observation"]).all():
            with _few_threads(size):
                return learn(_that_count(own))
        return jax.tree.map(lambda one: np.full(one.shape, np.nan if one.dtype == np.float32 else 0, one.dtype), shapes)

    return jax.pure_callback(called, shapes, asked, vmap_method="sequential")


def _that_count(own: Host) -> Host:
    """What is learned from, without decisions of weight 0."""
    count = own.get("weight", np.ones(1)) > 0
    if count.all() or not count.any():
        return own
    return {name: value[count] if value.ndim else value for name, value in own.items()}


def _few_threads(rows: int) -> AbstractContextManager[Any]:
    """Let scikit-learn use one thread for few rows: many threads would mostly wait for each other."""
    import_module("sklearn.ensemble")  # only libraries that are loaded can be limited
    from threadpoolctl import threadpool_limits

    return threadpool_limits(limits=1 if rows < MANY else None, user_api="openmp")


def fit_logistic(actions: int, own: Host) -> tuple[np.ndarray, np.ndarray]:
    """Return weights [inputs, actions] and biases [actions] of plain states."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    rows, action = own["observation"].astype(np.float64), own["action"]
    mean, deviation = rows.mean(axis=0), rows.std(axis=0)
    scale = np.where(deviation > 1e-6 * np.maximum(np.abs(mean), 1e-6), deviation, 1.0)
    weight, bias = np.zeros((rows.shape[1], actions)), np.zeros(actions)
    taken, scaled = np.unique(action), (rows - mean) / scale
    if len(taken) > 1:
        model = LogisticRegression(C=1 / float(own["l2"]), max_iter=ITERATIONS, tol=1e-6)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the loss is flat there
            model.fit(scaled, action, own.get("weight"))
        columns = taken[-len(model.coef_) :]  # of two actions, the first has logit 0
        weight[:, columns], bias[columns] = model.coef_.T, model.intercept_
    bias = _with_unseen(bias, taken, scaled @ weight + bias)
    plain = weight / scale[:, None]
    return plain.astype(np.float32), (bias - mean @ plain).astype(np.float32)


def fit_trees(actions: int, sizes: Sizes, own: Host) -> tuple[Nodes, np.ndarray]:
    """Return nodes [rounds, trees, nodes] and the logits [actions] to which their values are added."""
    rows, action, taken = own["observation"], own["action"], np.unique(own["action"])
    count, start = actions if actions > 2 else 1, np.zeros(actions)
    nodes = _only_leaves((sizes.trees, count, 2 * sizes.leaves - 1))
    logits = np.broadcast_to(start, (len(rows), actions)).copy()
    if len(taken) > 1:
        model = _boosted(rows, action, sizes._replace(trees=_rounds(sizes, own)), own)
        baseline, rounds = (getattr(model, name) for name in PRIVATE)
        learned = baseline.size  # one per action, and one alone for two actions
        start[taken[-learned:]] = baseline.ravel()
        for number, trees in enumerate(rounds):
            for column, tree in zip(taken[-learned:], trees, strict=True):
                _keep(tree.nodes, Nodes(*(part[number, column - actions] for part in nodes)))
        logits[:, taken[-learned:]] = model.decision_function(rows).reshape(len(rows), -1)
    return nodes, _with_unseen(start, taken, logits).astype(np.float32)


def _boosted(rows: np.ndarray, action: np.ndarray, sizes: Sizes, own: Host) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier

    model = HistGradientBoostingClassifier(
        learning_rate=float(own["shrinkage"]),
        max_iter=sizes.trees,
        max_leaf_nodes=sizes.leaves,
        min_samples_leaf=sizes.leaf_rows,
        l2_regularization=float(own["l2"]),
        early_stopping=False,
        random_state=0,  # very many rows are thinned to find thresholds
    )
    return model.fit(rows, action, own.get("weight"))


@lru_cache(maxsize=1)
def _must_be_readable() -> None:
    """Refuse a version of scikit-learn whose trained trees cannot be read, before anything is trained."""
    from sklearn import __version__

    with _few_threads(2):
        model = _boosted(np.zeros((2, 1)), np.arange(2), Sizes(1, 2, 1, 1), {"shrinkage": 1.0, "l2": 0.0})
    if missing := [name for name in PRIVATE if not hasattr(model, name)]:
        raise UserError(
            f"trees cannot read what scikit-learn {__version__} trained ({missing[0]} is missing); install a version "
            "that sbil knows: pip install 'scikit-learn>=1.6,<2'"
        )


def _rounds(sizes: Sizes, own: Host) -> int:
    """Return after how many rounds the log-loss of held-out trajectories (or groups) is smallest."""
    rows, action, fold = own["observation"], own["action"], _folds(own["unit"], sizes.folds)
    losses, weight = np.zeros(sizes.trees), own.get("weight")
    for number in range(int(fold.max()) + 1 if sizes.folds > 1 else 0):
        out = fold == number
        known = np.unique(action[~out])
        if len(known) > 1:
            model = _boosted(
                rows[~out], action[~out], sizes, {**own, "weight": None if weight is None else weight[~out]}
            )
            out &= np.isin(action, known)
            place = np.searchsorted(known, action[out])
            stages = (stage[np.arange(len(place)), place] for stage in model.staged_predict_proba(rows[out]))
            counts = 1 if weight is None else weight[out]
            losses -= [(counts * np.log(np.maximum(chances, TINIEST))).sum() for chances in stages]
    return 1 + int(losses.argmin()) if losses.any() else sizes.trees


def _folds(unit: np.ndarray, folds: int) -> np.ndarray:
    """[rows] the fold of each decision: whole units, or stretches of the only one."""
    _, unit = np.unique(unit, return_inverse=True)
    return unit % folds if unit.max() else np.arange(len(unit)) * min(folds, len(unit)) // len(unit)


def _only_leaves(shape: tuple[int, int, int]) -> Nodes:
    """Return trees that add nothing."""
    child = np.broadcast_to(np.arange(shape[-1], dtype=np.int32), shape).copy()
    zeros = np.zeros(shape, np.float32)
    return Nodes(np.zeros(shape, np.int32), zeros, child, zeros.copy())


def _keep(found: np.ndarray, tree: Nodes) -> None:
    """Write scikit-learn's nodes into one tree, with the two children of a node side by side."""
    waiting, free = [(0, 0)], 1
    while waiting:
        old, new = waiting.pop()
        node = found[old]
        if node["is_leaf"]:
            tree.value[new] = node["value"]
            continue
        tree.feature[new], tree.child[new] = node["feature_idx"], free
        tree.threshold[new] = _at_most(float(node["num_threshold"]))
        waiting += [(node["left"], free), (node["right"], free + 1)]
        free += 2


def _at_most(threshold: float) -> np.float32:
    """Return the largest float32 up to a threshold, which float32 values pass exactly as they pass the threshold."""
    near = np.float32(threshold)
    return near if float(near) <= threshold else np.nextafter(near, np.float32(-np.inf))


def _with_unseen(bias: np.ndarray, taken: np.ndarray, logits: np.ndarray) -> np.ndarray:
    """Return the biases with those of actions that were never taken: a share of about 1 / (decisions + actions)."""
    seen = logits[:, taken]
    total = np.log(np.exp(seen - seen.max(axis=1, keepdims=True)).sum(axis=1)) + seen.max(axis=1)
    unseen = np.setdiff1d(np.arange(len(bias)), taken)
    found = bias.copy()
    found[unseen] = total.mean() - np.log(len(logits) + len(bias))
    return found


ENTRIES = (
    Entry(
        make=logistic,
        presets={"default": LogisticConfig()},
        needs="numeric pairs",
        reference="scikit-learn",
        titles={"default": "logistic regression (logistic)"},
        updates={"default": 1},
        extra="sklearn",
        weighs=True,
        seeded=False,
    ),
    Entry(
        make=trees,
        presets={"default": TreesConfig()},
        needs="numeric pairs",
        reference="scikit-learn; Friedman (2001)",
        titles={"default": "gradient-boosted trees (trees)"},
        updates={"default": 1},
        extra="sklearn",
        weighs=True,
        seeded=False,
    ),
)
