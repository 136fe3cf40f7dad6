"""Demonstrations of a policy that plays: one that ships, or one of your own."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sbil import demonstrators, environments
from sbil.demonstrations import Demonstrations, save
from sbil.demonstrations.formats.npz import must_be_npz
from sbil.demonstrators import MODES
from sbil.environments.base import HostEnvironment, JaxEnvironment
from sbil.errors import UserError, flag, unknown
from sbil.files import as_path
from sbil.policy import Policy
from sbil.policy.outputs import must_be_free


@dataclass(frozen=True, eq=False)
class Demonstrated:
    """Demonstrations, and the return of each of their episodes, which they do not hold themselves."""

    demonstrations: Demonstrations
    returns: np.ndarray  # [trajectories]

    @property
    def mean(self) -> float:
        return float(self.returns.mean())

    def as_json(self) -> dict[str, Any]:
        return {
            "trajectories": len(self.demonstrations),
            "steps": self.demonstrations.steps,
            "mean_return": self.mean,
            "min_return": float(self.returns.min()),
            "max_return": float(self.returns.max()),
        }


def demonstrate(
    environment: str | JaxEnvironment | HostEnvironment,
    trajectories: int = 20,
    *,
    demonstrator: str | None = None,
    policy: Policy | str | Path | None = None,
    mode: str | None = None,
    seed: int = 0,
    out: str | Path | None = None,
    overwrite: bool = False,
) -> Demonstrated:
    """Let a demonstrator play whole episodes, and record what it sees and does.

        sbil.demonstrate("CartPole-v1", 20).demonstrations

    demonstrator: one that ships for the environment; default: ppo if it exists, else dqn.
    policy: a Policy, or the path of its folder, instead of a shipped demonstrator.
    mode: "sampled" draws actions, "greedy" takes the most probable one. Default: sampled if the demonstrator was
        measured so; greedy for a policy of your own.
    out: also write the demonstrations to this NPZ file.
    overwrite: replace that file if it exists.
    """
    if out is not None:
        must_be_free(as_path("out", out), flag("overwrite", overwrite))
        must_be_npz(out)
    environment = environments.get(environment)
    if policy is not None and demonstrator is not None:
        raise UserError("policy and demonstrator (--policy, --demonstrator) both say who plays; give one of them.")
    if mode not in (None, *MODES):
        raise unknown("mode", mode, MODES)
    if policy is None:
        name, mode = _shipped(environment.name, demonstrator, mode)
        who = demonstrators.get(f"{environment.name}-{name}")
    else:
        who, mode = policy if isinstance(policy, Policy) else Policy.load(policy), mode or "greedy"
        name = "policy" if isinstance(policy, Policy) else Path(policy).name
    how: dict[str, Any] = {"greedy": mode == "greedy", "provenance": {"demonstrator": name}}
    made = Demonstrated(*demonstrators.collect(environment, who, trajectories, seed, **how))
    if out is not None:
        save(made.demonstrations, out, overwrite)
    return made


def _shipped(environment: str, name: str | None, mode: str | None) -> tuple[str, str]:
    """Return (name, mode) of a shipped demonstrator; refuse any other."""
    usual = demonstrators.suited(environment, name)
    if usual is None:
        raise UserError(f"no demonstrator ships for {environment}; give one of your own as policy (--policy FOLDER).")
    name, mode = usual[0], mode or usual[1]
    environments.scale(environment, name, mode)  # refuses a mode that was not measured
    return name, mode
