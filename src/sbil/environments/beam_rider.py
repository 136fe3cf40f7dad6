"""BeamRider, the paper's Atari game, on the Arcade Learning Environment."""

from sbil.dataset import Spec
from sbil.environments.base import HostEnvironment
from sbil.environments.host import atari

ENVIRONMENT = HostEnvironment(
    name=atari.BEAM_RIDER,
    spec=Spec((atari.SIZE, atari.SIZE, atari.STACK), 9),
    time_limit=atari.FRAMES // atari.SKIP,
    observation_names=(),
    action_names=("nothing", "fire", "up", "right", "left", "up right", "up left", "fire right", "fire left"),
    play=atari.play,
    check=atari.check,
    stack=atari.STACK,
    demonstrations=50,  # of about 2,000 frames each: 0.7 GB
)
