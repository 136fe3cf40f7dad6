"""The methods that a policy is compared with: the baselines, and behavioural cloning of the same decisions."""

from collections.abc import Mapping

from sbil.algorithms import ALGORITHMS, as_many
from sbil.demonstrations import Demonstrations
from sbil.evaluation.baselines import decided_by_baselines
from sbil.evaluation.calibration import calibrated
from sbil.evaluation.decided import Decided, decided, must_match
from sbil.fitting import fit
from sbil.policy import Policy
from sbil.portfolio import AUTO, classifiers_beside


def decided_by_methods(
    policy: Policy, held_out: Demonstrations, training: Demonstrations | None, calibration: Demonstrations | None = None
) -> dict[str, Decided]:
    """Return what the baselines, BC and the policy predict for held-out decisions, by name; the policy comes last.

    BC is trained here, on `training`, as the policy was, and for tables the classifiers are, too. They are left out
    without training data, and so is what the policy itself is.
    calibration: decisions to fit their temperatures to, as the policy's was.
    """
    must_match(policy, held_out)
    if training:
        must_match(policy, training)
    found, name = decided_by_baselines(policy, held_out, training), algorithm_of(policy)
    for other in ("bc", *classifiers_beside(training)) if training else ():
        if training and other != name:
            made = trained_beside(policy, other, training)
            found[other] = decided(calibrated(made, calibration) if calibration else made, held_out)
    found[name] = decided(policy, held_out)
    return found


def trained_beside(policy: Policy, algorithm: str, training: Demonstrations) -> Policy:
    """BC or a classifier with the seed, the thinning, the standardisation and, if BC can, the updates of a policy."""
    made = policy.provenance
    same = {name: made[name] for name in ("seed", "thin", "thin_offset") if name in made}
    updates = as_many(trainer_of(policy), str(made.get("preset", "default")), made.get("updates"))
    updates = updates if algorithm == "bc" else None
    return fit(algorithm, training, updates=updates, standardise=policy.standardisation is not None, **same)


def algorithm_of(policy: Policy) -> str:
    """The algorithm of a policy, or auto."""
    return str(policy.provenance.get("algorithm", "policy"))


def trainer_of(policy: Policy) -> str:
    """The algorithm that trained a policy; of auto, the one whose policy was kept."""
    name, settings = algorithm_of(policy), policy.provenance.get("settings")
    return str(settings.get("algorithm")) if name == AUTO and isinstance(settings, Mapping) else name


def trains_energy(policy: Policy) -> bool:
    """Whether the algorithm that trained a policy makes the energy low where training states are dense."""
    trainer = trainer_of(policy)
    return trainer in ALGORITHMS and ALGORITHMS[trainer].trains_energy
