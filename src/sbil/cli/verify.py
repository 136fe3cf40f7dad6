"""sbil verify: a policy folder and its data -> whether training again gives the same policy."""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from sbil.cli.columns import ColumnOptions, load
from sbil.cli.train import Drawn, calibrated, with_bar

if TYPE_CHECKING:
    from sbil.demonstrations import Demonstrations
    from sbil.policy import Policy

EXAMPLES = (
    "sbil verify policy/ --data stays.csv",
    "sbil verify policy/ --data demos.npz --json",
)
NEEDED: dict[str, tuple[Any, int | None]] = {  # of what a policy says of itself: the type, and the least
    "algorithm": (str, None),
    "preset": (str, None),
    "settings": (dict, None),
    "updates": (int, 1),
    "seed": (int, 0),
    "thin": (int, 1),
    "thin_offset": (int, 0),
    "standardised": (bool, None),
    "data": (dict, None),
}
LARGEST = 2**31 - 1
LONGEST = 60  # letters of a version or device that are shown


@dataclass(frozen=True, kw_only=True)
class Command(ColumnOptions):
    """Train a policy again from its data, by what its folder says of it, and compare the two.

    On one machine, with the same versions, they are the same byte for byte. On another they may not be: then it says
    what differs and how far apart the decisions are, and the exit status is 1.
    """

    policy: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="POLICY")]
    """The policy folder."""
    data: str
    """What `sbil train` was given: the whole of it, also where a part was held out. What was given with --exclude or
    --schema must be given again."""
    json: bool = False
    """Print the result as JSON."""


def run(command: Command) -> None:
    """Train again, compare, and leave with 1 where the two differ."""
    from sbil.policy import Policy
    from sbil.text import counted

    policy = Policy.load(command.policy)
    recipe = recipe_of(policy, command.policy)
    training, calibration = parts(command, policy)
    again = trained(command, recipe, training)
    if calibration:
        again = calibrated(again, calibration)
    found = compared(policy, again, training)
    if command.json:
        print(json.dumps(found, allow_nan=False))
    else:
        learned = f"{counted(len(training), training.words[0])}, {counted(found['decisions'], 'decision')}"
        print(f"trained again from {learned}, which are those of the policy: {told(found)}")
    if not found["same"]:
        sys.exit(1)


def recipe_of(policy: "Policy", path: Path) -> Mapping[str, Any]:
    """How a policy was made, as far as training again needs it."""
    from sbil.errors import UserError

    made = policy.provenance
    for name, (kind, least) in NEEDED.items():
        value: Any = made.get(name)
        if type(value) is not kind or (least is not None and not least <= value <= LARGEST):
            raise UserError(f"{path} does not say how it was trained ('{name}'), so it cannot be trained again.")
    return made


def parts(command: Command, policy: "Policy") -> "tuple[Demonstrations, Demonstrations | None]":
    """What of the data was learned from, and what the temperature was fitted to; other data are refused."""
    from sbil.errors import UserError
    from sbil.evaluation.matching import must_match
    from sbil.fitting import fingerprint

    facts, schema = policy.provenance["data"], policy.schema
    source = facts.get("provenance")
    if isinstance(source, dict) and source.get("excluded episodes") and not command.exclude:
        raise UserError(f"{command.policy} was trained with some episodes excluded; give the same list as --exclude.")
    if schema:  # the means that stand for missing values are taken anew
        schema = replace(schema, columns=tuple(replace(column, fill=None) for column in schema.columns))
    everything = load(command.data, command, schema)
    must_match(policy, everything)
    whole, part = fingerprint(everything), facts.get("sha256")
    try:
        drawn = Drawn.from_json(facts["drawn"]) if "drawn" in facts else Drawn()
    except UserError as error:
        raise UserError(f"{command.policy}: {error}") from None
    if whole == facts.get("sha256_of_all", part):
        training, _, calibration = drawn.parts(everything)
        if fingerprint(training) == part:
            return training, calibration
        raise UserError(
            f"{command.policy} was trained on a part of {command.data} and does not say which (an older version wrote "
            "it); give that part as --data."
        )
    raise UserError(
        f"{command.data} is not what {command.policy} was trained on (the hash of the decisions differs); give what "
        "`sbil train` was given: --data as a whole, and --exclude and --schema if they were."
    )


def trained(command: Command, recipe: Mapping[str, Any], training: "Demonstrations") -> "Policy":
    """The policy, trained again."""
    import jax

    from sbil.algorithms import restored
    from sbil.errors import UserError
    from sbil.fitting import Diverged

    algorithm = recipe["algorithm"]
    how = {name: recipe[name] for name in ("seed", "preset", "updates", "thin", "thin_offset")}
    how |= {"candidates": {"": restored(algorithm, recipe["settings"])}, "standardise": recipe["standardised"]}
    try:
        return with_bar(algorithm, training, **how)[0]
    except Diverged as error:
        raise UserError(
            f"{command.policy}: trained again, it diverged by update {error.trained.diverged_at[0]}."
        ) from None
    except (MemoryError, jax.errors.JaxRuntimeError) as error:
        raise UserError(
            f"{command.policy}: cannot be trained again here ({type(error).__name__}); there may be too little memory."
        ) from None


def compared(policy: "Policy", again: "Policy", training: "Demonstrations") -> dict[str, Any]:
    """Which pieces of two policies differ; if any do, how far apart they decide where the first was trained."""
    import numpy as np

    from sbil import devices
    from sbil.evaluation.matching import observed
    from sbil.policy.folder import pieces
    from sbil.version import __version__

    mine, other = pieces(policy), pieces(again)
    differs = [name for name, piece in mine.items() if piece != other[name]]
    thin, offset = policy.provenance["thin"], policy.provenance["thin_offset"]
    choices, furthest = 0, 0.0
    for states in observed(training, thin, offset) if differs else ():
        before, after = policy.probabilities(states), again.probabilities(states)
        choices += int((before.argmax(axis=1) != after.argmax(axis=1)).sum())
        furthest = max(furthest, float(np.abs(before - after).max()))
    device, now = policy.provenance.get("device"), {"sbil": __version__, **devices.describe(runs=1)}
    then = {**(device if isinstance(device, dict) else {}), "sbil": policy.provenance.get("sbil")}
    known = {name: then[name] for name in now if isinstance(then.get(name), (str, int))}
    return {
        "same": not differs,
        "differs": differs,
        "decisions": len(training.decisions(thin, offset).action),
        "other_choices": choices,
        "largest_difference": furthest,
        "changed": {name: [_short(was), _short(now[name])] for name, was in known.items() if was != now[name]},
    }


def _short(value: object) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in str(value)[:LONGEST])


def told(found: Mapping[str, Any]) -> str:
    """The comparison in a line."""
    if found["same"]:
        return "the same policy, byte for byte"
    others = ", ".join(f"{name} was {then}, is {now}" for name, (then, now) in found["changed"].items())
    return (
        f"other {', '.join(found['differs'])}; another first choice at {found['other_choices']:,} of these decisions, "
        f"probabilities at most {found['largest_difference']:.1g} apart "
        f"({others or 'the folder names this version and kind of device'})"
    )
