"""Images: frames stored once and stacked on use, the convolutions, every algorithm on them, policies that see them."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import probes
from sbil import devices
from sbil.algorithms import ALGORITHMS
from sbil.dataset import Pool, Spec, as_inputs, features_of, make_dataset, make_pool, spec_of
from sbil.demonstrations import Demonstrations, Trajectory
from sbil.demonstrations.fingerprint import fingerprint
from sbil.demonstrations.formats import npz
from sbil.errors import UserError
from sbil.evaluation.decided import decided
from sbil.evaluation.matching import Agreement
from sbil.experiments.run import evenly_split
from sbil.networks import (
    KERNELS,
    MLP,
    ConvNet,
    Kernel,
    Scaling,
    make_network,
    orthogonal_dense,
    patches,
    policy_network,
)
from sbil.policy import DESCRIPTION, Policy
from sbil.selection import Candidate, select
from sbil.training import pick, room_for, stack, train_many

SIZE, STACK, ACTIONS = 36, 2, 3


def recorded(lengths=(5, 3, 4, 6), size=SIZE, frames=STACK):
    """Random films: with and without a last frame, that end and that are cut."""
    rng = np.random.default_rng(0)
    films = []
    for number, length in enumerate(lengths):
        seen = rng.integers(0, 256, (length + number % 2, size, size), dtype=np.uint8)
        taken = rng.integers(0, ACTIONS, length).astype(np.int32)
        films.append(Trajectory(seen, taken, terminal=number % 2 == 1))
    return Demonstrations(tuple(films), ("a", "b", "c"), stack=frames)


FILMS = recorded()
SPEC = spec_of(FILMS)
DRAWS = [np.array([0, 1]), np.array([2, 3])]


# Frames


def test_an_observation_is_the_latest_frames_and_black_before_the_first():
    """By hand: three frames of one pixel, stacked by three."""
    film = Trajectory(np.array([10, 20, 30], np.uint8).reshape(3, 1, 1), np.array([0, 0, 0], np.int32))
    flat = Demonstrations((film, film), ("a",), stack=3).flat()
    assert flat.observation[:, 0, 0].tolist() == [[0, 0, 10], [0, 10, 20], [10, 20, 30]] * 2
    assert flat.next_observation[:2, 0, 0].tolist() == [[0, 10, 20], [10, 20, 30]]
    assert flat.has_next.tolist() == [True, True, False] * 2


@settings(max_examples=20, deadline=None)
@given(frames=st.integers(1, 5), thin=st.integers(1, 3), lengths=st.lists(st.integers(1, 6), min_size=1, max_size=4))
def test_the_pool_shows_what_the_demonstrations_hold(frames, thin, lengths):
    films = recorded(tuple(lengths), size=4, frames=frames)
    pool, flat = make_pool(films), films.flat(thin)
    assert pool.images
    assert pool.observations.dtype == np.uint8
    assert pool.inputs == 4 * 4 * frames
    first = np.cumsum(films.lengths) - films.lengths
    steps = jnp.asarray(first[flat.trajectory] + flat.time)
    shown, inputs = jax.jit(Pool.transitions)(pool, steps), jax.jit(as_inputs)
    np.testing.assert_array_equal(shown.observation, inputs(jnp.asarray(flat.observation)))
    after = np.asarray(inputs(jnp.asarray(flat.next_observation)))
    np.testing.assert_array_equal(np.asarray(shown.next_observation)[flat.has_next], after[flat.has_next])


def test_frames_are_stored_once():
    """The pool has one row per frame and a black one, not one per stacked observation."""
    pool = make_pool(recorded(frames=4))
    assert pool.observations.nbytes == (sum(len(t.observations) for t in FILMS.trajectories) + 1) * SIZE * SIZE


def test_pixels_become_numbers_in_the_unit_range():
    np.testing.assert_allclose(as_inputs(jnp.array([[[0, 255]]], jnp.uint8)), [-1.0, 1.0])


def test_files_keep_the_stack(tmp_path):
    npz.save(FILMS, tmp_path / "films.npz")
    again = npz.load(tmp_path / "films.npz")
    assert (again.stack, again.observation_shape) == (STACK, (SIZE, SIZE, STACK))
    for one, other in zip(again.trajectories, FILMS.trajectories, strict=True):
        np.testing.assert_array_equal(one.observations, other.observations)


@pytest.mark.parametrize(("frames", "kind"), [(-1, np.uint8), (2, np.float32)])
def test_a_stack_is_for_frames_of_bytes(frames, kind):
    film = Trajectory(np.zeros((2, 4, 4), kind), np.array([0, 0], np.int32))
    with pytest.raises(UserError, match="stack is for uint8 frames"):
        Demonstrations((film,), ("a",), stack=frames)


def test_other_shapes_are_refused():
    with pytest.raises(UserError, match="rows of numbers, or images"):
        features_of(Spec((4, 4), 2))
    taken = np.zeros(2, np.int32)
    frames = Trajectory(np.zeros((2, 40, 40), np.uint8), taken)
    with pytest.raises(UserError, match="stack=1"):
        spec_of(Demonstrations((frames,), ("a",)))
    assert spec_of(Demonstrations((frames,), ("a",), stack=1)).observation_shape == (40, 40, 1)
    with pytest.raises(UserError, match="uint8"):
        spec_of(Demonstrations((Trajectory(np.zeros((2, 40, 40, 3), np.float32), taken),), ("a",)))
    floats = Trajectory(np.zeros((2, 40, 40), np.float32), taken)
    with pytest.raises(UserError, match="one type"):
        Demonstrations((frames, floats), ("a",), stack=2)


def test_the_stack_is_part_of_the_data():
    assert fingerprint(recorded(frames=2)) != fingerprint(recorded(frames=4))


# Convolutions


@settings(max_examples=25, deadline=None)
@given(
    stride=st.integers(1, 4),
    squares=st.integers(1, 3),
    size=st.tuples(st.integers(12, 23), st.integers(12, 23)),
    channels=st.integers(1, 3),
)
def test_a_convolution_is_a_product_with_patches(stride, squares, size, channels):
    kernel = Kernel(5, stride * squares, stride)
    rng = np.random.default_rng(0)
    image = jnp.asarray(rng.normal(size=(2, *size, channels)), jnp.float32)
    weight = rng.normal(size=(kernel.width, kernel.width, channels, kernel.outputs)).astype(np.float32)
    expected = jax.lax.conv_general_dilated(
        image, jnp.asarray(weight), (stride, stride), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    # A patch is squares of stride x stride pixels, row by row: the same order for the weights.
    cut = weight.reshape(squares, stride, squares, stride, channels, -1).transpose(0, 2, 1, 3, 4, 5)
    found = jax.jit(lambda image: patches(image, kernel))(image) @ cut.reshape(-1, kernel.outputs)
    np.testing.assert_allclose(found, expected, atol=2e-4)


def test_the_network_of_the_paper():
    """84 x 84 x 4 -> 20 x 20 x 32 -> 9 x 9 x 64 -> 7 x 7 x 64 -> 64 -> actions, ReLU."""
    network = policy_network(jax.random.key(0), Spec((84, 84, 4), 9))
    assert isinstance(network, ConvNet)
    shapes = [leaf.shape for leaf in jax.tree.leaves(network) if leaf.ndim == 2]
    assert shapes == [(8 * 8 * 4, 32), (4 * 4 * 32, 64), (3 * 3 * 64, 64), (7 * 7 * 64, 64), (64, 9)]
    assert (network.head.activation, network.depth) == ("relu", 3)
    assert network(jnp.zeros((5, 84 * 84 * 4))).shape == (5, 9)


def test_numbers_after_the_image_join_behind_the_convolutions():
    """A network of image and two numbers: these reach the first dense layer and nothing before it."""
    network = make_network(jax.random.key(0), SPEC, (8, 6), 2, "tanh", more=2, layer=orthogonal_dense)
    pixels = features_of(SPEC)
    x = jax.random.normal(jax.random.key(1), (4, pixels + 2))
    looked = network.look(x)
    np.testing.assert_array_equal(looked[:, -2:], x[:, -2:])
    np.testing.assert_array_equal(network.look(x.at[:, -2:].set(0))[:, :-2], looked[:, :-2])
    alone = Scaling(jnp.zeros(pixels), jnp.ones(pixels)).folded_into(network)
    np.testing.assert_allclose(alone(x[:, :pixels]), network(x.at[:, -2:].set(0)), atol=1e-6)
    np.testing.assert_array_equal(network.features(x, 2), network.head.features(looked, 1))


def test_small_images_are_refused():
    with pytest.raises(UserError, match="too small for the convolutions"):
        policy_network(jax.random.key(0), Spec((20, 20, 4), 2))


# Every algorithm

LARGEST = {"trunk": (8, 4), "head": (6,), "hidden": (8, 8), "rounds": 2}


REFUSES = ("ckil", "corrective")  # images; their own tests show it
SEES_IMAGES = [
    name
    for name, entry in ALGORITHMS.items()
    if entry.needs not in ("one-hot pairs", "numeric pairs") and name not in REFUSES
]


@pytest.fixture(scope="module", params=probes.by_speed(SEES_IMAGES))
def trained(request):
    entry = ALGORITHMS[request.param]
    config = probes.small(entry.config)
    changes = {name: value for name, value in LARGEST.items() if hasattr(config, name)}
    config = dataclasses.replace(config, **changes)
    dataset = make_dataset(FILMS, DRAWS)
    keys = jax.random.split(jax.random.key(0), 2)
    return request.param, config, train_many(entry.make, SPEC, config, dataset, keys, 2, chunk=1)


def test_every_algorithm_learns_from_images(trained):
    name, _, result = trained
    assert all(np.isfinite(values).all() for values in result.metrics.values())
    assert not result.diverged.any()
    network = pick(result.states, 0).network
    assert isinstance(network, ConvNet)
    policy = Policy(network, (), FILMS.action_names, provenance={"algorithm": name})
    assert policy.spec == SPEC
    assert 0 <= Agreement.of(decided(policy, FILMS)).accuracy <= 1


def test_runs_of_images_differ_by_their_draws(trained):
    name, _, result = trained
    one, other = (
        jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(pick(result.states, i).network)]) for i in (0, 1)
    )
    assert name == "majority" or np.abs(one - other).max() > 1e-3


def test_chains_of_images_are_kept_in_half_precision():
    entry = ALGORITHMS["edm"]
    config = probes.small(entry.config)
    dataset = make_dataset(FILMS, DRAWS)
    algorithm = entry.make(SPEC, config)
    state = jax.jit(algorithm.init)(jax.random.key(0), probes.run_of(dataset, 0))
    assert state.buffer.dtype == jnp.float16
    assert float(jnp.abs(state.buffer).max()) <= 1
    assert state.box.low.min() == state.box.low.max() == -1
    after, _ = jax.jit(algorithm.update)(jax.random.key(1), state, probes.run_of(dataset, 0))
    assert after.buffer.dtype == jnp.float16
    assert (after.buffer != state.buffer).any(axis=1).sum() == config.batch


def test_settings_are_chosen_on_images():
    config = probes.small(ALGORITHMS["bc"].config)
    candidates = [Candidate("bc", one, 3) for one in (config, dataclasses.replace(config, learning_rate=0.1))]
    dataset = make_dataset(FILMS, [np.array([0, 1, 2])])
    found = select(SPEC, candidates, dataset, jax.random.split(jax.random.key(0), 1))
    assert np.isfinite(found.losses).all()
    assert found.losses[0, 0] != found.losses[0, 1]


# Memory


def test_room_is_what_memory_holds(monkeypatch):
    """Ten times the memory holds about ten times the runs; with too little memory, one run is still trained."""
    entry, dataset = ALGORITHMS["edm"], make_dataset(FILMS, DRAWS)
    config = entry.presets["default"]
    monkeypatch.setattr(devices, "memory", lambda: 10**10)
    few = room_for(entry.make, SPEC, config, dataset)
    # 10,000 chains of 36 x 36 x 2 numbers of 2 bytes, three times, and the work on a batch.
    assert 10**10 / (1.3 * (3 * 10_000 * features_of(SPEC) * 2 + 200 * 64 * features_of(SPEC))) < few
    monkeypatch.setattr(devices, "memory", lambda: 10**11)
    assert 9.9 * few < room_for(entry.make, SPEC, config, dataset) < 10.2 * few
    monkeypatch.setattr(devices, "memory", lambda: 10)
    assert room_for(entry.make, SPEC, config, dataset) == 1


def test_rows_of_numbers_always_fit():
    rows = make_dataset(probes.demonstrations(), [np.array([0])])
    entry = ALGORITHMS["bc"]
    assert room_for(entry.make, spec_of(probes.demonstrations()), entry.presets["default"], rows) > 10**9


def test_groups_of_nearly_one_size():
    assert [len(group) for group in evenly_split(np.arange(50), 20)] == [17, 17, 16]
    assert [len(group) for group in evenly_split(np.arange(5), 10**12)] == [5]


# Policies


@pytest.fixture
def policy():
    network = policy_network(jax.random.key(3), SPEC)
    return Policy(network, (), ("a", "b", "c"), provenance={"algorithm": "bc"})


def test_a_policy_of_images_comes_back_bit_for_bit(policy, tmp_path):
    policy.save(tmp_path / "policy")
    again = Policy.load(tmp_path / "policy")
    images = np.random.default_rng(0).integers(0, 256, (7, SIZE, SIZE, STACK), dtype=np.uint8)
    np.testing.assert_array_equal(again.logits(images), policy.logits(images))
    np.testing.assert_array_equal(again.logits(images[2]), policy.logits(images)[2])
    expected = policy.network(as_inputs(jnp.asarray(images)))
    np.testing.assert_allclose(policy.logits(images), expected, atol=1e-5)
    assert again.act(images).shape == (7,)
    np.testing.assert_allclose(again.probabilities(images).sum(axis=1), 1, atol=1e-6)


@pytest.mark.parametrize(
    "images",
    [np.zeros((SIZE, SIZE, STACK)), np.zeros((SIZE, SIZE), np.uint8), np.zeros((2, SIZE, STACK, SIZE), np.uint8)],
)
def test_other_images_are_refused(policy, images):
    with pytest.raises(UserError, match="images of bytes"):
        policy.act(images)


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "mlp"},
        {"kind": "vision"},
        {"image": [SIZE, SIZE]},
        {"image": [10, 10, 2]},
        {"image": [SIZE, SIZE, 10**9]},
        {"convolutions": []},
        {"convolutions": [[32, 8, 3], [64, 4, 2], [64, 3, 1]]},
        {"convolutions": [[32, 8, 4], [64, 4, 2], [64, 3, -1]]},
        {"convolutions": "many"},
        {"sizes": [65, 64, 3]},
        {"sizes": [64, 64, 4]},
        {"more": 1},
    ],
)
def test_a_damaged_description_is_refused(policy, tmp_path, change):
    policy.save(tmp_path / "policy")
    file = tmp_path / "policy" / DESCRIPTION
    description = json.loads(file.read_text())
    description["network"] |= change
    file.write_text(json.dumps(description))
    probes.refused(Policy.load, tmp_path / "policy")


def test_the_kernels_are_multiples_of_their_strides():
    assert all(kernel.width % kernel.stride == 0 for kernel in KERNELS)
    assert isinstance(policy_network(jax.random.key(0), Spec((4,), 2)), MLP)
    assert stack([pick(stack([jnp.ones(2)]), 0)]).shape == (1, 2)


def test_the_temperature_of_a_policy_of_images_is_in_its_plain_network():
    """Live play draws actions with the probabilities of the policy."""
    network = policy_network(jax.random.key(1), SPEC, (8,))
    policy = Policy(network, (), ("a", "b", "c"), temperature=2.5)
    frames = make_dataset(FILMS).pool.look(jnp.arange(4))
    np.testing.assert_allclose(policy.plain_network(frames), network(frames) / 2.5, rtol=1e-5)
    np.testing.assert_array_equal(Policy(network, (), ("a", "b", "c")).plain_network(frames), network(frames))
