"""ICU-Sepsis: clinicians' episodes in a process that is known, in which policies are played."""

from sbil.clinical import icu_sepsis
from sbil.clinical.datasets import ON_STATES, Asked, Known, Opened
from sbil.experiments import TableTask
from sbil.experiments.methods import BASELINES
from sbil.experiments.table import LEARNERS

NAME = "ICU-Sepsis"
TRAJECTORIES, EPISODES = 1000, 1000


def _open(asked: Asked) -> Opened:
    process = icu_sepsis.process(asked.episodes or EPISODES)
    found = icu_sepsis.record(asked.trajectories or TRAJECTORIES)
    drawn = f"{len(found):,} episodes ({found.steps:,} decisions) drawn from the clinicians' policy."
    return TableTask.of(NAME, found, standardise=False, process=process, notes=(drawn,)), ""


REFERENCES = (icu_sepsis.CLINICIANS, icu_sepsis.UNIFORM)
DATASETS = (
    Known(
        NAME,
        _open,
        methods=(*REFERENCES, *BASELINES, LEARNERS[0], *ON_STATES, *LEARNERS[1:]),
        references=REFERENCES,
        states=True,
    ),
)
