"""sbil evaluate: a policy folder -> live returns, or agreement with held-out decisions."""

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import tyro

from sbil.cli.table import Table, load, tell

EXAMPLES = (
    "sbil evaluate policy/ --env CartPole-v1 --episodes 300",
    "sbil evaluate policy/ --data held_out.csv --training stays.csv",
    "sbil evaluate policy/ --data held_out.npz --json",
)


@dataclass(frozen=True, kw_only=True)
class Command(Table):
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
    """What the policy was trained on: with it BC and the distance to the nearest training states are compared with."""
    another: str | None = None
    """A table of another population: how well are its states told apart?"""
    episodes: int = 300
    """Episodes to play."""
    seed: int = 0
    """Seed of the episodes."""
    sampled: bool = False
    """Draw actions from the policy instead of taking the most probable one."""
    json: bool = False
    """Print the result as JSON."""


def run(command: Command) -> None:
    """Score and print."""
    from sbil.errors import UserError
    from sbil.policy import Policy

    if (command.env is None) == (command.data is None):
        raise UserError("give --env NAME to play, or --data FILE to compare with recorded decisions (one of them).")
    policy = Policy.load(command.policy)
    if command.env:
        result = live(command, policy)
        text = (
            f"{command.env}: mean return {result['mean']:.2f} [{result['low']:.2f}, {result['high']:.2f}] over "
            f"{result['episodes']} episodes (min {result['min']:g}, max {result['max']:g})"
        )
        if result["scaled"] is not None:
            text += f"; scaled {result['scaled']:.3f} (0: random network, 1: {result['demonstrator']} demonstrator)"
        print(json.dumps(result) if command.json else text)
    else:
        matched(command, policy)


def matched(command: Command, policy: Any) -> None:
    """Compare with recorded decisions: how well they are matched, and how well the policy knows what is new to it."""
    from sbil.algorithms import as_many
    from sbil.cli import scores
    from sbil.demonstrations import read_observations
    from sbil.errors import UserError
    from sbil.evaluation.agreement import agreed
    from sbil.evaluation.familiarity import familiarity
    from sbil.evaluation.matching import decided
    from sbil.fitting import fit

    if command.another and policy.schema is None:
        raise UserError("--another needs a policy that was trained on a table: its columns are not known otherwise.")
    held_out = load(str(command.data), replace(command, exclude=None), policy.schema)
    training = load(command.training, command, policy.schema) if command.training else None
    another = read_observations(command.another, policy.schema).observations if command.another else None
    found, name = scores.beside(policy, held_out), str(policy.provenance.get("algorithm", "policy"))
    if training and name != "bc":
        made = policy.provenance
        same = {key: made[key] for key in ("seed", "thin", "thin_offset") if key in made}
        updates = as_many(name, str(made.get("preset", "default")), made.get("updates"))
        cloned = fit("bc", training, standardise=policy.standardisation is not None, updates=updates, **same)
        found["bc"] = decided(cloned, held_out)
    found[name] = made = decided(policy, held_out)
    table, result = scores.rows(found), agreed(made)
    images = len(policy.spec.observation_shape) > 1
    familiar = None if images else familiarity(policy, held_out, training, another)
    if command.json:
        more = {"familiarity": familiar.as_json() if familiar else None, **scores.by_action(made, policy.action_names)}
        print(json.dumps({**result, "compared": table, **more}))
        return
    tell(held_out.observation_names, held_out.provenance)
    print(
        f"{result['accuracy']:.1%} agreement on {result['steps']} recorded decisions, log-loss "
        f"{result['log_loss']:.3f} (the commonest of them: {result['majority_accuracy']:.1%})"
    )
    scores.show(table, f"{len(held_out)} episodes [95 % interval over episodes]")
    scores.show_actions(made, policy.action_names)
    if familiar:
        scores.show_familiarity(familiar)
    if not training:
        print("give --training TABLE to compare with BC and with the distance to the nearest training states")


def live(command: Command, policy: Any) -> dict[str, Any]:
    """Play, and summarise with an interval over episodes."""
    from sbil import environments
    from sbil.evaluation import Policies, call, evaluate
    from sbil.keys import named
    from sbil.reports.statistics import bootstrap
    from sbil.training import stack

    environment = environments.get(str(command.env))
    environments.must_fit(environment, policy.spec)
    key = named("sbil evaluate", environment.name, command.seed)
    policies = Policies(call, stack([policy.plain_network]))
    returns = evaluate(environment, policies, key, command.episodes, greedy=not command.sampled)[0]
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
