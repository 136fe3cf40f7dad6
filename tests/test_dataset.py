"""The dataset: what a run may draw from, in which shares, and within which bounds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

import probes
from sbil.dataset import Dataset, Pool, Rows, Spec, capacity_for, make_dataset, make_pool, spec_of
from sbil.demonstrations import Demonstrations, Trajectory
from sbil.errors import UserError
from sbil.networks import scaling

DEMONSTRATIONS = probes.demonstrations()


def numbered(lengths, last=()):
    """Trajectories whose states are 0, 1, 2, ... in the order of the pool, and whose actions are all 0."""
    first, trajectories = 0, []
    for index, length in enumerate(lengths):
        visited = length + (index in last)
        states = np.arange(first, first + visited, dtype=np.float32)[:, None]
        trajectories.append(Trajectory(states, np.zeros(length, np.int32)))
        first += visited
    return Demonstrations(tuple(trajectories), ("only",))


transitions = jax.jit(Pool.transitions)


def test_spec():
    assert spec_of(DEMONSTRATIONS) == Spec((3,), 3)


def test_pool_holds_the_steps_of_flat():
    pool, flat = make_pool(DEMONSTRATIONS), DEMONSTRATIONS.flat()
    steps = transitions(pool, jnp.arange(len(flat.action)))
    assert steps.weight is None
    for name in set(steps._fields) - {"next_action", "has_next_action", "weight"}:  # a draw decides the first two
        np.testing.assert_array_equal(getattr(steps, name), getattr(flat, name), err_msg=name)
    assert pool.observations.dtype == jnp.float32
    assert not flat.has_next.all()
    assert flat.terminal.any()


def test_doubles_become_single_precision():
    double = Demonstrations((Trajectory(np.array([[0.1], [0.2]]), np.array([0, 0])),), ("only",))
    assert make_pool(double).observations.dtype == jnp.float32


def test_rows_of_each_draw():
    draws = [np.array([2, 0]), np.array([1])]
    dataset = make_dataset(
        numbered((3, 2, 4), last=(1,)), draws, capacity=9, unlabelled=[np.array([1]), np.array([0, 2])]
    )
    # Steps are 0 to 2, 3 to 4, 5 to 8; states 0 to 2, 3 to 5, 6 to 9.
    assert dataset.labelled.size.tolist() == [7, 2]
    assert dataset.labelled.indices.shape == (2, 9)
    assert dataset.labelled.indices[0, :7].tolist() == [5, 6, 7, 8, 0, 1, 2]
    assert dataset.labelled.indices[1, :2].tolist() == [3, 4]
    assert dataset.unlabelled.size.tolist() == [3, 7]
    assert dataset.unlabelled.indices[0, :3].tolist() == [3, 4, 5]
    assert dataset.unlabelled.indices[1].tolist() == [0, 1, 2, 6, 7, 8, 9]


def test_all_in_one_run_without_draws():
    dataset = make_dataset(DEMONSTRATIONS)
    assert dataset.labelled.indices.tolist() == list(range(DEMONSTRATIONS.steps))
    assert int(dataset.labelled.size) == DEMONSTRATIONS.steps
    assert dataset.unlabelled.indices.shape == (0,)


def test_thinning_keeps_the_successor_one_step_later():
    long = numbered((50, 45), last=(0,))
    dataset = make_dataset(long, thin=20, thin_offset=3)
    steps = transitions(dataset.pool, dataset.labelled.indices)
    first = steps.observation[:, 0]
    assert steps.time.tolist() == [3, 23, 43, 3, 23, 43]
    np.testing.assert_array_equal(first, [3, 23, 43, 54, 74, 94])
    np.testing.assert_array_equal(steps.next_observation[:, 0], first + 1)
    assert steps.has_next.all()


def test_last_step_without_a_successor():
    dataset = make_dataset(numbered((3, 2)))
    steps = transitions(dataset.pool, jnp.arange(5))
    assert steps.has_next.tolist() == [True, True, False, True, False]
    np.testing.assert_array_equal(steps.next_observation[:, 0], [1, 2, 2, 4, 4])  # never the next trajectory's


def test_capacity_for_fits_every_draw():
    capacity = capacity_for(DEMONSTRATIONS, 2, thin=3, thin_offset=1)
    sizes = []
    for i in range(6):
        for j in range(i):
            dataset = make_dataset(DEMONSTRATIONS, [np.array([i, j])], thin=3, thin_offset=1, capacity=capacity)
            assert dataset.labelled.indices.shape == (1, capacity)
            sizes.append(int(dataset.labelled.size[0]))
    assert max(sizes) == capacity


def test_too_small_a_capacity_is_refused():
    with pytest.raises(UserError, match="capacity is 3"):
        make_dataset(DEMONSTRATIONS, [np.array([0])], capacity=3)


def test_a_draw_without_a_step_is_refused():
    with pytest.raises(UserError, match="thin 50, offset 49"):
        make_dataset(DEMONSTRATIONS, [np.array([0])], thin=50, thin_offset=49)


def test_as_many_unlabelled_lists_as_draws():
    with pytest.raises(UserError):
        make_dataset(DEMONSTRATIONS, [np.array([0]), np.array([1])], unlabelled=[np.array([2])])


def test_rows_are_drawn_uniformly_and_padding_never():
    rows = Rows(jnp.array([10, 11, 12, 13, 99, 99]), jnp.int32(4))
    drawn = np.asarray(jax.jit(lambda rows, key: rows.sample(key, 4_000))(rows, jax.random.key(0)))
    values, counts = np.unique(drawn, return_counts=True)
    assert values.tolist() == [10, 11, 12, 13]
    assert chisquare(counts).pvalue > 1e-3
    assert rows.mask.tolist() == [True] * 4 + [False] * 2


def quadruples_of(dataset, count=2_000):
    """(State, decision, whether the next decision is known, next state, next decision), each once, as drawn."""
    batch = jax.jit(lambda dataset, key: dataset.batch(key, count))(dataset, jax.random.key(0))
    after = jnp.where(batch.has_next_action, batch.next_action, -1)
    told = (batch.observation[:, 0], batch.action, batch.has_next_action, batch.next_observation[:, 0], after)
    return sorted(set(zip(*(leaf.tolist() for leaf in told), strict=True)))


def counted(lengths, last=(), terminal=()):
    """As `numbered`; the decision at state s is s modulo 4."""
    made = numbered(lengths, last)
    trajectories = (
        Trajectory(t.observations, t.observations[: len(t), 0].astype(int) % 4, terminal=index in terminal)
        for index, t in enumerate(made.trajectories)
    )
    return Demonstrations(tuple(trajectories), tuple("abcd"))


def test_the_next_decision_is_known_where_the_next_step_is_labelled_too():
    """Steps 0 to 2 and 3 to 4, states 0 to 2 and 3 to 5: no next decision at the last step of a trajectory."""
    dataset = make_dataset(counted((3, 2, 2), last=(1,), terminal=(0,)), [np.array([1, 0])], capacity=9)
    expected = [(0, 0, True, 1, 1), (1, 1, True, 2, 2), (2, 2, False, 2, -1), (3, 3, True, 4, 0), (4, 0, False, 5, -1)]
    assert quadruples_of(probes.run_of(dataset, 0)) == expected


def test_no_next_decision_across_trajectories():
    """Trajectory 1 begins at the row after trajectory 0, in the pool and in the draw."""
    dataset = probes.run_of(make_dataset(counted((1, 1, 1)), [np.array([0, 1, 2])]), 0)
    assert not any(known for _, _, known, _, _ in quadruples_of(dataset))
    assert int(dataset.quadruples.size) == 0


def test_no_next_decision_after_thinning():
    dataset = make_dataset(counted((9, 7)), [np.array([0, 1])] * 2, thin=[2, 1], capacity=20)
    thinned, whole = (probes.run_of(dataset, run) for run in range(2))
    assert not any(known for _, _, known, _, _ in quadruples_of(thinned))
    assert int(thinned.quadruples.size) == 0
    assert int(whole.quadruples.size) == 14


@pytest.mark.parametrize("size", [1, 2, 5])
def test_no_next_decision_beyond_the_size(size):
    """The rows after the size are padding, although they name steps of the same trajectory; so does a full draw."""
    dataset = probes.run_of(make_dataset(counted((5,)), [np.array([0])]), 0)
    dataset = dataset._replace(labelled=dataset.labelled._replace(size=jnp.int32(size)))
    found = quadruples_of(dataset)
    assert [known for _, _, known, _, _ in found] == [True] * (size - 1) + [False]
    quadruples = jax.jit(lambda dataset: dataset.quadruples)(dataset)
    assert quadruples.indices[: quadruples.size].tolist() == list(range(size - 1))


def test_no_next_decision_that_is_held_out():
    dataset = probes.run_of(make_dataset(counted((6,)), [np.array([0])]), 0)
    rows = dataset.labelled.where(jnp.array([True, True, False, True, False, True]))
    found = quadruples_of(dataset._replace(labelled=rows))
    assert [known for _, _, known, _, _ in found] == [True, False, False, False]


def test_quadruples_as_transitions():
    dataset = probes.run_of(make_dataset(counted((3, 2), last=(1,)), [np.array([1, 0])], capacity=9), 0)
    rows = dataset.quadruples
    steps = dataset.pool.transitions(rows.indices[: int(rows.size)], followed=True)
    assert steps.has_next_action.all()
    assert (steps.action.tolist(), steps.next_action.tolist()) == ([3, 0, 1], [0, 1, 2])
    np.testing.assert_array_equal(steps.next_observation[:, 0], steps.observation[:, 0] + 1)


def test_what_nobody_reads_is_not_computed():
    """A program that reads states and decisions of a batch alone looks up nothing else."""
    dataset = probes.run_of(make_dataset(counted((6,)), [np.array([0])]), 0)

    def lookups(use):
        text = jax.jit(use).lower(dataset, jax.random.key(0)).compile().as_text()
        return text.count("gather(") + text.count("dynamic-slice(")

    def pairs(dataset, key):
        steps = dataset.labelled.sample(key, 4)
        return dataset.pool.before(steps), dataset.pool.action[steps]

    assert lookups(lambda dataset, key: dataset.batch(key, 4)[:2]) == lookups(pairs) > 0
    assert lookups(lambda dataset, key: dataset.batch(key, 4)) > lookups(pairs)


def states_of(dataset, count=6_000):
    """The batch and the states that go with it, as numbers of states."""

    @jax.jit
    def draw(dataset, key):
        batch = dataset.batch(key, count)
        return batch, dataset.states(jax.random.fold_in(key, 1), batch)

    batch, states = draw(dataset, jax.random.key(0))
    return batch, np.asarray(states)


def test_states_are_uniform_over_labelled_and_unlabelled():
    demonstrations = numbered((3, 2, 4), last=(1,))
    whole = make_dataset(demonstrations, [np.array([0])], unlabelled=[np.array([1, 2])], capacity=9)
    batch, states = states_of(probes.run_of(whole, 0))
    values, counts = np.unique(states, return_counts=True)
    assert values.tolist() == list(range(10))
    assert chisquare(counts).pvalue > 1e-3
    assert set(np.unique(batch.observation)) == {0, 1, 2}  # decisions are of labelled states only


def test_states_are_those_of_the_batch_without_unlabelled_ones():
    """There is no unlabelled trajectory at all, or none in this run but some in another."""
    demonstrations = numbered((3, 2, 4))
    draws = [np.array([0]), np.array([0])]
    for unlabelled in (None, [np.array([], int), np.array([1])]):
        dataset = probes.run_of(make_dataset(demonstrations, draws, unlabelled=unlabelled), 0)
        batch, states = states_of(dataset, 100)
        np.testing.assert_array_equal(states, batch.observation)


def test_bounds_hold_labelled_and_unlabelled_states_and_no_others():
    draws, unlabelled = [np.array([0]), np.array([2, 3])], [np.array([4]), np.array([], int)]
    dataset = make_dataset(DEMONSTRATIONS, draws, unlabelled=unlabelled, capacity=30)
    bounds = jax.jit(lambda dataset: dataset.bounds())
    for run in range(2):
        parts = [DEMONSTRATIONS.trajectories[i].observations[: len(DEMONSTRATIONS.trajectories[i])] for i in draws[run]]
        parts += [DEMONSTRATIONS.trajectories[i].observations for i in unlabelled[run]]
        states = np.concatenate(parts)
        low, high = bounds(probes.run_of(dataset, run))
        np.testing.assert_array_equal(low, states.min(0))
        np.testing.assert_array_equal(high, states.max(0))


def test_bounds_of_many_rows_are_found_block_by_block(monkeypatch):
    monkeypatch.setattr("sbil.dataset.BLOCK", 3)
    dataset = make_dataset(numbered((4, 3, 4)), [np.array([1, 2])], capacity=8, unlabelled=[np.array([], int)])
    low, high = probes.run_of(dataset, 0).bounds()
    assert (low.tolist(), high.tolist()) == ([4], [10])


def test_bounds_need_little_memory_beside_a_large_table(monkeypatch):
    monkeypatch.setattr("sbil.dataset.BLOCK", 4096)
    states = np.zeros((300_000, 20), np.float32)
    many = Demonstrations((Trajectory(states, np.zeros(len(states), np.int32)),), ("only",))
    dataset = make_dataset(many, [np.array([0])])

    def bounds(labelled, unlabelled, pool):
        return Dataset(pool, labelled, unlabelled).bounds()

    program = jax.jit(jax.vmap(bounds, in_axes=(0, 0, None)))
    compiled = program.lower(dataset.labelled, dataset.unlabelled, dataset.pool).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < states.nbytes / 2


def test_a_large_pool_is_not_copied_once_more():
    """Holding the pool twice, even for a moment, would set the peak of memory for a large table."""
    seen = []

    def put(array, **options):
        seen.append((array, device_put(array, **options)))
        return seen[-1][1]

    device_put = jax.device_put
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jax, "device_put", put)
        pool = make_pool(numbered((300, 200)))
    ((array, placed),) = seen
    assert placed is pool.observations
    if jax.default_backend() == "cpu":
        assert array.ctypes.data == placed.unsafe_buffer_pointer()


def test_strict_dtypes():
    """No array changes its dtype implicitly."""
    dataset = probes.run_of(make_dataset(DEMONSTRATIONS, [np.array([0])], unlabelled=[np.array([1])]), 0)

    def use(dataset, key):
        return dataset.states(key, dataset.batch(key, 4)), dataset.bounds()

    with jax.numpy_dtype_promotion("strict"):
        used = jax.eval_shape(use, dataset, jax.random.key(0))
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(used))


# Subsets of rows, and moments

CAPACITY = 12
where = jax.jit(Rows.where)
rows_and_choice = st.integers(0, CAPACITY).flatmap(
    lambda size: st.tuples(
        st.lists(st.integers(0, 99), min_size=size, max_size=size),
        st.lists(st.booleans(), min_size=CAPACITY, max_size=CAPACITY),
    )
)


def padded(rows, fill=77):
    indices = np.full(CAPACITY, fill, np.int32)
    indices[: len(rows)] = rows
    return Rows(jnp.asarray(indices), jnp.int32(len(rows)))


@given(rows_and_choice)
def test_where_keeps_the_chosen_rows_in_their_order(example):
    rows, keep = example
    kept = where(padded(rows), jnp.asarray(keep))
    expected = [row for row, chosen in zip(rows, keep, strict=False) if chosen]
    assert int(kept.size) == len(expected)
    assert kept.indices.tolist() == expected + [0] * (CAPACITY - len(expected))
    assert kept.indices.dtype == kept.size.dtype == jnp.int32


@given(st.lists(rows_and_choice, min_size=3, max_size=3))
def test_where_of_stacked_runs(examples):
    runs = [(padded(rows), jnp.asarray(keep)) for rows, keep in examples]
    stacked = jax.vmap(where)(*jax.tree.map(lambda *leaves: jnp.stack(leaves), *runs))
    for number, (rows, keep) in enumerate(runs):
        for one, many in zip(where(rows, keep), stacked, strict=True):
            np.testing.assert_array_equal(one, many[number])


def poisoned(draw, capacity):
    """A run whose padding is a step and a state of NaN that belong to no trajectory."""
    dataset = probes.run_of(make_dataset(DEMONSTRATIONS, [np.array(draw)], capacity=capacity), 0)
    pool, rows = dataset.pool, dataset.labelled
    bad = jax.tree.map(lambda leaf: jnp.concatenate([leaf, leaf[-1:]]), pool)
    bad = bad._replace(
        observations=bad.observations.at[-1].set(jnp.nan), row=bad.row.at[-1].set(len(pool.observations))
    )
    indices = jnp.where(rows.mask, rows.indices, len(pool.row))
    return Dataset(bad, Rows(indices, rows.size), dataset.unlabelled)


@pytest.mark.parametrize("draw", [[0], [1], [2, 0], [3, 1, 4]])
def test_triples_are_the_steps_of_which_the_next_is_known(draw):
    """All steps except the last of a trajectory with neither a last state nor an end; 4 ends without a last state."""
    dataset = poisoned(draw, 30)
    first = np.cumsum(DEMONSTRATIONS.lengths) - DEMONSTRATIONS.lengths
    expected = []
    for number in draw:
        trajectory = DEMONSTRATIONS.trajectories[number]
        known = len(trajectory) - (not (trajectory.has_last_observation or trajectory.terminal))
        expected += range(first[number], first[number] + known)
    triples = jax.jit(lambda dataset: dataset.triples)(dataset)
    assert triples.indices[: triples.size].tolist() == expected
    assert not triples.indices[triples.size :].any()


@pytest.mark.parametrize("draw", [[0], [1, 5], [4, 2, 3]])
def test_moments_are_of_the_labelled_states(draw):
    """Last states, where nothing was decided, and padding do not count."""
    trajectories = [DEMONSTRATIONS.trajectories[i] for i in draw]
    states = np.concatenate([t.observations[: len(t)] for t in trajectories])
    dataset = poisoned(draw, 30)
    mean, deviation = jax.jit(Dataset.moments)(dataset)
    np.testing.assert_allclose(mean, states.mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(deviation, states.std(axis=0), atol=1e-6)
    standard = scaling(dataset)(jnp.asarray(states))
    np.testing.assert_allclose(standard.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(standard.std(axis=0), 1, atol=0.01)
