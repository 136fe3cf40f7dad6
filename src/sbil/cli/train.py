"""sbil train: demonstrations -> a policy folder."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from sbil.cli.columns import SHOWN, ColumnOptions, tell
from sbil.cli.options import Written, with_options

if TYPE_CHECKING:
    from sbil.api.train import TrainingReport

EXAMPLES = (
    "sbil train auto --data stays.csv --episode stay --time hour --action treatment --out policy/",
    "sbil train edm --data stays.csv --episode stay --time hour --action treatment --held-out 0.2 --out policy/",
    "sbil train bc --data demos.npz --out policy/",
    "sbil train edm --data demos.npz --out policy/ --thin 20 --set weight_decay=1",
    "sbil train bc --data demos.npz --out policy/ --set weight_decay=0/0.1/1/3",
    "sbil train edm --preset released --data demos.npz --out policy/ --held-out 0.2 --json",
)
STANDARDISE = {"auto": None, "yes": True, "no": False}


@dataclass(frozen=True, kw_only=True)
class Command(ColumnOptions, Written):
    """Train a policy on recorded demonstrations and write it to a folder.

    An interrupted training goes on where it was when the same command is given again.
    """

    algorithm: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ALGORITHM")]
    """Which algorithm; `sbil algorithms` lists them. `auto` trains several, with several settings and networks, and
    keeps one policy."""
    data: str
    """The demonstrations: a table (CSV, Parquet, JSON lines, Excel, SQLite, DuckDB), a folder or a glob of tables, NPZ,
    or minari:NAME."""
    out: Path
    """The policy folder to write."""
    standardise: Literal["auto", "yes", "no"] = "auto"
    """Bring every column to mean 0 and deviation 1 inside the policy (auto: yes for tables, no for other files)."""
    preset: str = "default"
    """A named set of settings of the algorithm."""
    set: tuple[str, ...] = ()
    """Settings to change, as name=value; `sbil algorithms edm` lists them. Several values are separated by slashes:
    `criterion` decides which is kept."""
    criterion: Literal["auto", "imagined", "log_loss", "error"] | None = None
    """What decides among several candidates. log_loss, error: cross-validation on the training episodes. imagined: what
    the policies do in a model of the dynamics. auto: imagined if this model can be trusted, else log_loss. (Default:
    log_loss; of the algorithm auto: auto.)"""
    updates: int | None = None
    """Updates (default: what the preset asks for; `sbil algorithms` says)."""
    seed: int = 0
    """Seed of initialisation, minibatches and chains."""
    trajectories: int = 0
    """Use only this many trajectories (episodes of a table), drawn with --draw-seed; 0 uses all."""
    draw_seed: int = 0
    """Seed of that draw, and of what is held out."""
    thin: int = 1
    """Keep every k-th step of each episode."""
    thin_offset: int = 0
    """The first step kept."""
    held_out: float = 0.0
    """Share of the episodes (of the groups, with --group) to keep out of training and score afterwards."""
    write_held_out: Path | None = None
    """Write the names of the episodes that are held out and scored to this file. `sbil evaluate --only` takes it."""
    calibrate: bool = False
    """Fit a temperature to one half of what is held out, so that probabilities agree with frequencies; the other half
    is scored."""


def run(command: Command) -> None:
    """Train, save, and say how well the policy agrees with the decisions."""
    from sbil.algorithms import parse_words
    from sbil.api.train import train
    from sbil.cli.progress import bar
    from sbil.portfolio import AUTO, chooses_itself

    with bar(1, command.algorithm) as advance:
        if command.set and command.algorithm == AUTO:
            raise chooses_itself(f"the setting '{command.set[0].partition('=')[0]}'")
        settings = parse_words(command.algorithm, command.set) if command.set else {}
        options = {"standardise": STANDARDISE[command.standardise], "watch": advance, **settings}
        report = with_options(train, command, aside=("set",), **options)
    if report.resumed_at:
        print(f"resumed at update {report.resumed_at}", file=sys.stderr)
    if command.json:
        print(json.dumps({"policy": str(command.out), **report.as_json()}))
    else:
        show(command, report)


def show(command: Command, report: "TrainingReport") -> None:
    """Say what was written, what was chosen and how well it agrees."""
    from sbil.cli.tables import agreement_in_words, show_methods
    from sbil.evaluation.decided import unit_of_intervals
    from sbil.text import counted, over

    policy, trained = report.policy, report.trained
    show_data(report)
    updates = counted(int(trained.updates[-1]), "update")
    print(f"wrote {command.out} ({command.algorithm}, {updates}, {trained.seconds:.1f} s)")
    if command.write_held_out and report.held_out:
        print(f"wrote {command.write_held_out} (the names of {counted(len(report.held_out), 'held-out episode')})")
    show_choice(report)
    for name, score in report.scores.items():
        print(f"{name.replace('_', '-')} decisions: {agreement_in_words(score, 'step')}")
    if report.calibrated:
        likewise = "; likewise for the methods beside it that learn"
        print(f"temperature {policy.temperature:.3g}, fitted to the other half of what was held out{likewise}")
    if report.held_out:
        intervals = over(unit_of_intervals(report.held_out))
        episodes = counted(len(report.held_out), "episode")
        show_methods(report.compared, f"Held-out decisions of {episodes} [{intervals}]")
    if report.verdict:
        print(report.verdict.words)
    where = "--data later.csv" if policy.schema else "--env NAME, or --data held_out.npz"
    print(f"next: sbil evaluate {command.out} {where}; sbil show {command.out}")


def show_data(report: "TrainingReport") -> None:
    """Say which columns and rows were used, and which actions cannot have been learned."""
    from sbil.text import counted

    names, origin = report.policy.action_names, report.training.provenance
    tell(report.training.observation_names, origin)
    if "excluded_rows" in origin:
        rows = counted(origin["excluded_rows"], "row")
        print(f"left out by --exclude: {counted(origin['excluded_episodes'], 'episode')} with {rows}")
    if "kept_episodes" in origin:
        print(f"kept by --only: {counted(origin['kept_episodes'], 'episode')}")
    unseen = [name for name, count in zip(names, report.taken, strict=True) if not count]
    if unseen:
        others = f" and {len(unseen) - SHOWN} more" if len(unseen) > SHOWN else ""
        print(f"never taken in training, so never learned: {', '.join(unseen[:SHOWN])}{others}")
    if (report.taken > 0).sum() == 1:
        print("only one action was taken: there is nothing to learn")


def show_choice(report: "TrainingReport") -> None:
    """Say which of several candidates was chosen, and why."""
    from sbil.text import counted

    if report.selection:
        print(report.selection["words"])
        if found := report.selection.get("imagined"):
            steps = counted(found["horizon"], "step")
            print(
                f"in a model of the dynamics: {found['distance']:.3f} standard deviations from recorded states, {steps}"
            )
        if warning := report.selection.get("warning"):
            print(f"warning: {warning}")
