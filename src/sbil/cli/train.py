"""sbil train: demonstrations -> a policy folder."""

import csv
import io
import json
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from sbil.cli.columns import ROLES, SHOWN, ColumnOptions, load, tell
from sbil.version import MADE_BY

if TYPE_CHECKING:
    import numpy as np

    from sbil.checkpoint import Checkpoint
    from sbil.demonstrations import Demonstrations
    from sbil.policy import Policy
    from sbil.training import Trained

EXAMPLES = (
    "sbil train edm --data stays.csv --episode stay --time hour --action treatment --held-out 0.2 --out policy/",
    "sbil train bc --data demos.npz --out policy/",
    "sbil train edm --data demos.npz --out policy/ --thin 20 --set weight_decay=1",
    "sbil train bc --data demos.npz --out policy/ --set weight_decay=0/0.1/1/3",
    "sbil train edm --preset released --data demos.npz --out policy/ --held-out 0.2 --json",
)
STANDARDISE = {"auto": None, "yes": True, "no": False}


@dataclass(frozen=True, kw_only=True)
class Command(ColumnOptions):
    """Train a policy on recorded demonstrations and write it to a folder.

    An interrupted training goes on where it was when the same command is given again; a choice among settings is
    made anew.
    """

    algorithm: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ALGORITHM")]
    """Which algorithm; `sbil algorithms` lists them."""
    data: str
    """The demonstrations: a CSV or Parquet file, a folder or a glob of them, NPZ, or minari:NAME."""
    out: Path
    """The policy folder to write."""
    standardise: Literal["auto", "yes", "no"] = "auto"
    """Bring every column to mean 0 and deviation 1 inside the policy (auto: tables are, other files are not)."""
    preset: str = "default"
    """A named set of settings of the algorithm."""
    set: tuple[str, ...] = ()
    """Settings to change, as name=value; `sbil algorithms edm` lists them. Among values separated by slashes the best
    is chosen by cross-validation on the training episodes."""
    updates: int | None = None
    """Updates (default: what the preset asks for; `sbil algorithms` says)."""
    seed: int = 0
    """Seed of initialisation, minibatches and chains."""
    trajectories: int = 0
    """Use only this many trajectories (episodes of a table), drawn with --draw-seed; 0 uses all."""
    draw_seed: int = 0
    """Which random draw of them."""
    thin: int = 1
    """Keep every k-th step of each episode."""
    thin_offset: int = 0
    """The first step kept."""
    held_out: float = 0.0
    """Share of the episodes (of the groups, with --group) to keep out of training and score afterwards."""
    calibrate: bool = False
    """Fit a temperature to one half of what is held out, so that probabilities mean what they say; the other half is
    scored."""
    overwrite: bool = False
    """Replace the policy folder if it exists."""
    json: bool = False
    """Print the result as JSON."""


def run(command: Command) -> None:
    """Train, save, and say how well the policy agrees with the decisions."""
    from sbil import devices, files
    from sbil.algorithms import settings_of
    from sbil.checkpoint import Checkpoint
    from sbil.cli.scores import resampled
    from sbil.errors import UserError
    from sbil.evaluation.agreement import agreement
    from sbil.fitting import Diverged, fingerprint
    from sbil.policy.card import card

    if not command.out.name:
        raise UserError(f"--out {command.out}: name a folder to write the policy to.")
    must_be_free(command)
    if command.seed < 0 or command.draw_seed < 0:
        raise UserError(f"--seed and --draw-seed are whole numbers from 0. Got {command.seed} and {command.draw_seed}.")
    if command.calibrate and not command.held_out:
        raise UserError("--calibrate needs decisions that were not trained on: give --held-out as well, 0.2 say.")
    everything = load(command.data, command)
    drawn = Drawn(command.trajectories, command.held_out, command.calibrate, command.draw_seed)
    training, held_out, calibration = drawn.parts(everything)
    identity = {
        **asdict(command),
        **{"out": "", "overwrite": "", "json": "", "calibrate": "", "data": fingerprint(training)},
        **dict.fromkeys((*ROLES, "schema"), ""),
        "settings": [settings_of(config) for config in choices(command).values()],
        "version": MADE_BY,
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
    policy = with_facts(policy, training, everything, drawn)
    if calibration:
        policy = calibrated(policy, calibration)
    scores: dict[str, Any] = {"training": agreement(policy, training, command.thin, command.thin_offset)}
    table: list[dict[str, Any]] = []
    if held_out:
        scores["held_out"] = agreement(policy, held_out)
        scores["held_out"] |= {"episodes": len(held_out), "resampled": resampled(held_out)}
        table = compared(command, policy, training, held_out, calibration)
    extra = {"metrics.csv": metrics_csv(trained), "README.md": card(policy, table, scores).encode()}
    policy.save(command.out, command.overwrite, extra=extra)
    checkpoint.remove()
    report(command, policy, scores, table, trained, taken(training, command.thin, command.thin_offset))


@dataclass(frozen=True)
class Drawn:
    """Which part of the data is learned from."""

    trajectories: int = 0  # 0: all
    held_out: float = 0.0  # share
    calibrate: bool = False
    draw_seed: int = 0

    @classmethod
    def from_json(cls, content: Any) -> "Drawn":
        """What a policy folder says, where it is what `sbil train` could have written."""
        from sbil.errors import UserError

        kinds: dict[str, set[type]] = {
            "trajectories": {int},
            "held_out": {int, float},
            "calibrate": {bool},
            "draw_seed": {int},
        }
        good = isinstance(content, dict) and {*content} == {*kinds}
        good = good and all(type(content[name]) in kind for name, kind in kinds.items())
        if not good or min(content.values()) < 0 or content["held_out"] >= 1:
            raise UserError("policy.json does not say which part of the data was drawn; the folder is damaged.")
        return cls(**content)

    def parts(self, data: "Demonstrations") -> "tuple[Demonstrations, Demonstrations | None, Demonstrations | None]":
        """To learn from, to score, and to fit a temperature to."""
        if self.trajectories:
            data = data.select(data.draw(self.trajectories, self.draw_seed))
        if not self.held_out:
            return data, None, None
        training, held_out = data.split(self.held_out, self.draw_seed)
        if not self.calibrate:
            return training, held_out, None
        scored, calibration = held_out.split(0.5, self.draw_seed)
        return training, scored, calibration


def must_be_free(command: Command) -> None:
    """Refuse a folder that holds something, unless told; and one that holds what is read, in any case."""
    from sbil.cli.outputs import files_of
    from sbil.errors import UserError

    out = command.out
    if not out.exists():
        return
    if not command.overwrite and not (out.is_dir() and not any(out.iterdir())):
        raise UserError(f"{out} exists already; choose another --out, or replace it with --overwrite.")
    read = (file for given in (command.data, command.schema, command.exclude) if given for file in files_of(given))
    if any(file.resolve().parent == out.resolve() for file in read):
        raise UserError(f"--out {out} is a folder that is read from here, and is not replaced; choose another --out.")


def taken(training: "Demonstrations", thin: int = 1, thin_offset: int = 0) -> "np.ndarray":
    """[actions] how often each was taken."""
    import numpy as np

    return np.bincount(training.decisions(thin, thin_offset).action, minlength=len(training.action_names))


def with_facts(policy: "Policy", training: "Demonstrations", everything: "Demonstrations", drawn: Drawn) -> "Policy":
    """The policy, with the shares of the actions; where it learned from a part, which, and the hash of all."""
    from sbil.fitting import fingerprint
    from sbil.policy.card import told_shares

    made = {**policy.provenance, "shares": told_shares(taken(training))}
    if drawn != Drawn():
        made["data"] = {**made["data"], "sha256_of_all": fingerprint(everything), "drawn": asdict(drawn)}
    return replace(policy, provenance=made)


def calibrated(policy: "Policy", held_out: "Demonstrations") -> "Policy":
    """The policy at the temperature at which its probabilities fit decisions that it was not trained on."""
    import numpy as np

    from sbil.evaluation.calibration import fit_temperature
    from sbil.evaluation.matching import observed

    logits = np.concatenate([policy.logits(part) for part in observed(held_out)])
    temperature = fit_temperature(logits, held_out.decisions().action)
    facts = {"calibration": {"temperature": temperature, "episodes": len(held_out), "decisions": held_out.steps}}
    return replace(policy, temperature=temperature, provenance={**policy.provenance, **facts})


def compared(
    command: Command,
    policy: "Policy",
    training: "Demonstrations",
    held_out: "Demonstrations",
    calibration: "Demonstrations | None",
) -> list[dict[str, Any]]:
    """The scores of the policy on held-out decisions beside those of the baselines and of BC, calibrated alike."""
    from sbil.algorithms import as_many
    from sbil.cli.scores import rows
    from sbil.evaluation.baselines import Baselines
    from sbil.evaluation.matching import decided
    from sbil.fitting import fit

    found = Baselines.from_demonstrations(training).decided(held_out)
    if command.algorithm != "bc":
        updates = as_many(command.algorithm, command.preset, policy.provenance["updates"])
        cloned = fit(
            "bc",
            training,
            seed=command.seed,
            updates=updates,
            thin=command.thin,
            thin_offset=command.thin_offset,
            standardise=STANDARDISE[command.standardise],
        )
        found["bc"] = decided(calibrated(cloned, calibration) if calibration else cloned, held_out)
    found[command.algorithm] = decided(policy, held_out)
    return rows(found)


def choices(command: Command) -> dict[str, Any]:
    """The Configs to choose from."""
    from sbil.algorithms import candidates, parse_words

    return candidates(command.algorithm, command.preset, parse_words(command.algorithm, command.set))


def train(command: Command, training: "Demonstrations", checkpoint: "Checkpoint") -> "tuple[Policy, Trained]":
    """Train as the command says."""
    from sbil.algorithms import updates_for

    configs = choices(command)
    return with_bar(
        command.algorithm,
        training,
        seed=command.seed,
        preset=command.preset,
        candidates=configs,
        updates=updates_for(command.algorithm, command.preset, configs.values(), command.updates),
        thin=command.thin,
        thin_offset=command.thin_offset,
        standardise=STANDARDISE[command.standardise],
        checkpoint=checkpoint,
    )


def with_bar(algorithm: str, training: "Demonstrations", **how: Any) -> "tuple[Policy, Trained]":
    """`fit_watched` under a bar of progress."""
    from sbil.cli.progress import bar, metrics_text
    from sbil.fitting import fit_watched

    with bar(1, f"{algorithm} on {len(training)} {training.words[1]}") as advance:
        return fit_watched(algorithm, training, watch=lambda share, report: advance(share, metrics_text(report)), **how)


def metrics_csv(trained: Any) -> bytes:
    """The metrics of training, one line a chunk of updates."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["update", *trained.metrics])
    for row, update in enumerate(trained.updates):
        writer.writerow([update, *(f"{values[row, 0]:.6g}" for values in trained.metrics.values())])
    return text.getvalue().encode()


def report(
    command: Command,
    policy: "Policy",
    scores: dict[str, Any],
    table: list[dict[str, Any]],
    trained: "Trained",
    counts: "np.ndarray",
) -> None:
    """Say what was written, what was chosen and how well it agrees."""
    from sbil.cli.scores import show
    from sbil.text import counted, over

    selection = policy.provenance.get("selection")
    if command.json:
        more = {"selection": selection} if selection else {}
        more |= {"temperature": policy.temperature} if command.calibrate else {}
        more |= {"compared": table} if table else {}
        print(json.dumps({"policy": str(command.out), "seconds": round(trained.seconds, 2), **scores, **more}))
        return
    origin = policy.provenance["data"]["provenance"]
    tell(policy.observation_names, origin)
    if command.exclude:
        rows = counted(origin["excluded rows"], "row")
        print(f"left out by --exclude: {counted(origin['excluded episodes'], 'episode')} with {rows}")
    unseen = [name for name, count in zip(policy.action_names, counts, strict=True) if not count]
    if unseen:
        others = f" and {len(unseen) - SHOWN} more" if len(unseen) > SHOWN else ""
        print(f"never taken in training, so never learned: {', '.join(unseen[:SHOWN])}{others}")
    if (counts > 0).sum() == 1:
        print("only one action was taken: there is nothing to learn")
    updates = counted(int(trained.updates[-1]), "update")
    print(f"wrote {command.out} ({command.algorithm}, {updates}, {trained.seconds:.1f} s)")
    if selection:
        losses = ", ".join(
            f"{words}: {'none' if loss is None else format(loss, '.3f')}"
            for words, loss in selection["held_out_log_loss"].items()
        )
        missing = None in selection["held_out_log_loss"].values()
        why = "; none: it diverged or nothing was held out" if missing else ""
        print(f"chose {selection['chosen']} by held-out log-loss ({losses}{why})")
    for name, score in scores.items():
        print(
            f"{name.replace('_', '-')} decisions: {score['accuracy']:.1%} agreement on "
            f"{counted(score['steps'], 'step')}, log-loss {score['log_loss']:.3f} "
            f"(the commonest of them: {score['majority_accuracy']:.1%})"
        )
    if command.calibrate:
        alike = ", as that of bc was" if table and command.algorithm != "bc" else ""
        print(f"temperature {policy.temperature:.3g}, fitted to the other half of what was held out{alike}")
    if table:
        held_out = scores["held_out"]
        show(table, f"Held-out decisions of {counted(held_out['episodes'], 'episode')} [{over(held_out['resampled'])}]")
    where = "--data later.csv" if policy.schema else "--env NAME, or --data held_out.npz"
    print(f"next: sbil evaluate {command.out} {where}; sbil show {command.out}")
