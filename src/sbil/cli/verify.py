"""sbil verify: a policy folder and its data -> whether training again gives the same policy."""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from sbil.cli.table import Table, load
from sbil.cli.train import Drawn, calibrated

if TYPE_CHECKING:
    from sbil.demonstrations import Demonstrations
    from sbil.policy import Policy

EXAMPLES = (
    "sbil verify policy/ --data stays.csv",
    "sbil verify policy/ --data demos.npz --json",
)
NEEDED = ("algorithm", "preset", "settings", "updates", "seed", "thin", "thin_offset", "standardised", "data")


@dataclass(frozen=True, kw_only=True)
class Command(Table):
    """Train a policy again from its data, by what its folder says of it, and compare the two.

    On one machine, with the same versions, the weights are the same byte for byte. On another they are not; how far
    apart the two policies are is said then, and the exit status is 1.
    """

    policy: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="POLICY")]
    """The policy folder."""
    data: str
    """What `sbil train` was given: the whole of it, also where a part was held out. --exclude must be given again."""
    json: bool = False
    """Print the result as JSON."""


def run(command: Command) -> None:
    """Train again, compare, and leave with 1 where the weights differ."""
    from sbil import devices
    from sbil.policy import Policy
    from sbil.policy.card import counted
    from sbil.version import __version__

    policy = Policy.load(command.policy)
    recipe = recipe_of(policy, command.policy)
    everything = load(command.data, command, policy.schema)
    training, _, calibration = parts(command, recipe, everything)
    again = trained(command, recipe, training)
    if calibration:
        again = calibrated(again, calibration)
    found = compared(policy, again, training)
    device = recipe.get("device")
    then = {"sbil": recipe.get("sbil"), **(device if isinstance(device, Mapping) else {})}
    now = {"sbil": __version__, **devices.describe(runs=1)}
    found["then and now"] = {name: [then.get(name), now[name]] for name in now if then.get(name) != now[name]}
    if command.json:
        print(json.dumps(found))
    else:
        learned = f"{counted(len(training), training.words[0])}, {counted(training.steps, 'decision')}"
        print(f"trained again from {learned}, which are those of the policy: {told(found)}")
    if not found["same"]:
        sys.exit(1)


def recipe_of(policy: "Policy", path: Path) -> Mapping[str, Any]:
    """How a policy was made, as far as training again needs it."""
    from sbil.errors import UserError

    made = policy.provenance
    kinds = {**dict.fromkeys(NEEDED, int), "algorithm": str, "preset": str, "settings": dict, "data": dict}
    for name in NEEDED:
        if not isinstance(made.get(name), kinds[name]):
            raise UserError(f"{path} does not say with what {name} it was trained, so it cannot be trained again.")
    least = {"updates": 1, "seed": 0, "thin": 1, "thin_offset": 0}
    for name in (name for name, low in least.items() if made[name] < low):
        raise UserError(f"{path} says that it was trained with {name} {made[name]}; the folder is damaged.")
    return made


def parts(
    command: Command, recipe: Mapping[str, Any], everything: "Demonstrations"
) -> "tuple[Demonstrations, Demonstrations | None, Demonstrations | None]":
    """What of the data was learned from, held out and used for the temperature; other data are refused."""
    from sbil.errors import UserError
    from sbil.fitting import fingerprint

    facts = recipe["data"]
    found = (Drawn.from_json(facts["drawn"]) if "drawn" in facts else Drawn()).parts(everything)
    if fingerprint(found[0]) == facts.get("sha256"):
        return found
    if "drawn" not in facts and fingerprint(everything) == facts.get("sha256_of_all"):
        raise UserError(
            f"{command.policy} was trained on a part of {command.data} and does not say which (an older version wrote "
            "it); give that part as --data."
        )
    raise UserError(
        f"{command.data} is not what {command.policy} was trained on (the hash of the decisions differs); give the "
        "same file, and --exclude if it was given."
    )


def trained(command: Command, recipe: Mapping[str, Any], training: "Demonstrations") -> "Policy":
    """The policy, trained again with a bar of progress."""
    from sbil.algorithms import changes
    from sbil.cli.progress import bar, metrics_text
    from sbil.fitting import fit_watched

    with bar(1, f"{recipe['algorithm']} on {len(training)} {training.words[1]}") as advance:
        policy, _ = fit_watched(
            recipe["algorithm"],
            training,
            seed=recipe["seed"],
            preset=recipe["preset"],
            settings=changes(recipe["algorithm"], recipe["preset"], recipe["settings"]),
            updates=recipe["updates"],
            thin=recipe["thin"],
            thin_offset=recipe["thin_offset"],
            standardise=recipe["standardised"],
            watch=lambda share, report: advance(share, metrics_text(report)),
        )
    return policy


def compared(policy: "Policy", again: "Policy", training: "Demonstrations") -> dict[str, Any]:
    """Whether two policies have the same weights; if not, how far apart they are where the first was trained."""
    import numpy as np

    from sbil.evaluation.matching import observed
    from sbil.policy.folder import same_weights

    same = same_weights(policy, again) and policy.temperature == again.temperature
    found: dict[str, Any] = {"same": same, "decisions": training.steps, "otherwise": 0, "furthest": 0.0}
    for states in () if same else observed(training):
        one, other = policy.probabilities(states), again.probabilities(states)
        found["otherwise"] += int((one.argmax(axis=1) != other.argmax(axis=1)).sum())
        found["furthest"] = max(found["furthest"], float(np.abs(one - other).max()))
    return found


def told(found: Mapping[str, Any]) -> str:
    """The comparison in a line."""
    if found["same"]:
        return "the same weights, byte for byte"
    others = ", ".join(f"{name} was {then}, is {now}" for name, (then, now) in found["then and now"].items())
    return (
        f"other weights; another first choice at {found['otherwise']:,} of {found['decisions']:,} decisions, "
        f"probabilities at most {found['furthest']:.1g} apart ({others or 'version and device are the same'})"
    )
