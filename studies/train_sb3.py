"""Trains the demonstrators of CartPole and Acrobot with Stable-Baselines3, and exports them to policy folders.

    pip install "sbil[experts]"
    python -m studies.train_sb3 CartPole-v1 dqn --out demonstrators/

Settings follow the RL Baselines3 Zoo, without normalisation of observations: the policy reads what the environment
shows. With one thread and fixed seeds, a second training on the same machine gives the same policy.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import tyro

from sbil import environments
from sbil.errors import program, unknown
from sbil.networks import MLP, Dense
from sbil.policy import Policy

SETTINGS: dict[tuple[str, str], dict[str, Any]] = {
    ("CartPole-v1", "dqn"): {
        "steps": 50_000,
        "environments": 1,
        "seed": 0,
        "learning_rate": 2.3e-3,
        "batch_size": 64,
        "buffer_size": 100_000,
        "learning_starts": 1000,
        "gamma": 0.99,
        "target_update_interval": 10,
        "train_freq": 256,
        "gradient_steps": 128,
        "exploration_fraction": 0.16,
        "exploration_final_eps": 0.04,
        "policy_kwargs": {"net_arch": [256, 256]},
    },
    ("CartPole-v1", "ppo"): {
        "steps": 200_000,
        "environments": 8,
        "seed": 0,
        "learning_rate": "linear 1e-3",
        "clip_range": "linear 0.2",
        "batch_size": 256,
        "n_steps": 32,
        "n_epochs": 20,
        "gae_lambda": 0.8,
        "gamma": 0.98,
        "ent_coef": 0.0,
    },
    ("Acrobot-v1", "ppo"): {
        "steps": 1_000_000,
        "environments": 16,
        "seed": 0,
        "n_steps": 256,
        "n_epochs": 4,
        "gae_lambda": 0.94,
        "gamma": 0.99,
        "ent_coef": 0.0,
    },
}


def schedule(value: Any) -> Any:
    """Return a number, or for "linear x" a schedule: x times the share of training that is left."""
    if isinstance(value, str) and value.startswith("linear "):
        start = float(value.removeprefix("linear "))
        return lambda left: left * start
    return value


def train(environment: str, algorithm: str) -> tuple[MLP, dict[str, Any]]:
    """Train an agent. Return the network that acts and the settings used."""
    import stable_baselines3 as sb3
    import torch
    from stable_baselines3.common.env_util import make_vec_env

    if (environment, algorithm) not in SETTINGS:
        raise unknown("demonstrator", f"{environment} {algorithm}", (" ".join(name) for name in SETTINGS))
    settings = SETTINGS[environment, algorithm]
    torch.set_num_threads(1)
    options = {name: schedule(value) for name, value in settings.items() if name not in ("steps", "environments")}
    envs = make_vec_env(environment, n_envs=settings["environments"], seed=settings["seed"])
    agent = {"dqn": sb3.DQN, "ppo": sb3.PPO}[algorithm]("MlpPolicy", envs, device="cpu", **options)
    agent.learn(total_timesteps=settings["steps"])
    if algorithm == "dqn":
        return network(agent.policy.q_net.q_net, "relu"), settings
    layers = [*agent.policy.mlp_extractor.policy_net, agent.policy.action_net]
    return network(layers, "tanh"), settings


def network(modules: Any, activation: str) -> MLP:
    """Copy the linear layers of a torch network into ours."""
    import torch

    linear = [module for module in modules if isinstance(module, torch.nn.Linear)]
    dense = (Dense(jnp.asarray(m.weight.detach().numpy().T), jnp.asarray(m.bias.detach().numpy())) for m in linear)
    return MLP(tuple(dense), activation)


@dataclass(frozen=True)
class Command:
    """Train one of the demonstrators that ship, and export it."""

    environment: tyro.conf.Positional[str]
    """For instance CartPole-v1."""
    algorithm: tyro.conf.Positional[str]
    """ppo or dqn."""
    out: Path
    """Folder in which the policy folder ENVIRONMENT-ALGORITHM is written."""


def main() -> None:
    """Train, export, and say where."""
    command = tyro.cli(Command, prog="python -m studies.train_sb3")
    environment = environments.get(command.environment)
    acting, settings = train(command.environment, command.algorithm)
    provenance = {
        "environment": environment.name,
        "algorithm": f"stable-baselines3 {command.algorithm}",
        **settings,
    }
    folder = command.out / f"{environment.name}-{command.algorithm}"
    policy = Policy(acting, environment.observation_names, environment.action_names, provenance=provenance)
    policy.save(folder, overwrite=True)
    print(f"wrote {folder}")


if __name__ == "__main__":
    program("train_sb3", main)
