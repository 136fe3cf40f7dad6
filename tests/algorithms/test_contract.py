"""What every algorithm must do, whatever it learns: each test runs over the whole list of algorithms.

One compiled program of R runs and one of a single run serve nearly all of it, so a new algorithm costs seconds.
Runs side by side and single runs are compared to 1e-6; where the same program runs twice, bit for bit.
"""

import ast
import dataclasses
import json
import os
from functools import cached_property
from pathlib import Path
from typing import Literal, get_args, get_origin, get_type_hints

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import probes
import sbil
from sbil.algorithms import ALGORITHMS, restored, settings_of
from sbil.dataset import Dataset, Rows, make_dataset, spec_of
from sbil.errors import UserError
from sbil.training import pick, train_many, train_one
from sbil.version import RESULTS

UPDATES = 8
RUNS = 3  # not a multiple of the number of devices
DRAWS = [np.array([0, 1]), np.array([2]), np.array([3, 4, 5])]
OTHER_DRAWS = [np.array([5]), np.array([0, 4]), np.array([1])]
STATE_ONLY = [np.array([5]), np.array([3, 4]), np.array([], int)]
CAPACITY = 24


def datasets(draws):
    """R runs over a pool that ends in a state and a step of NaN that belong to no trajectory."""
    demonstrations = probes.demonstrations()
    dataset = make_dataset(demonstrations, draws, unlabelled=STATE_ONLY, capacity=CAPACITY)
    pool = dataset.pool
    visited = len(pool.observations)
    add = lambda array, value: jnp.concatenate([array, jnp.full((1, *array.shape[1:]), value, array.dtype)])  # noqa: E731
    pool = pool._replace(
        observations=add(pool.observations, np.nan),
        row=add(pool.row, visited),
        action=add(pool.action, 0),
        has_next=add(pool.has_next, False),
        terminal=add(pool.terminal, False),
        time=add(pool.time, 0),
        trajectory=add(pool.trajectory, -1),
    )
    return Dataset(pool, dataset.labelled, dataset.unlabelled)


DATASET = datasets(DRAWS)
SPEC = spec_of(probes.demonstrations())
KEYS = jax.random.split(jax.random.key(0), RUNS)
OBSERVATIONS = jnp.asarray(np.random.default_rng(9).normal(size=(6, *SPEC.observation_shape)), jnp.float32)


class Case:
    """An algorithm in its small form, and its programs, compiled once."""

    def __init__(self, name):
        self.entry = ALGORITHMS[name]
        self.make = self.entry.make
        self.config = probes.small(self.entry.config)

    def train_many(self, config=None, dataset=DATASET, keys=KEYS):
        return train_many(self.make, SPEC, config or self.config, dataset, keys, UPDATES)

    @cached_property
    def trained(self):
        return self.train_many()

    @cached_property
    def train_one(self):
        """(config, key, dataset) -> (state, metrics), with the config traced."""
        return jax.jit(lambda config, key, data: train_one(self.make(SPEC, config), UPDATES, key, data))

    @cached_property
    def one(self):
        return self.train_one(self.config, KEYS[0], probes.run_of(DATASET, 0))


_CASES = {}


def rates(config):
    """The names of the learning rates; a control has none, since it does not learn step by step."""
    return [field.name for field in dataclasses.fields(config) if "learning_rate" in field.name]


@pytest.fixture(params=probes.by_need(ALGORITHMS))
def case(request):
    return _CASES.setdefault(request.param, Case(request.param))


@pytest.fixture(params=probes.by_need(name for name, entry in ALGORITHMS.items() if rates(entry.config)))
def learner(request):
    return _CASES.setdefault(request.param, Case(request.param))


def fields(kind=None, slow=()):
    """(algorithm, field) for every field of every Config, or those of one type; `slow` marks what compiles long."""
    return [
        pytest.param(name, field.name, id=f"{name}-{field.name}", marks=slow if name in probes.SLOW else ())
        for name, entry in ALGORITHMS.items()
        for field in dataclasses.fields(entry.config)
        if kind in (None, get_type_hints(entry.config)[field.name])
    ]


# Where doubling changes nothing: DSFN's small run finds its best policy in the second of its three rounds.
OTHER_VALUES = {
    **{("DSFNConfig", "rounds"): 1, ("EDMRobustConfig", "bound"): 0.01, ("EDMRobustConfig", "prior"): 3.0},
    **{("CorrectiveConfig", "tolerance"): 0.0, ("CorrectiveConfig", "spectral"): 0.1, ("AVRILConfig", "floor"): 0.0},
    **{("CKILConfig", "learning_rate"): 0.02},  # a large step makes rounding large
}


def another(config, name):
    """Another value for a setting, in its range and not far away."""
    if (type(config).__name__, name) in OTHER_VALUES:
        return OTHER_VALUES[type(config).__name__, name]
    value, hint = getattr(config, name), get_type_hints(type(config))[name]
    limits = type(config).__dataclass_fields__[name].metadata
    if get_origin(hint) is Literal:
        return next(choice for choice in get_args(hint) if choice != value)
    if hint is bool:
        return not value
    if get_origin(hint) is tuple:
        return (*value, 5)
    if hint is int:
        return 2 * value + 1 if 2 * value + 1 <= limits["high"] else value - 1
    larger = 2 * value + 0.1
    return larger if larger <= limits["high"] else (limits["low"] + value) / 2


def bad_values(config, name):
    """Four or more values that a setting must refuse."""
    hint = get_type_hints(type(config))[name]
    limits = type(config).__dataclass_fields__[name].metadata
    if get_origin(hint) is Literal:
        return ["no such choice", "", None, 3]
    if hint is bool:
        return ["yes", 1, 0.0, None]
    if get_origin(hint) is tuple:
        return [(0,), (8, -1), (1.5,), 8, [8], "8", ("8",), (True,)]
    below = [limits["low"] - 1] + ([limits["low"]] if limits["open_low"] else [])
    above = [] if limits["high"] == np.inf else [limits["high"] + 1]
    if hint is int:
        return [*below, *above, 1.5, "3", True, None, np.nan]
    return [*below, *above, np.nan, np.inf, -np.inf, "0.1", True]


def assert_close(one, other):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)


def assert_same_bits(one, other):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(a, b)


def changed(one, other):
    """Whether two networks, perhaps of other sizes, answer differently."""
    return np.abs(np.asarray(one(OBSERVATIONS) - other(OBSERVATIONS))).max() > 0


def test_shapes_and_dtypes(case):
    algorithm = case.make(SPEC, case.config)
    data = probes.run_of(DATASET, 0)
    state = jax.eval_shape(algorithm.init, KEYS[0], data)
    after, metrics = jax.eval_shape(algorithm.update, KEYS[0], state, data)
    assert jax.tree.structure(after) == jax.tree.structure(state)
    assert [(a.shape, a.dtype) for a in jax.tree.leaves(after)] == [(b.shape, b.dtype) for b in jax.tree.leaves(state)]
    assert metrics
    assert all(value.shape == () and value.dtype == jnp.float32 for value in metrics.values())
    for batch in [(), (6,), (2, 6)]:
        observation = jax.ShapeDtypeStruct((*batch, *SPEC.observation_shape), jnp.float32)
        logits = jax.eval_shape(algorithm.logits, state, observation)
        assert (logits.shape, logits.dtype) == ((*batch, SPEC.actions), jnp.float32)


def test_logits_are_those_of_the_network(case):
    state = pick(case.trained.states, 1)
    logits = case.make(SPEC, case.config).logits(state, OBSERVATIONS)
    np.testing.assert_array_equal(logits, state.network(OBSERVATIONS))
    assert np.asarray(logits).std() > 0


def test_metrics_are_finite_and_named_alike(case):
    _, metrics = case.one
    assert all(np.isfinite(values).all() for values in metrics.values())
    assert set(metrics) == set(case.trained.metrics)
    assert all(np.isfinite(values).all() and values.shape == (1, RUNS) for values in case.trained.metrics.values())
    assert not case.trained.diverged.any()


def test_runs_side_by_side_equal_single_runs(case):
    for run in range(RUNS):
        state, metrics = case.train_one(case.config, KEYS[run], probes.run_of(DATASET, run))
        assert_close(pick(case.trained.states, run), state)
        means = {name: values.mean() for name, values in metrics.items()}
        assert_close({name: values[0, run] for name, values in case.trained.metrics.items()}, means)


def test_traced_settings_equal_static_ones(case):
    static = jax.jit(lambda key, data: train_one(case.make(SPEC, case.config), UPDATES, key, data))
    assert_close(case.one, static(KEYS[0], probes.run_of(DATASET, 0)))


@pytest.mark.parametrize(("name", "field"), fields(float, slow=pytest.mark.release))
def test_sweep_over_a_setting_equals_separate_runs(name, field):
    case = _CASES.setdefault(name, Case(name))
    value = getattr(case.config, field)
    values = np.array([value, another(case.config, field), (value + another(case.config, field)) / 2], np.float32)
    swept = case.train_many(dataclasses.replace(case.config, **{field: values}))
    for run in range(RUNS):
        config = dataclasses.replace(case.config, **{field: float(values[run])})
        state, _ = case.train_one(config, KEYS[run], probes.run_of(DATASET, run))
        assert_close(pick(swept.states, run), state)


@pytest.mark.parametrize(("name", "field"), fields(slow=pytest.mark.release))
def test_every_setting_changes_the_result(name, field):
    case = _CASES.setdefault(name, Case(name))
    config = dataclasses.replace(case.config, **{field: another(case.config, field)})
    state, _ = case.train_one(config, KEYS[0], probes.run_of(DATASET, 0))
    assert changed(case.one[0].network, state.network)


@pytest.mark.parametrize(("name", "field"), fields())
def test_bad_settings_are_refused_by_name(name, field):
    config = ALGORITHMS[name].config
    for value in bad_values(config(), field):
        with pytest.raises(UserError, match=f"'{field}'") as raised:
            config(**{field: value})
        assert "\n" not in str(raised.value), value


def test_unknown_setting_is_refused(case):
    with pytest.raises(TypeError, match="no_such_setting"):
        case.entry.config(no_such_setting=1)


def test_presets_are_settings_of_the_algorithm(case):
    assert "default" in case.entry.presets
    assert case.entry.presets["default"] == case.entry.config()
    assert all(type(preset) is case.entry.config for preset in case.entry.presets.values())


@pytest.mark.parametrize("name", ALGORITHMS)
def test_settings_come_back_from_a_file(name):
    for config in ALGORITHMS[name].presets.values():
        assert restored(name, json.loads(json.dumps(settings_of(config)))) == config
    with pytest.raises(UserError, match="unknown setting"):
        restored(name, {"no_such_setting": 1})
    for setting in settings_of(ALGORITHMS[name].config()):
        for value in ("0/1", {"a": 1}, None, 10**400, [10**400], [[]]):
            with pytest.raises(UserError, match=f"'{setting}'"):
                restored(name, {setting: value})


def test_memory_is_planned_for_the_largest_batch(case):
    """`Algorithm.batch` follows every setting that is a batch."""
    batches = [field.name for field in dataclasses.fields(case.config) if "batch" in field.name]
    for name in batches:
        config = dataclasses.replace(case.config, **{name: 1000})
        assert case.make(SPEC, config).batch == 1000


def test_limits_are_of_metrics_that_exist(case):
    assert set(case.make(SPEC, case.config).limits) <= {*case.trained.metrics, "chain_size"}


def test_same_key_same_bytes(case):
    assert_same_bits(case.train_many().states, case.trained.states)
    assert_same_bits(case.train_one(case.config, KEYS[0], probes.run_of(DATASET, 0)), case.one)


def test_another_key_another_network(case):
    if not case.entry.seeded:
        return  # the same whatever the key
    state, _ = case.train_one(case.config, KEYS[1], probes.run_of(DATASET, 0))
    assert changed(case.one[0].network, state.network)


def test_order_of_the_runs_does_not_matter(case):
    order = np.array([2, 0, 1])
    rows = [Rows(rows.indices[order], rows.size[order]) for rows in DATASET[1:]]
    permuted = case.train_many(dataset=Dataset(DATASET.pool, *rows), keys=KEYS[order])
    assert_same_bits(permuted.states, jax.tree.map(lambda leaf: leaf[order], case.trained.states))


def test_padding_is_never_read(case):
    """The padding points at a step and a state of NaN, and at an action that does not exist."""
    nan_step, nan_state = len(DATASET.pool.row) - 1, len(DATASET.pool.observations) - 1
    padded = []
    for rows, poison in [(DATASET.labelled, nan_step), (DATASET.unlabelled, nan_state)]:
        outside = np.arange(rows.indices.shape[1]) >= np.asarray(rows.size)[:, None]
        assert outside.any()
        padded.append(Rows(jnp.where(outside, poison, rows.indices), rows.size))
    assert_same_bits(case.train_many(dataset=Dataset(DATASET.pool, *padded)).states, case.trained.states)


@pytest.mark.parametrize("run", range(RUNS))
def test_a_run_sees_its_own_data_only(case, run):
    """Everything outside the run's draw becomes NaN, except the states that follow its steps."""
    pool, data = DATASET.pool, probes.run_of(DATASET, run)
    steps = np.asarray(data.labelled.indices[: int(data.labelled.size)])
    rows = np.asarray(pool.row)[steps]
    own = {
        *rows,
        *(rows + np.asarray(pool.has_next)[steps]),
        *np.asarray(data.unlabelled.indices)[: int(data.unlabelled.size)],
    }
    foreign = np.array([row not in own for row in range(len(pool.observations))])
    assert foreign.sum() > 1
    poisoned = pool._replace(observations=jnp.where(foreign[:, None], np.nan, pool.observations))
    trained = case.train_many(dataset=Dataset(poisoned, *DATASET[1:]))
    assert_same_bits(pick(trained.states, run), pick(case.trained.states, run))


def test_one_diverged_run_is_flagged_and_alone(learner):
    name = rates(learner.config)[0]
    steps = np.full(RUNS, getattr(learner.config, name), np.float32)
    steps[1] = 1e30
    trained = learner.train_many(dataclasses.replace(learner.config, **{name: steps}))
    assert trained.diverged.tolist() == [False, True, False]
    assert trained.diverged_at.tolist() == [-1, UPDATES, -1]
    for run in (0, 2):
        assert_same_bits(pick(trained.states, run), pick(learner.trained.states, run))


def test_nothing_is_compiled_twice(learner, compilations):
    """The same runs again, other sizes of the same capacity, other settings and other keys share one program."""
    _ = learner.trained
    other, keys = datasets(OTHER_DRAWS), jax.random.split(jax.random.key(5), RUNS)
    config = dataclasses.replace(learner.config, **{rates(learner.config)[0]: 0.5})
    assert other.labelled.size.tolist() != DATASET.labelled.size.tolist()
    compilations.clear()
    learner.train_many()
    learner.train_many(config, other, keys)
    assert compilations == []


GOLDEN = Path(__file__).with_name("golden.json")


def test_the_same_command_gives_the_same_numbers(case, request):
    """What training gave when the numbers were last meant to change (`RESULTS` in version.py, and the changelog).

    After RESULTS was raised, and for a new algorithm: SBIL_GOLDEN=write pytest tests/algorithms -k same_command
    """
    name = request.node.callspec.params["case"]
    leaves = jax.tree.leaves(case.trained.states.network)
    found = [[float(np.abs(leaf).mean()), float(np.square(leaf).mean())] for leaf in leaves]
    golden = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    if os.environ.get("SBIL_GOLDEN") == "write":
        numbers = golden["numbers"] if golden.get("results") == RESULTS else {}
        GOLDEN.write_text(json.dumps({"results": RESULTS, "numbers": {**numbers, name: found}}, indent=1) + "\n")
    else:
        how = f"SBIL_GOLDEN=write pytest tests/algorithms/test_contract.py -k 'same_command and {name}'"
        assert golden["results"] == RESULTS, f"RESULTS was raised: write the numbers anew: {how}"
        assert name in golden["numbers"], f"golden.json has no numbers of {name}: write them: {how}"
        np.testing.assert_allclose(found, golden["numbers"][name], rtol=1e-4, err_msg="raise RESULTS in version.py")


@pytest.fixture
def compilations():
    """The names of compilation events since the list was cleared."""
    events = []

    def listen(name, seconds, **_):
        if name.endswith("backend_compile_duration"):
            events.append(name)

    jax.monitoring.register_event_duration_secs_listener(listen)
    jax.jit(lambda x: x + 1)(np.float32(1))
    assert events  # the listener hears
    yield events
    jax.monitoring.unregister_event_duration_listener(listen)


def test_inputs_are_left_as_they_are(learner):
    """Training neither changes its inputs nor lets the program reuse their memory."""
    name = rates(learner.config)[0]
    config = dataclasses.replace(learner.config, **{name: np.full(RUNS, getattr(learner.config, name), np.float32)})
    inputs = (config, DATASET, jax.random.key_data(KEYS))
    before = jax.tree.map(lambda leaf: np.array(leaf, copy=True), inputs)
    learner.train_many(config)
    learner.train_one(learner.config, KEYS[0], probes.run_of(DATASET, 0))
    assert_same_bits(inputs, before)


def test_one_pair_of_data(case):
    """A single decision and no unlabelled state is enough to train."""
    rows = DATASET.labelled._replace(size=jnp.ones(RUNS, jnp.int32))
    none = DATASET.unlabelled._replace(size=jnp.zeros(RUNS, jnp.int32))
    trained = case.train_many(dataset=Dataset(DATASET.pool, rows, none))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((trained.states.network, trained.metrics)))
    assert not trained.diverged.any()


def test_one_feature_and_one_action(case):
    demonstrations = probes.demonstrations(features=1, actions=1)
    algorithm = case.make(spec_of(demonstrations), case.config)
    program = jax.jit(lambda key, data: train_one(algorithm, UPDATES, key, data))
    state, metrics = program(KEYS[0], make_dataset(demonstrations))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((state, metrics)))
    assert algorithm.logits(state, OBSERVATIONS[:, :1]).shape == (6, 1)


# What training is made of; whatever these import is followed too.
TRAINING = ["training", "dataset", "langevin", "networks", "keys", "devices", "demonstrations"]


def test_no_environment_is_within_reach_of_training():
    """Strictly batch: from the modules that train, no chain of imports leads to an environment."""
    root = Path(sbil.__file__).parent
    waiting = [root / f"{name}.py" for name in TRAINING if (root / f"{name}.py").exists()]
    waiting += [*root.glob("algorithms/*.py"), *root.glob("demonstrations/*.py")]
    seen = set()
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        for module in imported(path):
            assert not module.startswith(("sbil.environments", "sbil.evaluation", "gymnasium", "gym")), (
                path.name,
                module,
            )
            if module.startswith("sbil."):
                base = root.joinpath(*module.split(".")[1:])
                waiting += [file for file in (base.with_suffix(".py"), base / "__init__.py") if file.exists()]
    names = {path.stem for path in seen}
    assert {"training", "edm", "bc", "langevin", "trajectory", "errors"} <= names


def imported(path):
    """Every module that a file imports; `from a import b` may import a.b."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
