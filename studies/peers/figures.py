"""The figure of docs/peers.md."""

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from studies.choosing.choices import Key
from studies.peers.stored import Scores, cells
from studies.peers.tables import BC, DECAY, TITLES, group_of, known, mean_difference

COLOURS = ("#999999", "#0072b2", "#d55e00", "#009e73", "#cc79a7")
RIVALS = {BC: "BC", DECAY: "BC with weight decay 1"}


def drawings() -> dict[str, Figure]:
    """Return the figure of docs/peers.md by its name."""
    return {"peers": differences(cells())}


def differences(found: dict[Key, Scores]) -> Figure:
    """Draw what each method scores more or less than BC, and than BC with weight decay 1, over all its cells."""
    names = [name for name in known(found) if name != BC]
    groups = list(dict.fromkeys(map(group_of, names)))
    size = (10, 0.26 * len(names) + 1.2)
    sheet, axes = plt.subplots(1, len(RIVALS), figsize=size, sharey=True, sharex=True, layout="constrained")
    for axis, (rival, words) in zip(axes, RIVALS.items(), strict=True):
        for place, name in enumerate(names):
            if between := mean_difference(found, name, rival):
                colour = COLOURS[groups.index(group_of(name))]
                axis.plot([between.low, between.high], [place, place], color=colour, lw=2)
                axis.plot(between.value, place, "o", color=colour, ms=5)
        axis.axvline(0, color="black", lw=0.8)
        axis.set_xlabel(f"score minus that of {words}")
        axis.grid(alpha=0.3, axis="x")
    labels = [f"{TITLES[name].replace('`', '')} ({sum(name in own for own in found.values())})" for name in names]
    axes[0].set_yticks(range(len(names)), labels, fontsize=8)
    axes[0].invert_yaxis()
    return sheet
