"""LunarLander-v3 of gymnasium: land on the pad with three engines."""

from functools import partial

from sbil.dataset import Spec
from sbil.environments.base import HostEnvironment
from sbil.environments.host import gym, lockstep

NAME = "LunarLander-v3"
ENVIRONMENT = HostEnvironment(
    name=NAME,
    spec=Spec((8,), 4),
    time_limit=1000,
    observation_names=(
        *("x position", "y position", "x velocity", "y velocity", "angle", "angular velocity"),
        *("left leg contact", "right leg contact"),
    ),
    action_names=("nothing", "left engine", "main engine", "right engine"),
    play=partial(gym.play, NAME),
    check=partial(lockstep.check, NAME),
)
