"""Measures how far the states after kept steps lie from the kept ones: python -m studies.successors

Thinning keeps every k-th state together with the state one step later. A controller that pushes left and right in turn
visits one region at even steps and another one at odd steps. If k is even, kept states and successors never mix.
"""

import numpy as np

from sbil.experiments.environment import demonstrations_for

SETTINGS = (
    ("CartPole-v1", "ppo", "sampled", 20),
    ("CartPole-v1", "ppo", "greedy", 20),
    ("CartPole-v1", "dqn", "greedy", 20),
    ("CartPole-v1", "ppo", "sampled", 1),
    ("Acrobot-v1", "ppo", "sampled", 1),
)
DRAWS = 10


def distances(environment: str, demonstrator: str, mode: str, thin: int, size: int) -> tuple[float, float]:
    """Return (share of successors outside the box of the kept states, mean distance in standard deviations)."""
    demonstrations = demonstrations_for(environment, demonstrator, mode)
    outside, apart = [], []
    for draw in range(DRAWS):
        steps = demonstrations.select(demonstrations.draw(size, seed=draw)).flat(thin)
        kept, after = steps.observation, steps.next_observation[steps.has_next]
        low, high = kept.min(axis=0), kept.max(axis=0)
        outside.append(((after < low) | (after > high)).any(axis=1).mean())
        apart.append(np.sqrt((((after - kept.mean(axis=0)) / (kept.std(axis=0) + 1e-3)) ** 2).mean(axis=1)).mean())
    return float(np.mean(outside)), float(np.mean(apart))


def main() -> None:
    """Print one line per setting and size. The distance among the kept states themselves is about 1."""
    print("| setting | trajectories | successors outside the box of kept states | distance (standard deviations) |")
    print("| --- | --- | --- | --- |")
    for environment, demonstrator, mode, thin in SETTINGS:
        for size in (1, 15):
            outside, apart = distances(environment, demonstrator, mode, thin, size)
            print(f"| {environment}, {demonstrator} {mode}, thin {thin} | {size} | {outside:.0%} | {apart:.1f} |")


if __name__ == "__main__":
    main()
