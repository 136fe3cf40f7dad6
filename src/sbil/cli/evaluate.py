"""sbil evaluate: a policy folder -> live returns, or agreement with held-out decisions."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from sbil.cli.columns import ROLES, ColumnOptions, load, tell

if TYPE_CHECKING:
    from sbil.demonstrations import Demonstrations
    from sbil.policy import Policy

EXAMPLES = (
    "sbil evaluate policy/ --env CartPole-v1 --episodes 300",
    "sbil evaluate policy/ --data held_out.csv --training stays.csv",
    "sbil evaluate policy/ --data held_out.npz --json",
)


@dataclass(frozen=True, kw_only=True)
class Command(ColumnOptions):
    """Score a finished policy: live in an environment, or against recorded decisions."""

    policy: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="POLICY")]
    """The policy folder."""
    env: str | None = None
    """Play in this environment: CartPole-v1, Acrobot-v1, LunarLander-v3, BeamRiderNoFrameskip-v4, or one of gymnasium's
    with rows of numbers to see and a list of actions to choose from."""
    data: str | None = None
    """Compare with the decisions in this table or file: CSV, Parquet, NPZ, minari:NAME. The columns are those that the
    policy was trained on."""
    training: str | None = None
    """What the policy was trained on: with it BC, the commonest and the previous action and the distance to the nearest
    training states are compared with."""
    another: str | None = None
    """A table of another population: how well are its states told apart?"""
    episodes: int | None = None
    """Episodes to play, with --env (default: 300)."""
    seed: int | None = None
    """Seed of the episodes, with --env (default: 0)."""
    sampled: bool = False
    """Draw actions from the policy instead of taking the most probable one, with --env."""
    json: bool = False
    """Print the result as JSON."""


def run(command: Command) -> None:
    """Score and print."""
    must_fit_together(command)
    from sbil.policy import Policy
    from sbil.text import counted

    policy = Policy.load(command.policy)
    if command.env:
        result = live(command, policy)
        text = (
            f"{command.env}: mean return {result['mean']:.2f} [{result['low']:.2f}, {result['high']:.2f}] over "
            f"{counted(result['episodes'], 'episode')} (min {result['min']:g}, max {result['max']:g})"
        )
        if result["scaled"] is not None:
            text += f"; scaled {result['scaled']:.3f} (0: random network, 1: {result['demonstrator']} demonstrator)"
        print(json.dumps(result) if command.json else text)
    else:
        matched(command, policy)


def must_fit_together(command: Command) -> None:
    """Refuse options that would have no effect: playing has some, and recorded decisions have others."""
    from sbil.errors import UserError

    if (command.env is None) == (command.data is None):
        raise UserError("give --env NAME to play, or --data FILE to compare with recorded decisions (one of them).")
    names = ("episodes", "seed") if command.data else ("training", "another", "schema", "exclude", *ROLES)
    idle = [name for name in names if getattr(command, name) not in (None, ())]
    idle += ["sampled"] if command.sampled and command.data else []
    if idle:
        option, here = f"--{idle[0].replace('_', '-')}", "--data" if command.data else "--env"
        raise UserError(f"{option} has no effect with {here}; leave it out.")
    if command.episodes is not None and command.episodes < 1:
        raise UserError(f"--episodes must be a whole number from 1. Got {command.episodes}.")
    if command.seed is not None and command.seed < 0:
        raise UserError(f"--seed must be a whole number from 0. Got {command.seed}.")


def matched(command: Command, policy: "Policy") -> None:
    """Compare with recorded decisions: how well they are matched, and how well the policy knows what is new to it."""
    from sbil.algorithms import as_many
    from sbil.cli import scores
    from sbil.demonstrations import read_observations
    from sbil.errors import UserError
    from sbil.evaluation.agreement import agreed
    from sbil.evaluation.familiarity import familiarity
    from sbil.evaluation.matching import decided
    from sbil.fitting import fit
    from sbil.text import counted, over

    if command.another and policy.schema is None:
        raise UserError("--another needs a policy that was trained on a table: its columns are not known otherwise.")
    held_out = load(str(command.data), replace(command, exclude=None), policy.schema)
    training = load(command.training, command, policy.schema) if command.training else None
    another = None
    if command.another and policy.schema:
        another = read_observations(command.another, policy.schema).observations
    found, name = scores.beside(policy, held_out, training), str(policy.provenance.get("algorithm", "policy"))
    if training and name != "bc":
        source = policy.provenance
        same = {key: source[key] for key in ("seed", "thin", "thin_offset") if key in source}
        updates = as_many(name, str(source.get("preset", "default")), source.get("updates"))
        cloned = fit("bc", training, standardise=policy.standardisation is not None, updates=updates, **same)
        found["bc"] = decided(cloned, held_out)
    found[name] = made = decided(policy, held_out)
    table, result = scores.rows(found), agreed(made)
    images = len(policy.spec.observation_shape) > 1
    familiar = None if images else familiarity(policy, held_out, training, another)
    doubts = notes(policy, held_out, training, "bc" in found and name != "bc")
    unit = scores.resampled(held_out)
    if command.json:
        more: dict[str, Any] = {"notes": doubts, "resampled": unit}
        more |= {"familiarity": familiar.as_json() if familiar else None, **scores.by_action(made, policy.action_names)}
        print(json.dumps({**result, "compared": table, **more}))
        return
    tell(held_out.observation_names, held_out.provenance)
    for doubt in doubts:
        print(f"note: {doubt}")
    print(
        f"{result['accuracy']:.1%} agreement on {counted(len(made.actions), 'recorded decision')}, log-loss "
        f"{result['log_loss']:.3f} (the commonest of them: {result['majority_accuracy']:.1%})"
    )
    scores.show(table, f"{counted(len(held_out), held_out.words[0])} [{over(unit)}]")
    scores.show_actions(made, policy.action_names)
    if familiar:
        scores.show_familiarity(familiar)
    if not training:
        print(
            "give --training TABLE to compare with BC, the previous action and the distance to the nearest training "
            "states"
        )


def notes(policy: "Policy", held_out: "Demonstrations", training: "Demonstrations | None", cloned: bool) -> list[str]:
    """What makes the scores say less than they seem to: decisions that were learned from, and unequal company."""
    from sbil.fitting import fingerprint, twins
    from sbil.text import counted

    known, scored, found = policy.provenance.get("data", {}), fingerprint(held_out), []
    if scored == known.get("sha256"):
        found.append("these are the decisions it was trained on: the scores say nothing of new ones")
    elif scored == known.get("sha256_of_all") or same_file(held_out.provenance, known.get("provenance", {})):
        found.append("a part of these decisions is what it was trained on: the scores are too good for new ones")
    if training is None:
        return found
    beside, word = ("bc", "the baselines") if cloned else ("the baselines",), held_out.words[0]
    if shared := twins(held_out, training):
        found.append(
            f"{shared:,} of {counted(len(held_out), word)} of --data are in --training too, value for value: "
            f"{', '.join(beside)} and the nearest training states know them"
        )
    if "sha256" in known and fingerprint(training) != known["sha256"]:
        counts = counted(len(training), word), known.get("trajectories")
        found.append(
            "--training is not what the policy was trained on (its hash differs)"
            if len(training) == counts[1]
            else f"{' and '.join(beside)} learned from {counts[0]}, the policy from {counts[1]}"
        )
    if cloned and policy.temperature != 1:
        found.append(
            "the policy's probabilities were calibrated and those of bc were not: log-loss, Brier score and ECE are "
            "not compared on equal terms"
        )
    return found


def same_file(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two tables were read from the same bytes, whatever was left out of either."""
    return "sha256" in one and one["sha256"] == other.get("sha256")


def live(command: Command, policy: "Policy") -> dict[str, Any]:
    """Play, and summarise with an interval over episodes."""
    from sbil import environments
    from sbil.evaluation import Policies, call, play
    from sbil.keys import named
    from sbil.statistics import bootstrap
    from sbil.training import stack

    environment = environments.get(str(command.env))
    environments.must_fit(environment, policy.spec)
    episodes = 300 if command.episodes is None else command.episodes
    key = named("sbil evaluate", environment.name, command.seed or 0)
    policies = Policies(call, stack([policy.plain_network]))
    returns = play(environment, policies, key, episodes, greedy=not command.sampled)[0]
    low, high = bootstrap(returns)
    source = policy.provenance.get("data", {}).get("provenance", {})
    measured = environments.returns().get(environment.name, {}).get("demonstrators", {})
    known = source.get("environment") == environment.name
    known = known and source.get("mode") in measured.get(source.get("demonstrator"), ())
    usual = next(((name, mode) for name in ("ppo", "dqn") for mode in reversed(measured.get(name, ()))), None)
    who = (source["demonstrator"], source["mode"]) if known else usual
    zero, one = environments.scale(environment.name, *who) if who else (math.nan, math.nan)
    return {
        "environment": environment.name,
        "episodes": len(returns),
        "mean": float(returns.mean()),
        "low": low,
        "high": high,
        "min": float(returns.min()),
        "max": float(returns.max()),
        "demonstrator": f"{who[1]} {who[0]}" if who else None,
        "scaled": (float(returns.mean()) - zero) / (one - zero) if who else None,
    }
