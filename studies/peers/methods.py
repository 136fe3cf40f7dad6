"""What the study of peers trains: cloning, the peers with our budget and with their own, and controls."""

import math
from typing import Any, NamedTuple

from sbil import algorithms
from sbil.experiments.methods import Method
from sbil.selection import Candidate
from studies.cells import Setting
from studies.choosing.run import SETTINGS as CHOOSING

TASK = "TASK"  # in a method, this stands for the name that its settings have for the environment
TASKS = {"CartPole-v1": "cartpole", "Acrobot-v1": "acrobot", "LunarLander-v3": "lunar_lander"}
HOST = "LunarLander"  # its simulator runs on the host, which takes fully connected networks only


class Peer(NamedTuple):
    """A method of the study, and where it is run."""

    group: str
    title: str
    method: str  # as for `sbil reproduce`
    updates: int | None = None  # default: those of the preset
    largest: int = 15  # trajectories: what trains for long is run for small sizes only
    unthinned: bool = False  # it needs decisions in a row; elsewhere it is BC
    on_host: bool = True
    stored: bool = False  # the study of choosing has its runs

    @property
    def name(self) -> str:
        """What tells it from every other method."""
        return self.method if self.updates is None else f"{self.method} for {self.updates:,} updates"

    def runs_in(self, setting: Setting) -> bool:
        """Whether the study runs it in a setting."""
        return (setting.thin == 1 or not self.unthinned) and (self.on_host or not setting.environment.startswith(HOST))

    def candidates(self, setting: Setting, networks: int, updates: int | None) -> list[Candidate]:
        """Return one candidate per initialisation. updates: asked for, for tests."""
        method = Method.parse(self.method.replace(TASK, TASKS[setting.environment]))
        (config,) = method.candidates.values()
        count = updates or self.updates or method.updates(None)
        plain = algorithms.plain(config)
        return [Candidate(method.algorithm, plain, count, self.name, number) for number in range(networks)]


CLONING, PEERS, OWN, CONTROLS = "Cloning and EDM", "Peers, our budget", "Peers, their own settings", "Controls"
LONG: dict[str, Any] = {"largest": 7, "on_host": False}  # ten times the updates
METHODS: tuple[Peer, ...] = (
    Peer(CLONING, "BC", "bc"),
    Peer(CLONING, "BC, weight decay 1", "bc+weight_decay=1"),
    Peer(CLONING, "BC, weight decay 3", "bc+weight_decay=3", stored=True),
    Peer(CLONING, "EDM, released", "edm:released", stored=True),
    Peer(CLONING, "EDM, robust", "edm_robust", stored=True),
    Peer(PEERS, "IQ-Learn, temperature 0.001", "iq_learn"),
    Peer(PEERS, "IQ-Learn, temperature 0.01", "iq_learn+temperature=0.01"),
    Peer(PEERS, "IQ-Learn, temperature 1", "iq_learn:plain"),
    Peer(PEERS, "IQ-Learn, step 0.0001", "iq_learn+learning_rate=0.0001"),
    Peer(PEERS, "AVRIL", "avril", unthinned=True),
    Peer(PEERS, "CKIL, our budget", "ckil+learning_rate=0.001+hidden=64x64", unthinned=True),
    Peer(PEERS, "Corrective labels", "corrective"),
    Peer(OWN, "IQ-Learn, released (100,000 updates)", "iq_learn:released", **LONG),
    Peer(OWN, "AVRIL, released (5,000 updates)", "avril:released", unthinned=True),
    Peer(OWN, "CKIL", "ckil", unthinned=True),
    Peer(OWN, "CKIL, printed bandwidths", f"ckil:printed_{TASK}", unthinned=True),
    Peer(CONTROLS, "IQ-Learn without its penalty, temperature 0.001", "iq_learn+penalty=0"),
    Peer(CONTROLS, "IQ-Learn without its penalty, step 0.0001", "iq_learn+learning_rate=0.0001+penalty=0"),
    Peer(CONTROLS, "IQ-Learn without its penalty, released", "iq_learn:released+penalty=0", **LONG),
    Peer(CONTROLS, "BC, as long as IQ-Learn", "bc+learning_rate=0.0001+batch=32", updates=100_000, **LONG),
    Peer(CONTROLS, "RCAL, Huber (AVRIL's limit)", "rcal+norm=huber+coefficient=1"),
    Peer(CONTROLS, "CKIL, each decision with another's predecessor", "ckil+predecessors=permuted", unthinned=True),
    Peer(CONTROLS, "CKIL without predecessors", "ckil+predecessors=ignored", unthinned=True),
    Peer(CONTROLS, "CKIL without its entropy term", "ckil+entropy=0", unthinned=True),
    Peer(CONTROLS, "BC, step 0.01", "bc+learning_rate=0.01"),
    Peer(CONTROLS, "BC, step 0.0001", "bc+learning_rate=0.0001"),
    Peer(CONTROLS, "BC, CKIL's network and step", "bc+learning_rate=0.01+hidden=64x32"),
    Peer(CONTROLS, "BC, smoothed labels", "bc_regularised:smoothed"),
    Peer(CONTROLS, "BC, Brier loss", "bc_regularised:brier"),
    Peer(CONTROLS, "BC, logits times 100", "bc_regularised:large_logits"),
    Peer(CONTROLS, "BC, entropy bonus", "bc_regularised:entropy"),
    Peer(CONTROLS, "BC, noise on states", "bc_regularised:noise"),
    Peer(CONTROLS, "BC, mixup", "bc_regularised:mixup"),
    Peer(CONTROLS, "BC, dropout", "bc_regularised:dropout"),
    Peer(CONTROLS, "BC, spectral norms at most 2", "bc_regularised:spectral"),
    Peer(CONTROLS, "BC, Jacobian penalty", "bc_regularised:jacobian"),
    Peer(CONTROLS, "BC, averaged weights", "bc_regularised:average"),
    Peer(CONTROLS, "BC, 5 networks", "bc_ensemble"),
    Peer(CONTROLS, "BC, early stop on held-out decisions", "bc_early_stopping"),
)
LONG_BC = next(peer.name for peer in METHODS if peer.method.startswith("bc+") and peer.updates)
BY_NAME = {peer.name: peer for peer in METHODS}


def candidates_of(setting: Setting, networks: int, updates: int | None = None) -> list[Candidate]:
    """Return the candidates of a setting: methods whose runs the study of choosing has there are left out."""
    wanted = [peer for peer in METHODS if peer.runs_in(setting) and not (peer.stored and is_stored(setting))]
    return [one for peer in wanted for one in peer.candidates(setting, networks, updates)]


def is_stored(setting: Setting) -> bool:
    """Whether the study of choosing has runs of a setting."""
    return " ".join(map(str, setting)) in CHOOSING


def largest_of(name: str) -> float:
    """Return the largest draw, in trajectories, that a method is trained on."""
    return BY_NAME[name].largest if name in BY_NAME else math.inf
