"""Acrobot-v1: swing a two-link arm above a line by torque on its elbow (Sutton, 1996).

The dynamics of gymnasium's Acrobot-v1 ("book" equations), checked against it step by step in the tests.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from sbil.dataset import Spec
from sbil.environments.base import JaxEnvironment

GRAVITY = 9.8
LENGTH = 1.0  # of the first link; masses are 1, centres of mass half-way, moments of inertia 1
CENTRE = 0.5
SECONDS_PER_STEP = 0.2
SPEED_LIMITS = (4 * jnp.pi, 9 * jnp.pi)

AcrobotState = Float[Array, "4"]  # angle of each link, angular velocity of each link


def reset(key: PRNGKeyArray) -> AcrobotState:
    """An arm hanging down, nearly at rest."""
    return jax.random.uniform(key, (4,), minval=-0.1, maxval=0.1)


def observe(state: AcrobotState) -> Float[Array, "6"]:
    """Cosine and sine of both angles, and both velocities."""
    first, second, first_speed, second_speed = state
    return jnp.stack([jnp.cos(first), jnp.sin(first), jnp.cos(second), jnp.sin(second), first_speed, second_speed])


def _rates(state: AcrobotState, torque: Float[Array, ""]) -> AcrobotState:
    """Time derivatives of the two angles and the two velocities."""
    first, second, first_speed, second_speed = state
    cosine, sine = jnp.cos(second), jnp.sin(second)
    d1 = CENTRE**2 + LENGTH**2 + CENTRE**2 + 2 * LENGTH * CENTRE * cosine + 2.0
    d2 = CENTRE**2 + LENGTH * CENTRE * cosine + 1.0
    phi2 = CENTRE * GRAVITY * jnp.cos(first + second - jnp.pi / 2)
    phi1 = (
        -LENGTH * CENTRE * second_speed**2 * sine
        - 2 * LENGTH * CENTRE * second_speed * first_speed * sine
        + (CENTRE + LENGTH) * GRAVITY * jnp.cos(first - jnp.pi / 2)
        + phi2
    )
    second_rate = (torque + d2 / d1 * phi1 - LENGTH * CENTRE * first_speed**2 * sine - phi2) / (
        CENTRE**2 + 1.0 - d2**2 / d1
    )
    first_rate = -(d2 * second_rate + phi1) / d1
    return jnp.stack([first_speed, second_speed, first_rate, second_rate])


def _wrapped(angle: Float[Array, ""]) -> Float[Array, ""]:
    """The angle brought into [-pi, pi] by whole turns."""
    turns = jnp.ceil((jnp.abs(angle) - jnp.pi) / (2 * jnp.pi))
    return angle - jnp.sign(angle) * 2 * jnp.pi * jnp.maximum(turns, 0)


def step(state: AcrobotState, action: Int[Array, ""]) -> tuple[AcrobotState, Float[Array, ""], Bool[Array, ""]]:
    """One Runge-Kutta step; the reward is -1 until the tip is above the line."""
    torque = action.astype(state.dtype) - 1
    h = SECONDS_PER_STEP
    k1 = _rates(state, torque)
    k2 = _rates(state + h / 2 * k1, torque)
    k3 = _rates(state + h / 2 * k2, torque)
    k4 = _rates(state + h * k3, torque)
    first, second, first_speed, second_speed = state + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    speeds = zip((first_speed, second_speed), SPEED_LIMITS, strict=True)
    limited = [jnp.clip(speed, -limit, limit) for speed, limit in speeds]
    state = jnp.stack([_wrapped(first), _wrapped(second), *limited])
    terminal = -jnp.cos(state[0]) - jnp.cos(state[1] + state[0]) > 1.0
    return state, jnp.where(terminal, 0.0, -1.0).astype(state.dtype), terminal


ENVIRONMENT = JaxEnvironment(
    name="Acrobot-v1",
    spec=Spec((6,), 3),
    time_limit=500,
    observation_names=("cos angle 1", "sin angle 1", "cos angle 2", "sin angle 2", "velocity 1", "velocity 2"),
    action_names=("torque -1", "no torque", "torque +1"),
    reset=reset,
    observe=observe,
    step=step,
)
