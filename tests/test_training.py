"""Training: chunks, reports, what counts as diverged, and what is refused. See test_contract for the rest."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import probes
from sbil import keys, training
from sbil.algorithms import Algorithm, BCConfig, bc
from sbil.algorithms.edm import LIMITS
from sbil.dataset import Dataset, make_dataset, spec_of
from sbil.errors import UserError
from sbil.training import Report, has_diverged, per_run, pick, stack, train_many, train_one

DEMONSTRATIONS = probes.demonstrations()
SPEC = spec_of(DEMONSTRATIONS)
CONFIG = BCConfig(hidden=(8,), batch=8)
DRAWS = [np.array([0, 1]), np.array([2]), np.array([3, 4])]
KEYS = jax.random.split(jax.random.key(0), 3)


def run(updates=10, count=3, config=CONFIG, watch=None):
    dataset = make_dataset(DEMONSTRATIONS, DRAWS[:count], capacity=20)
    return train_many(bc, SPEC, config, dataset, KEYS[:count], updates, watch)


@pytest.fixture
def chunks_of_four(monkeypatch):
    monkeypatch.setattr(training, "CHUNK", 4)


@pytest.fixture(scope="module")
def in_chunks():
    """Ten updates in chunks of 4, 4 and 2, and what was reported on the way."""
    reports = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "CHUNK", 4)
        return run(watch=reports.append), reports


def test_neither_chunks_nor_company_change_a_run(in_chunks):
    """A run in chunks with two others on two devices equals the run alone in one chunk."""
    assert jax.local_device_count() == 2
    alone, together = run(count=1), in_chunks[0]
    for one, other in zip(jax.tree.leaves(alone.states), jax.tree.leaves(together.states), strict=True):
        np.testing.assert_allclose(one[0], other[0], rtol=1e-6, atol=1e-7)
    weights = np.array([4, 4, 2]) / 10
    for name, values in together.metrics.items():
        np.testing.assert_allclose(weights @ values[:, 0], alone.metrics[name][0, 0], rtol=1e-5)


def test_reports_tell_how_far_training_is(in_chunks):
    trained, reports = in_chunks
    assert [(report.update, report.updates) for report in reports] == [(4, 10), (8, 10), (10, 10)]
    assert trained.updates.tolist() == [4, 8, 10]
    assert all(isinstance(report, Report) and report.diverged.shape == (3,) for report in reports)
    for chunk, report in enumerate(reports):
        np.testing.assert_array_equal(report.metrics["policy_loss"], trained.metrics["policy_loss"][chunk])
    assert trained.seconds > 0


@pytest.fixture(scope="module")
def recorded_keys():
    """(the key that init was given, the keys of ten updates), as numbers."""
    numbers = jax.random.key_data
    recorder = Algorithm(
        init=lambda key, dataset: numbers(key),
        update=lambda key, state, dataset: (state, {"key": numbers(key)}),
        logits=lambda state, observation: observation,
    )
    program = jax.jit(lambda key, data: train_one(recorder, 10, key, data))
    given, metrics = program(KEYS[0], make_dataset(DEMONSTRATIONS))
    return np.asarray(given), [tuple(row) for row in np.asarray(metrics["key"])]


def test_every_update_has_a_key_of_its_own(recorded_keys):
    given, updates = recorded_keys
    assert len({tuple(given), *updates}) == 11


def test_init_and_updates_share_no_key(recorded_keys):
    """Keys that init derives from its key with fold_in and a small number are not those of updates either."""
    given, updates = recorded_keys
    key = jax.random.wrap_key_data(given)
    made = [tuple(np.asarray(jax.random.key_data(jax.random.fold_in(key, number)))) for number in range(4)]
    assert not set(made) & set(updates)


def test_states_and_metrics_have_the_runs_as_an_axis(in_chunks):
    trained, _ = in_chunks
    assert all(leaf.shape[0] == 3 for leaf in jax.tree.leaves(trained.states))
    assert {name: values.shape for name, values in trained.metrics.items()} == {"policy_loss": (3, 3)}
    assert trained.diverged_at.tolist() == [-1, -1, -1]


def test_a_run_is_diverged_from_the_chunk_it_was_found_in(chunks_of_four):
    """An infinite observation stops the second run in its first chunk; the other runs continue."""
    dataset = make_dataset(DEMONSTRATIONS, DRAWS, capacity=20)
    row = int(dataset.pool.row[dataset.labelled.indices[1, 0]])
    pool = dataset.pool._replace(observations=dataset.pool.observations.at[row].set(jnp.inf))
    reports = []
    trained = train_many(bc, SPEC, CONFIG, Dataset(pool, *dataset[1:]), KEYS, 10, reports.append)
    assert trained.diverged_at.tolist() == [-1, 4, -1]
    assert trained.diverged.tolist() == [False, True, False]
    assert [report.diverged.tolist() for report in reports] == 3 * [[False, True, False]]


@pytest.mark.parametrize(
    ("metrics", "expected"),
    [
        ({"policy_loss": [1.0, np.nan, np.inf, -np.inf]}, [False, True, True, True]),
        ({"policy_loss": [0, 0, 0, 0], "energy": [9e3, 2e4, -2e4, 0]}, [False, True, True, False]),
        ({"energy_gap": [9e3, 2e4, -2e4, 0]}, [False, True, True, False]),
        ({"chain_size": [9e3, 2e4, 0, np.nan]}, [False, True, False, True]),
        ({"policy_loss": [1e6, 0, 0, 0]}, [False, False, False, False]),
    ],
)
def test_what_counts_as_diverged(metrics, expected):
    assert has_diverged({name: np.array(values) for name, values in metrics.items()}, LIMITS).tolist() == expected


@pytest.mark.parametrize("updates", [0, -3])
def test_no_updates_are_refused(updates):
    with pytest.raises(UserError, match="updates"):
        run(updates=updates)


def test_one_key_a_draw():
    dataset = make_dataset(DEMONSTRATIONS, DRAWS)
    with pytest.raises(UserError, match="2 keys for 3 draws"):
        train_many(bc, SPEC, CONFIG, dataset, KEYS[:2], 10)


def test_settings_are_one_or_one_a_run():
    spread = per_run(dataclasses.replace(CONFIG, learning_rate=np.array([1.0, 2.0, 3.0])), 3)
    np.testing.assert_array_equal(spread.learning_rate, [1, 2, 3])
    np.testing.assert_array_equal(spread.weight_decay, [0, 0, 0])
    assert (spread.batch, spread.hidden) == (8, (8,))
    with pytest.raises(UserError, match="3 runs"):
        run(config=dataclasses.replace(CONFIG, learning_rate=np.array([1.0, 2.0])))


def test_select_undoes_stack():
    trees = [{"a": jnp.full(2, i), "b": jnp.float32(i)} for i in range(3)]
    stacked = stack(trees)
    assert jax.tree.map(jnp.shape, stacked) == {"a": (3, 2), "b": (3,)}
    for index, tree in enumerate(trees):
        jax.tree.map(np.testing.assert_array_equal, pick(stacked, index), tree)


def test_named_keys():
    """A name always gives the same key, also on another day; parts are not run together."""
    # From the first 16 digits of: printf 'CartPole-v1\x1f3' | sha256sum
    data = lambda *names: jax.random.key_data(keys.named(*names)).tolist()  # noqa: E731
    assert data("CartPole-v1", 3) == data("CartPole-v1", "3") == [1254877229, 844678016]
    assert len({tuple(data(*names)) for names in [("a", "b"), ("ab",), ("b", "a"), ("a", "b", ""), ("a",), ()]}) == 6
