"""EDM as its authors released it, written anew in plain PyTorch from the description of the recipe.

A 64-64 ELU network, Adam at 1e-3, 10,000 persistent chains from U(-1, 1), 20 Langevin steps an update with
autograd at every step, 5 % of the chains restarted, loss L_pi + L_rho + L_rho^2; one run at a time. Data and
chains stay on the device, which favours PyTorch. PyTorch is imported only when a run is made.
"""

from time import perf_counter
from typing import Any

import numpy as np

BUFFER = 10_000
CHAIN_LENGTH = 20
STEP_SIZE = 0.01
NOISE = 0.01
RESTART = 0.05
WARM_UP = 20  # updates


class TorchRun:
    """One EDM run; `advance` carries it on and says how long that took."""

    def __init__(self, observations: np.ndarray, actions: np.ndarray, count: int, batch: int, device: str) -> None:
        import torch

        torch.set_num_threads(1)
        torch.manual_seed(0)
        self.torch, self.device, self.batch = torch, device, min(batch, len(observations))
        self.observations = torch.as_tensor(observations, dtype=torch.float32, device=device)
        self.actions = torch.as_tensor(actions, dtype=torch.int64, device=device)
        self.network: Any = torch.nn.Sequential(
            torch.nn.Linear(observations.shape[1], 64),
            torch.nn.ELU(),
            torch.nn.Linear(64, 64),
            torch.nn.ELU(),
            torch.nn.Linear(64, count),
        ).to(device)
        self.optimiser = torch.optim.Adam(self.network.parameters(), lr=1e-3)
        self.buffer = self.uniform(BUFFER)
        self.advance(WARM_UP)

    def uniform(self, count: int) -> Any:
        """Fresh chains, uniform in (-1, 1)."""
        return self.torch.rand(count, self.observations.shape[1], device=self.device) * 2 - 1

    def minus_energy(self, states: Any) -> Any:
        """log sum_a exp f(s)[a]."""
        return self.torch.logsumexp(self.network(states), dim=1)

    def sample(self) -> Any:
        """Continue some chains of the buffer by the Langevin steps and write them back."""
        torch = self.torch
        slots = torch.randint(BUFFER, (self.batch,), device=self.device)
        restarted = torch.rand(self.batch, 1, device=self.device) < RESTART
        states = torch.where(restarted, self.uniform(self.batch), self.buffer[slots])
        for _ in range(CHAIN_LENGTH):
            states.requires_grad_(True)
            (gradient,) = torch.autograd.grad(self.minus_energy(states).sum(), states)
            states = states.detach() + STEP_SIZE * gradient + NOISE * torch.randn_like(states)
        self.buffer[slots] = states
        return states

    def update(self) -> Any:
        """One step of Adam; returns L_pi."""
        torch = self.torch
        rows = torch.randint(len(self.actions), (self.batch,), device=self.device)
        observations, actions = self.observations[rows], self.actions[rows]
        sampled = self.sample()
        logits = self.network(observations)
        l_pi = torch.nn.functional.cross_entropy(logits, actions)
        l_rho = self.minus_energy(sampled).mean() - torch.logsumexp(logits, dim=1).mean()
        self.optimiser.zero_grad()
        (l_pi + l_rho + l_rho**2).backward()
        self.optimiser.step()
        return l_pi.detach()

    def advance(self, updates: int) -> float:
        """Seconds for this many updates, until the device has finished them."""
        started = perf_counter()
        for _ in range(updates):
            self.update()
        if self.device == "cuda":
            self.torch.cuda.synchronize()
        return perf_counter() - started


def available_devices() -> list[str]:
    """Return the devices that PyTorch can use here: cpu, and cuda if it sees a GPU."""
    import torch

    return ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
