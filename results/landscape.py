"""What EDM's energies look like: python results/landscape.py writes two figures of docs/understanding_edm.md.

One run a panel, learned on the first draw of three trajectories. energy_landscape.png: the energy over two coordinates
of the state (the others at their mean), the demonstrated states on it, and chains on their way. temperatures.png: the
energies that chains settle at, by the temperature of their steps.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

from sbil import langevin
from sbil.algorithms import configure, get
from sbil.dataset import Dataset, Spec
from sbil.experiments.cell import Cell, Method
from sbil.experiments.data import data_of
from sbil.keys import named
from sbil.networks import Network, energy
from sbil.reports import figures
from sbil.training import pick, train_many

FIGURES = Path(__file__).resolve().parent.parent / "docs" / "figures"
TASKS = {  # the two coordinates of the state that are shown
    "CartPole": (Cell("CartPole-v1", "dqn", "greedy", 20, Method("bc"), 3), (2, 3), ("angle", "angular velocity")),
    "LunarLander": (Cell("LunarLander-v3", "ppo", "greedy", 1, Method("bc"), 3), (1, 3), ("height", "climbing speed")),
}
FORMS = {
    "as printed": ("bare", ("square=0",)),
    "with the square": ("bare", ()),
    "the default of edm_robust": ("default", ()),
}
TEMPERATURES = (0.005, 0.02, 0.1, 0.3, 1.0, 3.0)


class Learned(NamedTuple):
    """A run: its network before and after, its chains, and the states it was shown."""

    before: Network
    after: Network
    config: Any
    chains: np.ndarray
    states: np.ndarray
    box: langevin.Box
    spread: np.ndarray


def learn(cell: Cell, preset: str, settings: tuple[str, ...], updates: int = 10_000) -> Learned:
    """Train one run of a form."""
    spec: Spec
    dataset: Dataset
    spec, dataset = data_of([(cell, 0, 0)])
    config, keys = configure("edm_robust", preset, settings), named(cell.environment, 0, 0)[None]
    make = get("edm_robust").make
    begun = train_many(make, spec, replace(config, learning_rate=1e-30), dataset, keys, 1)
    trained = train_many(make, spec, config, dataset, keys, updates)
    state = pick(trained.states, 0)
    rows = np.asarray(dataset.labelled.indices[0])[: int(dataset.labelled.size[0])]
    states = np.asarray(dataset.pool.before(rows))
    return Learned(
        pick(begun.states, 0).learner,
        state.learner,
        config,
        np.asarray(state.buffer),
        states,
        state.law.box,
        np.asarray(state.law.spread),
    )


def paths(run: Learned, network: Network, count: int = 12, points: int = 60) -> np.ndarray:
    """[points, chains, inputs], where fresh chains go under a network, as training runs them."""
    key = jax.random.key(3)
    start = langevin.uniform(jax.random.uniform(key, (count, len(run.spread))), *run.box)
    unit = run.spread**run.config.scaled
    places = [np.asarray(start)]
    for point in range(points):
        start = langevin.chain(
            jax.random.fold_in(key, point),
            lambda states: energy(network(states)),
            start,
            5,
            run.config.step_size * unit**2,
            run.config.noise * unit,
        )
        places.append(np.asarray(start))
    return np.stack(places)


def panel(axis: Any, run: Learned, network: Network, shown: tuple[int, int], names: tuple[str, str]) -> None:
    """The energy around the demonstrated states, those states, and chains from the box."""
    first, second = shown
    middle, low, high = run.states.mean(0), run.states.min(0), run.states.max(0)
    reach = 0.8 * (high - low)
    across = np.linspace(low[first] - reach[first], high[first] + reach[first], 160)
    up = np.linspace(low[second] - reach[second], high[second] + reach[second], 160)
    grid = np.broadcast_to(middle, (len(up), len(across), len(middle))).copy()
    grid[..., first], grid[..., second] = across[None, :], up[:, None]
    level = np.asarray(energy(network(jnp.asarray(grid))))
    seen = np.asarray(energy(network(jnp.asarray(run.states))))
    off = level - np.median(seen)
    limit = max(float(np.quantile(np.abs(off), 0.95)), 1e-3)
    image = axis.contourf(across, up, np.clip(off, -limit, limit), 24, cmap="RdBu_r", vmin=-limit, vmax=limit)
    axis.figure.colorbar(image, ax=axis, format="%.2g", shrink=0.9)
    axis.scatter(run.states[:, first], run.states[:, second], s=6, color="black", label="demonstrated")
    moved = paths(run, network)
    axis.plot(moved[..., first], moved[..., second], color="tab:green", lw=0.7, alpha=0.8)
    axis.scatter(moved[-1, :, first], moved[-1, :, second], s=14, color="tab:green", marker="x", label="chains' ends")
    axis.set_xlim(across[0], across[-1])
    axis.set_ylim(up[0], up[-1])
    axis.set_xlabel(names[0])
    axis.set_ylabel(names[1])


def settled(run: Learned, temperature: float, steps: int = 2_000, count: int = 256) -> tuple[float, float]:
    """(mean energy of long chains above that of demonstrated states, their spread over that of those states)."""
    step = 0.1
    unit = run.spread
    key, start_key = jax.random.split(jax.random.key(4))
    chosen = jax.random.randint(start_key, (count,), 0, len(run.states))
    states = langevin.adjusted_chain(
        key,
        lambda states: energy(run.after(states)),
        jnp.asarray(run.states)[chosen],
        steps,
        step * unit**2,
        (2 * step * temperature) ** 0.5 * unit,
        langevin.Box(*(jnp.asarray(run.states.mean(0) + side * 20 * unit) for side in (-1, 1))),
    )
    seen, sampled = (np.asarray(energy(run.after(jnp.asarray(some)))) for some in (run.states, states))
    wide = np.median(np.asarray(states).std(0) / run.states.std(0).clip(1e-6))
    return float(sampled.mean() - seen.mean()), float(wide)


def main() -> None:
    """Train, and write the figures."""
    sheet, axes = plt.subplots(2, 4, figsize=(17, 7.6), layout="constrained")
    other, curves = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for row, (task, (cell, shown, names)) in enumerate(TASKS.items()):
        for column, (form, (preset, settings)) in enumerate(FORMS.items(), start=1):
            run = learn(cell, preset, settings)
            if column == 1:
                panel(axes[row, 0], run, run.before, shown, names)
                axes[row, 0].set_title(f"{task}, before training", fontsize=10)
            panel(axes[row, column], run, run.after, shown, names)
            axes[row, column].set_title(f"{task}, {form}", fontsize=10)
            print(f"{task}, {form}: chains reach {np.abs(run.chains).max():.3g}", flush=True)
            if form != "as printed":
                gaps = [settled(run, temperature) for temperature in TEMPERATURES]
                print(
                    [
                        f"T {t}: {gap:+.2f}, {wide:.1f} spreads"
                        for t, (gap, wide) in zip(TEMPERATURES, gaps, strict=True)
                    ]
                )
                curves[row].plot(TEMPERATURES, [gap for gap, _ in gaps], marker="o", label=form)
        curves[row].axhline(0, color="black", lw=0.8, ls=":")
        curves[row].axvline(0.005, color="tab:red", lw=0.8, ls=":")
        curves[row].axvline(1, color="tab:green", lw=0.8, ls=":")
        curves[row].set_xscale("log")
        curves[row].set_yscale("symlog", linthresh=1)
        curves[row].set_xlabel("temperature of the chains")
        curves[row].set_title(task, fontsize=10)
    axes[0, 0].legend(fontsize=8, loc="upper left")
    curves[0].set_ylabel("energy of samples above that of demonstrations")
    curves[0].legend(fontsize=8)
    figures.write(sheet, FIGURES / "energy_landscape.png")
    figures.write(other, FIGURES / "temperatures.png")


if __name__ == "__main__":
    main()
