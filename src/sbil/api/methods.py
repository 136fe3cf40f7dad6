"""The methods that a policy is compared with: the baselines, and behavioural cloning of the same decisions."""

from collections.abc import Mapping

from sbil.algorithms import as_many
from sbil.demonstrations import Demonstrations
from sbil.evaluation.baselines import decided_by_baselines
from sbil.evaluation.calibration import calibrated
from sbil.evaluation.decided import Decided, decided, must_match
from sbil.fitting import fit
from sbil.policy import Policy
from sbil.portfolio import AUTO


def decided_by_methods(
    policy: Policy, held_out: Demonstrations, training: Demonstrations | None, calibration: Demonstrations | None = None
) -> dict[str, Decided]:
    """Return what the baselines, BC and the policy predict for held-out decisions, by name; the policy comes last.

    BC is trained here, on `training`, as the policy was. It is left out without training data, and if the policy is BC.
    calibration: decisions to fit BC's temperature to, as the policy's was.
    """
    must_match(policy, held_out)
    if training:
        must_match(policy, training)
    found, name = decided_by_baselines(policy, held_out, training), algorithm_of(policy)
    if training and name != "bc":
        cloned = behavioural_clone(policy, training)
        found["bc"] = decided(calibrated(cloned, calibration) if calibration else cloned, held_out)
    found[name] = decided(policy, held_out)
    return found


def behavioural_clone(policy: Policy, training: Demonstrations) -> Policy:
    """BC with the seed, the thinning, the standardisation and, if they are comparable, the updates of a policy."""
    made = policy.provenance
    same = {name: made[name] for name in ("seed", "thin", "thin_offset") if name in made}
    updates = as_many(trainer_of(policy), str(made.get("preset", "default")), made.get("updates"))
    return fit("bc", training, updates=updates, standardise=policy.standardisation is not None, **same)


def algorithm_of(policy: Policy) -> str:
    """The algorithm of a policy, or auto."""
    return str(policy.provenance.get("algorithm", "policy"))


def trainer_of(policy: Policy) -> str:
    """The algorithm that trained a policy; of auto, the one whose policy was kept."""
    name, settings = algorithm_of(policy), policy.provenance.get("settings")
    return str(settings.get("algorithm")) if name == AUTO and isinstance(settings, Mapping) else name
