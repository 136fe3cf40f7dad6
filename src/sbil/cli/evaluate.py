"""sbil evaluate: a policy folder -> live returns, or agreement with held-out decisions."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

EXAMPLES = (
    "sbil evaluate policy/ --env CartPole-v1 --episodes 300",
    "sbil evaluate policy/ --data held_out.npz --json",
)


@dataclass(frozen=True)
class Command:
    """Score a finished policy: live in an environment, or against recorded decisions."""

    policy: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="POLICY")]
    """The policy folder."""
    env: str | None = None
    """Play in this environment: CartPole-v1, Acrobot-v1, LunarLander-v3, BeamRiderNoFrameskip-v4, or one of gymnasium's
    with rows of numbers to see and a list of actions to choose from."""
    data: Path | None = None
    """Compare with the decisions in this file (NPZ)."""
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
    else:
        from sbil import demonstrations
        from sbil.evaluation.agreement import agreement

        result = agreement(policy, demonstrations.load(Path(str(command.data))))
        text = (
            f"{result['accuracy']:.1%} agreement on {result['steps']} recorded decisions, log-loss "
            f"{result['log_loss']:.3f} (always the commonest action: {result['majority_accuracy']:.1%})"
        )
    print(json.dumps(result) if command.json else text)


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
