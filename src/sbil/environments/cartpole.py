"""CartPole-v1: keep a pole upright on a cart for 500 steps (Barto, Sutton and Anderson, 1983).

The dynamics of gymnasium's CartPole-v1, checked against it step by step in the tests.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from sbil.dataset import Spec
from sbil.environments.base import JaxEnvironment

GRAVITY = 9.8
POLE_MASS = 0.1
TOTAL_MASS = 1.0 + POLE_MASS
HALF_LENGTH = 0.5
FORCE = 10.0
SECONDS_PER_STEP = 0.02
POSITION_LIMIT = 2.4
ANGLE_LIMIT = 12 * 2 * jnp.pi / 360

CartPoleState = Float[Array, "4"]  # position, velocity, angle, angular velocity


def reset(key: PRNGKeyArray) -> CartPoleState:
    """A cart at rest near the middle."""
    return jax.random.uniform(key, (4,), minval=-0.05, maxval=0.05)


def step(state: CartPoleState, action: Int[Array, ""]) -> tuple[CartPoleState, Float[Array, ""], Bool[Array, ""]]:
    """One explicit Euler step; the reward is 1 for every step taken."""
    _, velocity, angle, spin = state
    force = jnp.where(action == 1, FORCE, -FORCE).astype(state.dtype)
    sine, cosine = jnp.sin(angle), jnp.cos(angle)
    pole = POLE_MASS * HALF_LENGTH
    push = (force + pole * spin**2 * sine) / TOTAL_MASS
    inertia = HALF_LENGTH * (4.0 / 3.0 - POLE_MASS * cosine**2 / TOTAL_MASS)
    spin_rate = (GRAVITY * sine - cosine * push) / inertia
    acceleration = push - pole * spin_rate * cosine / TOTAL_MASS
    rates = jnp.stack([velocity, acceleration, spin, spin_rate])
    state = state + SECONDS_PER_STEP * rates
    terminal = (jnp.abs(state[0]) > POSITION_LIMIT) | (jnp.abs(state[2]) > ANGLE_LIMIT)
    return state, jnp.ones((), state.dtype), terminal


ENVIRONMENT = JaxEnvironment(
    name="CartPole-v1",
    spec=Spec((4,), 2),
    time_limit=500,
    observation_names=("cart position", "cart velocity", "pole angle", "pole angular velocity"),
    action_names=("left", "right"),
    reset=reset,
    observe=lambda state: state,
    step=step,
)
