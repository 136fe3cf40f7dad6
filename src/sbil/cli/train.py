"""sbil train: demonstrations -> a policy folder."""

import csv
import io
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from sbil.version import __version__

if TYPE_CHECKING:
    from sbil.checkpoint import Checkpoint
    from sbil.demonstrations import Demonstrations
    from sbil.policy import Policy
    from sbil.training import Trained

EXAMPLES = (
    "sbil train bc --data demos.npz --out policy/",
    "sbil train edm --data demos.npz --out policy/ --thin 20 --set weight_decay=1",
    "sbil train bc --data demos.npz --out policy/ --set weight_decay=0/0.1/1/3",
    "sbil train edm --preset released --data demos.npz --out policy/ --held-out 0.2 --json",
)


@dataclass(frozen=True)
class Command:
    """Train a policy on recorded demonstrations and write it to a folder.

    An interrupted training goes on where it was when the same command is given again; a choice among settings is
    made anew.
    """

    algorithm: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ALGORITHM")]
    """Which algorithm; `sbil algorithms` lists them."""
    data: Path
    """The demonstrations (NPZ)."""
    out: Path
    """The policy folder to write."""
    preset: str = "default"
    """A named set of settings of the algorithm."""
    set: tuple[str, ...] = ()
    """Settings to change, as name=value; `sbil algorithms edm` lists them. Among values separated by slashes the best
    is chosen by cross-validation on the training trajectories."""
    updates: int | None = None
    """Updates (default: what the preset asks for; `sbil algorithms` says)."""
    seed: int = 0
    """Seed of initialisation, minibatches and chains."""
    trajectories: int = 0
    """Use only this many trajectories, drawn with --draw-seed; 0 uses all."""
    draw_seed: int = 0
    """Which random draw of trajectories."""
    thin: int = 1
    """Keep every k-th step of each trajectory."""
    thin_offset: int = 0
    """The first step kept."""
    held_out: float = 0.0
    """Share of the trajectories to keep out of training and score afterwards."""
    overwrite: bool = False
    """Replace the policy folder if it exists."""
    json: bool = False
    """Print the result as JSON."""


def run(command: Command) -> None:
    """Train, save, and say how well the policy agrees with the decisions."""
    from sbil import demonstrations as demos
    from sbil import devices, files
    from sbil.algorithms import candidates, settings_of
    from sbil.checkpoint import Checkpoint
    from sbil.errors import UserError
    from sbil.evaluation.agreement import agreement
    from sbil.fitting import Diverged, fingerprint

    if not command.out.name:
        raise UserError(f"--out {command.out}: name a folder to write the policy to.")
    if command.out.exists() and not command.overwrite:
        raise UserError(f"{command.out} exists already; choose another --out, or replace it with --overwrite.")
    if command.seed < 0 or command.draw_seed < 0:
        raise UserError(f"--seed and --draw-seed are whole numbers from 0. Got {command.seed} and {command.draw_seed}.")
    data = demos.load(command.data)
    if command.trajectories:
        data = data.select(data.draw(command.trajectories, command.draw_seed))
    training, held_out = data.split(command.held_out, command.draw_seed) if command.held_out else (data, None)
    identity = {
        **asdict(command),
        **{"out": "", "overwrite": "", "json": "", "data": fingerprint(training)},
        "settings": [settings_of(c) for c in candidates(command.algorithm, command.preset, command.set).values()],
        "version": __version__,
        "device": devices.describe(runs=1),
    }
    checkpoint = Checkpoint.beside(command.out, identity)
    if checkpoint.usable():
        print(f"resumed at update {checkpoint.usable()}", file=sys.stderr)
    try:
        policy, trained = train(command, training, checkpoint)
    except Diverged as error:
        metrics = command.out.with_name(f"{command.out.name}.diverged.csv")
        files.write_bytes(metrics, metrics_csv(error.trained))
        checkpoint.remove()
        raise UserError(f"{error} What happened is in {metrics}.") from None
    scores = {"training": agreement(policy, training, command.thin, command.thin_offset)}
    if held_out:
        scores["held_out"] = agreement(policy, held_out)
    policy.save(command.out, command.overwrite, extra={"metrics.csv": metrics_csv(trained)})
    checkpoint.remove()
    report(command, policy, scores, trained)


def train(command: Command, training: "Demonstrations", checkpoint: "Checkpoint") -> "tuple[Policy, Trained]":
    """Train with a bar of progress."""
    from sbil.cli.progress import bar, metrics_text
    from sbil.fitting import fit_watched

    with bar(1, f"{command.algorithm} on {len(training)} trajectories") as advance:
        return fit_watched(
            command.algorithm,
            training,
            seed=command.seed,
            preset=command.preset,
            settings=command.set,
            updates=command.updates,
            thin=command.thin,
            thin_offset=command.thin_offset,
            watch=lambda share, report: advance(share, metrics_text(report)),
            checkpoint=checkpoint,
        )


def metrics_csv(trained: Any) -> bytes:
    """The metrics of training, one line a chunk of updates."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["update", *trained.metrics])
    for row, update in enumerate(trained.updates):
        writer.writerow([update, *(f"{values[row, 0]:.6g}" for values in trained.metrics.values())])
    return text.getvalue().encode()


def report(command: Command, policy: "Policy", scores: dict[str, dict[str, float]], trained: "Trained") -> None:
    """Say what was written, what was chosen and how well it agrees."""
    selection = policy.provenance.get("selection")
    if command.json:
        more = {"selection": selection} if selection else {}
        print(json.dumps({"policy": str(command.out), "seconds": round(trained.seconds, 2), **scores, **more}))
        return
    count = int(trained.updates[-1])
    plural = "s" * (count > 1)
    print(f"wrote {command.out} ({command.algorithm}, {count} update{plural}, {trained.seconds:.1f} s)")
    if selection:
        losses = ", ".join(
            f"{words}: {'none' if loss is None else format(loss, '.3f')}"
            for words, loss in selection["held_out_log_loss"].items()
        )
        print(f"chose {selection['chosen']} by held-out log-loss ({losses}; none: it diverged or nothing was held out)")
    for name, score in scores.items():
        print(
            f"{name.replace('_', '-')} decisions: {score['accuracy']:.1%} agreement on {score['steps']} steps, "
            f"log-loss {score['log_loss']:.3f} (always the commonest action: {score['majority_accuracy']:.1%})"
        )
    print(f"next: sbil evaluate {command.out} --env NAME, or --data held_out.npz")
