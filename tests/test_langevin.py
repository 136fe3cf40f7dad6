"""Langevin chains against stationary laws in closed form, and the buffer's book-keeping."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chisquare, norm

from sbil import langevin
from sbil.algorithms.edm import EDMConfig
from sbil.algorithms.edm import sample as continued
from sbil.networks import energy

CURVATURE = np.array([1.0, 2.0], np.float32)


def quadratic(states):
    return (CURVATURE * states**2).sum(-1) / 2


def nothing(states):
    return jnp.zeros(len(states))


chain = jax.jit(langevin.chain, static_argnames=("energy", "length"))


@pytest.mark.parametrize(
    ("step_size", "noise", "length"),
    [(0.01, 0.01, 300), (0.5, 0.3, 30)],
    ids=["the paper's", "large steps"],
)
def test_variance_under_a_quadratic_energy(step_size, noise, length):
    """sigma^2 / (1 - (1 - alpha k)^2) for curvature k: exact for the discrete chain, not only for small steps."""
    start = jnp.zeros((5_000, 2))
    end = np.asarray(chain(jax.random.key(0), quadratic, start, length, step_size, noise))
    expected = noise**2 / (1 - (1 - step_size * CURVATURE) ** 2)
    np.testing.assert_allclose(end.var(0), expected, rtol=0.06)  # three standard errors
    np.testing.assert_allclose(end.mean(0), 0, atol=4 * expected.max() ** 0.5 / 5_000**0.5)


def test_masses_of_two_modes():
    """At temperature 1 (noise^2 = 2 step_size) the modes of exp(-E) hold their masses, wherever chains start."""
    weights, means, width = np.array([0.3, 0.7]), np.array([-1.0, 1.0]), 0.7

    def mixture(states):
        logits = jnp.log(weights).astype(jnp.float32) - (states - means.astype(np.float32)) ** 2 / (2 * width**2)
        return energy(logits)

    step_size = 0.05
    start = jnp.full((2_000, 1), -1.0)
    end = np.asarray(chain(jax.random.key(1), mixture, start, 500, step_size, (2 * step_size) ** 0.5))
    right = weights @ norm.sf(0, means, width)
    assert (end > 0).mean() == pytest.approx(right, abs=0.03)
    assert end.mean() == pytest.approx(weights @ means, abs=0.08)
    cold = np.asarray(chain(jax.random.key(1), mixture, start, 500, step_size, 0.01))
    assert (cold > 0).mean() < 0.01  # without that noise they stay where they were


def test_each_chain_follows_its_own_gradient():
    """The gradient is of the sum over chains: one noiseless step is s - step_size * k s for each."""
    states = np.random.default_rng(0).normal(size=(5, 2)).astype(np.float32)
    end = chain(jax.random.key(0), quadratic, jnp.asarray(states), 1, 0.1, 0.0)
    np.testing.assert_allclose(end, states * (1 - 0.1 * CURVATURE), rtol=1e-6)


def test_uniform_fills_its_box_and_nothing_else():
    low, high = jnp.array([-1.0, 2.0, 5.0]), jnp.array([3.0, 2.5, 5.0])
    drawn = np.asarray(langevin.uniform(jax.random.uniform(jax.random.key(0), (2_000, 3)), low, high))
    assert drawn.shape == (2_000, 3)
    assert ((drawn >= low) & (drawn <= high)).all()
    np.testing.assert_allclose(drawn.min(0), low, atol=0.02)
    np.testing.assert_allclose(drawn.max(0), high, atol=0.02)
    np.testing.assert_allclose(drawn.mean(0), (low + high) / 2, atol=0.1)


@pytest.mark.parametrize(("size", "count"), [(10, 4), (9, 9), (7, 1), (100, 64), (10_000, 64)])
def test_slots_are_different_and_equally_likely(size, count):
    """Each chain has size // count slots of its own; what is left over at the end is not used."""
    draws = jax.random.uniform(jax.random.key(0), (20_000, count))
    chosen = np.asarray(jax.jit(jax.vmap(partial(langevin.slots, size=size)))(draws))
    assert chosen.shape == (20_000, count)
    assert all(len(set(row)) == count for row in chosen[:500])
    used = size // count * count
    visits = np.bincount(chosen.ravel(), minlength=size)
    assert len(visits) == size
    assert (visits[used:] == 0).all()
    if count < used:
        assert chisquare(visits[:used]).pvalue > 1e-3
    else:
        assert (visits[:used] == 20_000).all()


def test_slots_at_the_ends_of_the_unit_interval():
    almost_one = np.nextafter(np.float32(1), np.float32(0))
    for width in (1, 156, 1_000_003):
        chosen = np.asarray(langevin.slots(jnp.array([0.0, almost_one, almost_one]), 3 * width))
        assert chosen.tolist() == [0, 2 * width - 1, 3 * width - 1]


MARK = jnp.full(2, 77.0)  # a box of one point: fresh chains are known by it


@partial(jax.jit, static_argnames=("energy", "count", "length"))
def sample(key, buffer, energy=nothing, count=8, length=0, step_size=0.1, noise=0.1, restart=0.0):
    settings = {"chain_length": length, "step_size": step_size, "noise": noise, "restart": restart}
    return continued(key, energy, buffer, langevin.Box(MARK, MARK), EDMConfig(batch=count, **settings))


BUFFER = np.arange(40, dtype=np.float32).reshape(20, 2)


def test_restart_always_starts_every_chain_afresh():
    samples, buffer = sample(jax.random.key(0), BUFFER, restart=1.0)
    assert (samples == 77).all()
    assert (np.asarray(buffer) == 77).all(1).sum() == 8


def test_no_restart_and_no_steps_leave_the_buffer_as_it_was():
    samples, buffer = sample(jax.random.key(0), BUFFER, restart=0.0)
    np.testing.assert_array_equal(buffer, BUFFER)
    rows = (np.asarray(samples)[:, None] == BUFFER).all(-1)
    assert rows.any(1).all()
    assert rows.any(0).sum() == 8


def test_restart_happens_with_its_probability():
    keys = jax.random.split(jax.random.key(0), 500)
    samples, _ = jax.vmap(lambda key: sample(key, BUFFER, restart=0.25))(keys)
    renewed = (np.asarray(samples) == 77).all(-1)
    assert renewed.mean() == pytest.approx(0.25, abs=0.03)
    assert (renewed == (np.asarray(samples) == 77).any(-1)).all()  # a whole state or none of it


def test_samples_go_back_to_where_they_came_from():
    """After small steps each sample is nearest to the row that it overwrites; all other rows stay."""
    samples, buffer = map(np.asarray, sample(jax.random.key(3), BUFFER, length=4, noise=0.01))
    changed = np.flatnonzero((buffer != BUFFER).any(1))
    assert len(changed) == 8
    np.testing.assert_allclose(buffer[changed], BUFFER[changed], atol=0.2)
    np.testing.assert_array_equal(buffer[changed][np.lexsort(buffer[changed].T)], samples[np.lexsort(samples.T)])


def test_no_gradient_flows_through_samples():
    def total(curvature, through):
        energy = lambda states: curvature * (states**2).sum(-1)  # noqa: E731
        if through:
            return langevin.chain(jax.random.key(0), energy, jnp.asarray(BUFFER), 3, 0.1, 0.1).sum()
        config = EDMConfig(batch=8, chain_length=3, step_size=0.1, noise=0.1, restart=0.1)
        parts = continued(jax.random.key(0), energy, jnp.asarray(BUFFER), langevin.Box(MARK, MARK), config)
        return parts[0].sum() + parts[1].sum()

    gradient = jax.jit(jax.grad(total), static_argnums=1)
    assert gradient(0.5, False) == 0
    assert abs(gradient(0.5, True)) > 1  # there would be one without the stop


def test_strict_dtypes():
    """No array changes its dtype implicitly."""
    with jax.numpy_dtype_promotion("strict"):
        step = partial(sample, energy=quadratic, length=2)
        samples, buffer = jax.eval_shape(step, jax.random.key(0), jnp.asarray(BUFFER))
    assert samples.dtype == buffer.dtype == jnp.float32


adjusted = jax.jit(langevin.adjusted_chain, static_argnames=("energy", "length"))


def test_adjusted_steps_are_exact_where_plain_ones_are_not():
    """Steps so large that the plain chain's variance is twice what it should be; temperature 1."""
    start, step_size = jnp.zeros((5_000, 2)), 1.0
    exact = np.asarray(adjusted(jax.random.key(0), quadratic, start, 60, step_size / 2, step_size**0.5))
    plain = np.asarray(chain(jax.random.key(0), quadratic, start, 60, step_size / 2, step_size**0.5))
    np.testing.assert_allclose(exact.var(0), 1 / CURVATURE, rtol=0.08)
    assert (plain.var(0) > 1.2 / CURVATURE).all()


def test_adjusted_steps_at_another_temperature_and_scale():
    """T = noise^2 / (2 step_size) = 0.25 in both coordinates, whose steps differ."""
    unit = jnp.array([1.0, 3.0])
    end = np.asarray(adjusted(jax.random.key(1), quadratic, jnp.zeros((5_000, 2)), 200, 0.08 * unit**2, 0.2 * unit))
    np.testing.assert_allclose(end.var(0), 0.25 / CURVATURE, rtol=0.1)


@pytest.mark.parametrize("run", [chain, adjusted], ids=["plain", "adjusted"])
def test_chains_stay_within_their_box(run):
    box = langevin.Box(jnp.array([-0.1, 0.0]), jnp.array([0.3, 0.0]))
    end = np.asarray(run(jax.random.key(0), quadratic, jnp.zeros((500, 2)), 50, 0.05, 0.3, box))
    assert (end >= box.low).all()
    assert (end <= box.high).all()
    if run is chain:
        assert end[:, 0].max() == pytest.approx(0.3)
