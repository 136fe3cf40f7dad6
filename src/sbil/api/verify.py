"""Whether training again, by what a policy folder says, gives the same policy."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from sbil import devices
from sbil.algorithms import restored
from sbil.api.evaluate import as_trained_on
from sbil.api.splitting import Parts, Split
from sbil.choosing import Watch
from sbil.demonstrations import Demonstrations
from sbil.demonstrations.fingerprint import fingerprint
from sbil.errors import UserError, naming
from sbil.evaluation.calibration import calibrated
from sbil.evaluation.decided import must_match, observed
from sbil.evaluation.unfamiliar import with_measure
from sbil.fitting import Diverged, follow
from sbil.policy import Policy
from sbil.policy.folder import pieces
from sbil.portfolio import AUTO
from sbil.recipe import Recipe
from sbil.text import counted
from sbil.version import __version__

NEEDED: dict[str, type[Any]] = {  # what a policy must record, and the type
    **{"algorithm": str, "settings": dict, "standardised": bool, "data": dict},
    **dict.fromkeys(("updates", "seed", "thin", "thin_offset"), int),
}
LARGEST = 2**31 - 1
LONGEST = 60  # letters of a version or device that are shown


@dataclass(frozen=True, eq=False)
class Verification:
    """A policy, compared with the one that training again gives.

    differs: the pieces that are not the same, such as "weights".
    other_choices: at how many of the training decisions the preferred action differs.
    largest_difference: of two probabilities of an action at such a decision.
    changed: the versions and the kind of device that differ: (then, now).
    """

    training: Demonstrations
    differs: tuple[str, ...]
    decisions: int
    other_choices: int
    largest_difference: float
    changed: Mapping[str, tuple[str, str]]

    @property
    def same(self) -> bool:
        """Whether the two policies are the same, byte for byte."""
        return not self.differs

    def as_json(self) -> dict[str, Any]:
        facts = {name: value for name, value in vars(self).items() if name != "training"}
        return {"same": self.same, **facts, "differs": list(self.differs)}

    def __str__(self) -> str:
        episodes = counted(len(self.training), self.training.words[0])
        learned = f"trained again from {episodes}, {counted(self.decisions, 'decision')}, as the policy was"
        if self.same:
            return f"{learned}: the same policy, byte for byte"
        others = ", ".join(f"{name} was {then}, is {now}" for name, (then, now) in self.changed.items())
        return (
            f"{learned}: these parts differ: {', '.join(self.differs)}; the preferred action differs at "
            f"{self.other_choices:,} of these decisions, and probabilities differ by at most "
            f"{self.largest_difference:.1g} ({others or 'the folder names this version and kind of device'})"
        )


def verify(
    policy: Policy | str | Path, data: Any, *, columns: Mapping[str, Any] | None = None, watch: Watch | None = None
) -> Verification:
    """Train a policy again by what it records (settings, seed, which part of the data), and compare the two.

        sbil.verify("policy/", "stays.csv").same

    policy: a Policy, or the path of its folder.
    data: what it was trained on, the whole of it, also if a part was held out. A table is read as it was in training;
        columns: what was given then as `schema`, `exclude` or `only` must be given again.
    """
    name = "this policy" if isinstance(policy, Policy) else str(policy)
    policy = policy if isinstance(policy, Policy) else Policy.load(policy)
    recipe = _recipe(policy, name)
    parts = _parts(policy, name, data, columns or {})
    again = _trained(recipe, name, parts.training, watch)
    if parts.calibration:
        again = calibrated(again, parts.calibration)
    if policy.guard and policy.guard.measure and policy.guard.measure.record:
        again = with_measure(again, parts.training, parts.held_out)
    return _compared(policy, again, parts.training)


def _recipe(policy: Policy, name: str) -> Recipe:
    """How a policy was trained, as it records it."""
    made = policy.provenance
    for entry, kind in NEEDED.items():
        value: Any = made.get(entry)
        if type(value) is not kind or (kind is int and not 0 <= value <= LARGEST):
            raise UserError(f"{name} does not say how it was trained ('{entry}'), so it cannot be trained again.")
    same = {name: made[name] for name in ("seed", "thin", "thin_offset")} | {"standardise": made["standardised"]}
    if made["algorithm"] == AUTO:
        return Recipe(AUTO, **_asked(made, name), **same)
    with naming(name):
        config = restored(made["algorithm"], made["settings"])
        return Recipe(made["algorithm"], config=config, updates=made["updates"], **same)


def _asked(made: Mapping[str, Any], name: str) -> dict[str, Any]:
    """What the choice among the candidates of `auto` was asked to do."""
    try:
        asked = made["selection"]["asked"]
        return {"criterion": asked["criterion"], "updates": asked["updates"]}
    except (KeyError, TypeError):
        raise UserError(
            f"{name} does not say how it was chosen ('selection'), so it cannot be trained again."
        ) from None


def _parts(policy: Policy, name: str, data: Any, columns: Mapping[str, Any]) -> Parts:
    """The parts of the data that the policy was made with; other data are refused."""
    facts, source = policy.provenance["data"], policy.provenance["data"].get("provenance")
    for entry, option in (("excluded_episodes", "exclude"), ("kept_episodes", "only")):
        named_some = isinstance(source, dict) and source.get(entry)
        if named_some and not columns.get(option) and not isinstance(data, Demonstrations):
            words = f"{name} was trained with some {entry.replace('_', ' ')}"
            raise UserError(f"{words}; give the same list as {option} (--{option}).")
    everything = as_trained_on(_without_means(policy), data, columns)
    must_match(policy, everything)
    whole, part = fingerprint(everything), facts.get("sha256")
    with naming(name):
        split = Split.recorded(facts)
    shown = data if isinstance(data, str | Path) else "this"
    if whole != facts.get("sha256_of_all", part):
        raise UserError(
            f"{shown} is not what {name} was trained on (the hash of the decisions differs); give all that was given "
            "for training, and exclude, only and schema (--exclude, --only, --schema) if they were given then."
        )
    parts = split.parts(everything)
    if fingerprint(parts.training) != part:
        raise UserError(
            f"{name} was trained on a part of {shown} and does not say which part (an older version wrote it); give "
            "that part as the data."
        )
    return parts


def _without_means(policy: Policy) -> Policy:
    """The policy without the means that stand for missing values: they are computed anew from the data."""
    if policy.schema is None:
        return policy
    columns = tuple(replace(column, fill=None) for column in policy.schema.columns)
    return replace(policy, schema=replace(policy.schema, columns=columns))


def _trained(recipe: Recipe, name: str, training: Demonstrations, watch: Watch | None) -> Policy:
    """The policy, trained again."""
    try:
        return follow(recipe, training, watch=watch)[0]
    except Diverged as error:
        raise UserError(f"{name}: trained again, it diverged by update {error.trained.diverged_at[0]}.") from None
    except (MemoryError, jax.errors.JaxRuntimeError) as error:
        why = f"({type(error).__name__}); there may be too little memory"
        raise UserError(f"{name}: cannot be trained again here {why}.") from None


def _compared(policy: Policy, again: Policy, training: Demonstrations) -> Verification:
    """Which pieces of two policies differ; if any do, how far apart they decide where the first was trained."""
    mine, other = pieces(policy), pieces(again)
    differs = tuple(name for name, piece in mine.items() if piece != other[name])
    thin, offset = policy.provenance["thin"], policy.provenance["thin_offset"]
    choices, furthest = 0, 0.0
    for states in observed(training, thin, offset) if differs else ():
        before, after = policy.probabilities(states), again.probabilities(states)
        choices += int((before.argmax(axis=1) != after.argmax(axis=1)).sum())
        furthest = max(furthest, float(np.abs(before - after).max()))
    count = len(training.decisions(thin, offset).action)
    return Verification(training, differs, count, choices, furthest, _changed(policy))


def _changed(policy: Policy) -> dict[str, tuple[str, str]]:
    """The versions and the kind of device that a policy records and that are others now."""
    device = policy.provenance.get("device")
    then = {**(device if isinstance(device, dict) else {}), "sbil": policy.provenance.get("sbil")}
    runs = then.get("runs_per_program")
    now = {"sbil": __version__, **devices.describe(runs if type(runs) is int and runs > 0 else 1)}
    known = {name: then[name] for name in now if isinstance(then.get(name), str | int)}
    return {name: (_short(was), _short(now[name])) for name, was in known.items() if was != now[name]}


def _short(value: object) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in str(value)[:LONGEST])
