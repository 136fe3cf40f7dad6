"""Train a policy, score it on what was held out, and save it with its card."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from sbil import devices, files
from sbil.algorithms import settings_of
from sbil.api.methods import decided_by_methods
from sbil.api.splitting import Parts, Split, names_of_episodes
from sbil.blending import BLEND
from sbil.checkpoint import Checkpoint
from sbil.choosing import Watch
from sbil.demonstrations import Demonstrations
from sbil.demonstrations.fingerprint import fingerprint
from sbil.demonstrations.roles import FILES
from sbil.errors import UserError, flag
from sbil.evaluation.calibration import calibrated
from sbil.evaluation.decided import decided, unit_of_intervals
from sbil.evaluation.imagined import imagined_or_why
from sbil.evaluation.matching import Agreement, MethodScores, scores_of_methods
from sbil.evaluation.metrics import METRICS
from sbil.evaluation.unfamiliar import with_measure
from sbil.evaluation.verdict import Verdict
from sbil.fitting import Diverged, demonstrations_of, follow
from sbil.policy import Policy
from sbil.policy.card import card, disclosed_shares
from sbil.policy.outputs import folder_must_be_free, must_be_free
from sbil.recipe import Recipe
from sbil.selection import Criterion
from sbil.training import Trained
from sbil.version import MADE_BY


@dataclass(frozen=True, eq=False)
class TrainingReport:
    """A trained policy, and how well it agrees with the decisions.

    scores: the agreement with the "training" decisions and, if any were held out, with the "held_out" ones.
    compared: every metric on the held-out decisions, one row per method: the baselines, BC, for tables logistic
        regression and trees, and the policy.
    verdict: whether the policy is better or worse than the other methods on the held-out decisions; None without them.
    """

    policy: Policy
    scores: dict[str, Agreement]
    compared: tuple[MethodScores, ...]
    trained: Trained
    training: Demonstrations
    held_out: Demonstrations | None
    verdict: Verdict | None = None
    resumed_at: int = 0  # the update at which an interrupted training was taken up again

    @property
    def selection(self) -> Mapping[str, Any] | None:
        """What was chosen among several candidates, and why; None if there was one."""
        selection: Mapping[str, Any] | None = self.policy.provenance.get("selection")
        return selection

    @property
    def taken(self) -> np.ndarray:
        """[actions] how often each action was taken in the decisions that were learned from."""
        made = self.policy.provenance
        return _taken(self.training, made["thin"], made["thin_offset"])

    @property
    def calibrated(self) -> bool:
        return "calibration" in self.policy.provenance

    def as_json(self) -> dict[str, Any]:
        return {
            "seconds": round(self.trained.seconds, 2),
            **self._scores(),
            **({"selection": self.selection} if self.selection else {}),
            **({"temperature": self.policy.temperature} if self.calibrated else {}),
            **({"compared": [row.as_json() for row in self.compared]} if self.compared else {}),
            **({"verdict": self.verdict.as_json()} if self.verdict else {}),
        }

    def save(self, folder: str | Path, overwrite: bool = False) -> None:
        """Write the policy folder, with its card (README.md) and the course of training (metrics.csv)."""
        rows = [
            {"method": row.method} | {METRICS[name].heading: found.as_json() for name, found in row.metrics.items()}
            for row in self.compared
        ]
        words = {"verdict": self.verdict.words} if self.verdict else {}
        text = card(self.policy, rows, self._scores() | words)
        extra = {"metrics.csv": metrics_csv(self.trained), "README.md": text.encode()}
        self.policy.save(folder, overwrite, extra=extra)

    def _scores(self) -> dict[str, Any]:
        found: dict[str, Any] = {name: score._asdict() for name, score in self.scores.items()}
        if self.held_out:
            found["held_out"] |= {"episodes": len(self.held_out), "resampled": unit_of_intervals(self.held_out)}
        return found


def train(
    algorithm: str,
    data: Any,
    *,
    columns: Mapping[str, Any] | None = None,
    preset: str = "default",
    config: Any = None,
    criterion: Criterion | None = None,
    seed: int = 0,
    updates: int | None = None,
    trajectories: int = 0,
    draw_seed: int = 0,
    thin: int = 1,
    thin_offset: int = 0,
    held_out: float = 0.0,
    calibrate: bool = False,
    standardise: bool | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    write_held_out: str | Path | None = None,
    watch: Watch | None = None,
    **settings: Any,
) -> TrainingReport:
    """Train a policy and score it on decisions that it was not trained on.

        report = sbil.train("edm", data, held_out=0.2, calibrate=True, weight_decay=1.0)
        report.policy, report.scores["held_out"].accuracy, report.compared
        sbil.train("auto", data).selection["words"]  # which of many policies was kept, and why

    `sbil.fit` explains data, columns, config, criterion, updates, thin, thin_offset, standardise and the settings.

    trajectories: learn from this many, drawn at random; 0: from all.
    held_out: the share of the trajectories (or of the groups) that is kept out of training and scored afterwards.
    calibrate: fit a temperature to one half of what is held out, so that probabilities agree with frequencies; the
        other half is scored.
    draw_seed: the seed of both draws; `seed` is that of training.
    out: write the policy folder here. If training was interrupted, the same call continues it.
    overwrite: replace that folder if it exists, and the file of `write_held_out`.
    write_held_out: write the names of the held-out episodes that are scored to this file, one per line. `only` of
        `sbil.read` and `sbil evaluate` takes it.
    watch: called with the share of the work that is done, and a few words.
    """
    split = Split(trajectories, held_out, calibrate, draw_seed)
    given = columns if isinstance(columns, Mapping) else {}  # reading refuses what is no mapping
    inputs = (data, *map(given.get, FILES))
    if out is not None:
        out = files.as_path("out", out)
        folder_must_be_free(out, flag("overwrite", overwrite), inputs)
    recipe = Recipe(algorithm, preset, config, settings, criterion, updates, seed, thin, thin_offset, standardise)
    if write_held_out is not None:
        write_held_out = files.as_path("write_held_out", write_held_out)
        must_be_free(write_held_out, flag("overwrite", overwrite), inputs)
        files.probe(write_held_out.parent)
    everything = demonstrations_of(data, columns)
    parts = split.parts(everything)
    listed = "" if write_held_out is None else names_of_episodes(parts.held_out)
    report = _trained(recipe, everything, split, parts, out, overwrite, watch)
    if write_held_out is not None:
        files.write_text(Path(write_held_out), listed)
    return report


def _trained(
    recipe: Recipe,
    everything: Demonstrations,
    split: Split,
    parts: Parts,
    out: str | Path | None,
    overwrite: bool,
    watch: Watch | None,
) -> TrainingReport:
    """Train, score and save; with a folder to write, training that was interrupted goes on."""
    if out is None:
        return _report(*follow(recipe, parts.training, watch=watch), everything, split, parts)
    files.probe(Path(out).parent)
    checkpoint = _checkpoint(Path(out), recipe, split, parts.training)
    resumed_at = checkpoint.usable()
    try:
        policy, trained = follow(recipe, parts.training, watch=watch, checkpoint=checkpoint)
    except Diverged as error:
        metrics = Path(out).with_name(f"{Path(out).name}.diverged.csv")
        files.write_bytes(metrics, metrics_csv(error.trained))
        checkpoint.remove()
        raise UserError(f"{error} The course of training is in {metrics}.") from None
    report = replace(_report(policy, trained, everything, split, parts), resumed_at=resumed_at)
    report.save(out, overwrite)
    checkpoint.remove()
    return report


def _checkpoint(out: Path, recipe: Recipe, split: Split, training: Demonstrations) -> Checkpoint:
    """Return the checkpoint of exactly this training."""
    identity = {
        **{name: value for name, value in vars(recipe).items() if name not in ("config", "candidates")},
        "settings": [(one.label, one.algorithm, one.updates, settings_of(one.config)) for one in recipe.candidates],
        "drawn": asdict(split),
        "data": fingerprint(training),
        "version": MADE_BY,
        "device": devices.describe(len(recipe.candidates)),
    }
    return Checkpoint.beside(out, identity)


def _report(policy: Policy, trained: Trained, everything: Demonstrations, split: Split, parts: Parts) -> TrainingReport:
    """Record where the policy comes from, calibrate it, and score it."""
    policy = with_warning(with_facts(policy, parts, everything, split), parts.training)
    if parts.calibration:
        policy = calibrated(policy, parts.calibration)
    policy = with_measure(policy, parts.training, parts.held_out)
    made = policy.provenance
    scores = {"training": Agreement.of(decided(policy, parts.training, made["thin"], made["thin_offset"]))}
    if parts.held_out is None:
        return TrainingReport(policy, scores, (), trained, parts.training, None)
    found = decided_by_methods(policy, parts.held_out, parts.training, parts.calibration)
    name = made["algorithm"]
    scores["held_out"] = Agreement.of(found[name])
    verdict = Verdict.of(found, name, parts.held_out.unit, on_training=scores["training"].log_loss)
    return TrainingReport(policy, scores, scores_of_methods(found), trained, parts.training, parts.held_out, verdict)


def with_facts(policy: Policy, parts: Parts, everything: Demonstrations, split: Split) -> Policy:
    """The policy that records the shares of the actions and, if it learned from a part of the data, which part."""
    made = {**policy.provenance, "shares": disclosed_shares(_taken(parts.training))}
    if split != Split():
        made["data"] = {**made["data"], "sha256_of_all": fingerprint(everything), "drawn": asdict(split)}
    if parts.held_out:
        made["data"]["sha256_of_held_out"] = fingerprint(parts.held_out)
    return replace(policy, provenance=made)


def with_warning(policy: Policy, training: Demonstrations) -> Policy:
    """The policy of `auto`, which records a warning if it leaves the recorded states in a model of the dynamics.

    The policy of a table was chosen without this model, so its imagined distance is recorded too. Other policies are
    not looked at: learning a model would take longer than many a training.
    """
    selection = policy.provenance.get("selection", {})
    if selection.get("criterion") not in ("imagined", BLEND):
        return policy
    found = imagined_or_why(policy, training)
    if isinstance(found, str):
        return policy
    told = {**selection, "warning": found.warning} if found.warning else selection
    if selection["criterion"] == BLEND:
        told = {**told, "imagined": {"horizon": found.horizon, "distance": round(found.near.value, 6)}}
    return replace(policy, provenance={**policy.provenance, "selection": told})


def _taken(training: Demonstrations, thin: int = 1, thin_offset: int = 0) -> np.ndarray:
    return np.bincount(training.decisions(thin, thin_offset).action, minlength=len(training.action_names))


def metrics_csv(trained: Trained) -> bytes:
    """The metrics of training, one line per chunk of updates."""
    lines = [["update", *trained.metrics]]
    for row, update in enumerate(trained.updates):
        lines.append([str(update), *(f"{values[row, 0]:.6g}" for values in trained.metrics.values())])
    return "".join(f"{','.join(line)}\n" for line in lines).encode()
