"""Draws EDM's energies: `python -m studies.landscape` writes three figures of docs/understanding_edm.md.

energy_landscape.png shows the energy over two coordinates of the state (the others stay at their mean), the
demonstrated states, and the paths of chains. temperatures.png shows the energies at which long chains end, by the
temperature of their steps. Both show one run per form, trained on the first draw of three trajectories. divergence.png
shows the form as printed, one run per draw, around the update at which the run diverges.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from sbil import langevin
from sbil.algorithms import configure, get
from sbil.dataset import Dataset, Spec
from sbil.experiments import Cell, EnvironmentTask, Method
from sbil.experiments.environment import data_of, played
from sbil.experiments.task import Run
from sbil.keys import named
from sbil.networks import Network, energy
from sbil.reports import figures
from sbil.training import pick, train_many
from studies.pages import FIGURES

TASKS = {  # the two coordinates of the state that are shown
    "CartPole": (
        Cell(EnvironmentTask("CartPole-v1", "dqn", "greedy", 20), Method("bc"), 3),
        (2, 3),
        ("angle", "angular velocity"),
    ),
    "LunarLander": (
        Cell(EnvironmentTask("LunarLander-v3", "ppo", "greedy"), Method("bc"), 3),
        (1, 3),
        ("height", "climbing speed"),
    ),
}
FORMS = {
    "as printed": ("bare", {"square": 0.0}),
    "with the square": ("bare", {}),
    "the default of edm_robust": ("default", {}),
}
TEMPERATURES = (0.005, 0.02, 0.1, 0.3, 1.0, 3.0)


class Learned(NamedTuple):
    """A run: its networks before and after training, its chains, and the demonstrated states."""

    before: Network
    after: Network
    config: Any
    chains: np.ndarray
    states: np.ndarray
    box: langevin.Box
    spread: np.ndarray


def learn(cell: Cell, preset: str, settings: dict[str, float], updates: int = 10_000) -> Learned:
    """Train one run of a form."""
    spec: Spec
    dataset: Dataset
    spec, dataset = data_of([Run(cell, 0, 0)])
    config, keys = configure("edm_robust", preset, settings), named(played(cell).environment, 0, 0)[None]
    make = get("edm_robust").make
    begun = train_many(make, spec, replace(config, learning_rate=1e-30), dataset, keys, 1)
    trained = train_many(make, spec, config, dataset, keys, updates)
    state = pick(trained.states, 0)
    rows = np.asarray(dataset.labelled.indices[0])[: int(dataset.labelled.size[0])]
    states = np.asarray(dataset.pool.before(jnp.asarray(rows)))
    return Learned(
        pick(begun.states, 0).learner,
        state.network,
        config,
        np.asarray(state.buffer),
        states,
        state.law.box,
        np.asarray(state.law.spread),
    )


def paths(run: Learned, network: Network, count: int = 12, points: int = 60) -> np.ndarray:
    """Return [points, chains, inputs], the paths of fresh chains under a network, run as in training."""
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
    """Draw the energy around the demonstrated states, those states, and chains from the box."""
    first, second = shown
    middle, low, high = run.states.mean(0), run.states.min(0), run.states.max(0)
    reach = 0.8 * (high - low)
    across = np.linspace(low[first] - reach[first], high[first] + reach[first], 160)
    up = np.linspace(low[second] - reach[second], high[second] + reach[second], 160)
    grid = np.broadcast_to(middle, (len(up), len(across), len(middle))).copy()
    grid[..., first], grid[..., second] = across[None, :], up[:, None]
    heights = np.asarray(energy(network(jnp.asarray(grid))))
    seen = np.asarray(energy(network(jnp.asarray(run.states))))
    off = heights - np.median(seen)
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


def ended(run: Learned, temperature: float, start: np.ndarray, steps: int = 5_000) -> float:
    """Return the mean energy at which long chains end, minus that of the demonstrated states."""
    step, unit = 0.05, run.spread
    states = langevin.adjusted_chain(
        jax.random.key(5),
        lambda states: energy(run.after(states)),
        jnp.asarray(start, jnp.float32),
        steps,
        jnp.asarray(step * unit**2),
        jnp.asarray((2 * step * temperature) ** 0.5 * unit),
        langevin.Box(*(jnp.asarray(side, jnp.float32) for side in reach(run))),
    )
    seen, sampled = (np.asarray(energy(run.after(jnp.asarray(some)))) for some in (run.states, states))
    return float(sampled.mean() - seen.mean())


def reach(run: Learned) -> tuple[np.ndarray, np.ndarray]:
    """Return the box of long chains: five spreads from the mean of the demonstrated states."""
    return run.states.mean(0) - 5 * run.spread, run.states.mean(0) + 5 * run.spread


def temperatures(axis: Any, run: Learned, form: str, count: int = 256) -> None:
    """Draw the energies of chains that start at demonstrated states (line) and anywhere (dashes).

    Chains have mixed if both end at the same energy.
    """
    rng = np.random.default_rng(4)
    near = run.states[rng.integers(0, len(run.states), count)]
    low, high = reach(run)
    far = low + (high - low) * rng.random((count, len(low)))
    colour = None
    for start, style, word in ((near, "-", ", from demonstrated states"), (far, "--", ", from anywhere")):
        gaps = [ended(run, temperature, start) for temperature in TEMPERATURES]
        print(f"{form}{word}:", {t: round(gap, 2) for t, gap in zip(TEMPERATURES, gaps, strict=True)}, flush=True)
        (line,) = axis.plot(TEMPERATURES, gaps, style, color=colour, marker="o", label=form + word)
        colour = line.get_color()


def divergence(draws: int = 10, every: int = 10, window: int = 600) -> Figure:
    """Draw runs of the printed form on CartPole around the update at which each diverges."""
    cell = TASKS["CartPole"][0]
    runs = [Run(cell, draw, 0) for draw in range(draws)]
    spec, dataset = data_of(runs)
    keys = jnp.stack([named(played(cell).environment, draw, 0) for _, draw, _ in runs])
    trained = train_many(
        get("edm_robust").make, spec, configure("edm_robust", *FORMS["as printed"]), dataset, keys, chunk=every
    )
    names = {
        "chain_size": "largest coordinate of a chain",
        "energy_gap": "minus the energy gap",
        "policy_loss": "log-loss of the decisions",
        "policy_gradient": "length of the decisions' gradient",
    }
    sheet, axes = plt.subplots(1, len(names), figsize=(15, 3.6), layout="constrained")
    lost = np.flatnonzero(trained.diverged)
    passed: dict[str, list[int]] = {name: [] for name in names}
    for run in lost:
        at = int(np.flatnonzero(trained.updates == trained.diverged_at[run])[0])
        shown = slice(max(at - window // every, 0), at + 1)
        since = trained.updates[shown] - trained.updates[at]
        for axis, name in zip(axes, names, strict=True):
            values = np.abs(trained.metrics[name][:, run])
            axis.plot(since, values[shown], lw=0.8, alpha=0.8)
            usual = np.quantile(values[: max(at - window // every, 1)], 0.99)  # before the window
            beyond = np.flatnonzero(values[shown] > 2 * usual)
            passed[name].append(int(since[beyond[0]]) if len(beyond) else every)
    for axis, (name, label) in zip(axes, names.items(), strict=True):
        axis.set_yscale("log")
        axis.set_title(label, fontsize=10)
        axis.set_xlabel("updates from the divergence")
        axis.grid(alpha=0.3)
        print(f"{name}: first beyond twice its usual height at {sorted(passed[name])}", flush=True)
    print(f"{len(lost)} of {draws} runs are lost, at {trained.diverged_at[lost].tolist()}")
    return sheet


def main() -> None:
    """Train, and write the figures."""
    figures.write(divergence(), FIGURES / "divergence.png")
    sheet, axes = plt.subplots(2, 4, figsize=(17, 7.6), layout="constrained")
    other, curves = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained")
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
                temperatures(curves[row], run, form)
        curves[row].axhline(0, color="black", lw=0.8, ls=":")
        curves[row].axvline(0.005, color="tab:red", lw=0.8, ls=":")
        curves[row].axvline(1, color="tab:green", lw=0.8, ls=":")
        curves[row].set_xscale("log")
        curves[row].set_yscale("symlog", linthresh=1)
        curves[row].margins(y=0.12)
        curves[row].set_xlabel("temperature of the chains")
        curves[row].set_title(task, fontsize=10)
    axes[0, 0].legend(fontsize=8, loc="upper left")
    curves[0].set_ylabel("energy of samples above that of demonstrations")
    curves[0].legend(fontsize=8)
    figures.write(sheet, FIGURES / "energy_landscape.png")
    figures.write(other, FIGURES / "temperatures.png")


if __name__ == "__main__":
    main()
