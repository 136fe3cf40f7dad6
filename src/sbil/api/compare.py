"""Which algorithm matches recorded decisions best, by cross-validation."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sbil.choosing import Watch
from sbil.demonstrations import Demonstrations
from sbil.demonstrations.roles import FILES
from sbil.errors import UserError, flag, whole
from sbil.evaluation.crossvalidation import cross_validate
from sbil.evaluation.decided import Decided, unit_of_intervals
from sbil.evaluation.matching import MethodScores, scores_of_methods
from sbil.evaluation.verdict import Verdict
from sbil.files import as_path, write_text
from sbil.fitting import demonstrations_of
from sbil.policy.outputs import must_be_free
from sbil.portfolio import classifiers_beside, require_known


@dataclass(frozen=True, eq=False)
class Comparison:
    """Algorithms and baselines on the same decisions, each judged while its episode was held out.

    decided: what each method says of every decision, for `sbil.evaluation.matching.differences`.
    verdict: whether the method with the smallest log-loss is better or worse than the others.
    """

    data: Demonstrations
    folds: int
    decided: Mapping[str, Decided]
    compared: tuple[MethodScores, ...]
    verdict: Verdict

    def as_json(self) -> dict[str, Any]:
        return {
            "episodes": len(self.data),
            "decisions": self.data.steps,
            "folds": self.folds,
            "resampled": unit_of_intervals(self.data),
            "compared": [row.as_json() for row in self.compared],
            "verdict": self.verdict.as_json(),
        }


def compare(
    data: Any,
    algorithms: Sequence[str] = ("edm",),
    *,
    columns: Mapping[str, Any] | None = None,
    folds: int = 5,
    seed: int = 0,
    updates: int | None = None,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    watch: Watch | None = None,
) -> Comparison:
    """Cross-validate algorithms by episode, beside BC, the most frequent and the previous action.

    For tables, logistic regression and trees are compared too, if scikit-learn is installed.

        for row in sbil.compare(data, ["edm", "rcal"], folds=5).compared:
            print(row.method, row.metrics["accuracy"])

    algorithms: names of algorithms, or "auto", which chooses in each fold anew.
    data, columns, updates: as for `sbil.fit`.
    folds: parts of the episodes (or of the groups); each is held out once.
    seed: of the folds and of training.
    settings: changes to the default settings by algorithm, such as {"edm": {"noise": 0.1}}.
    out: also write the table as JSON to this file.
    overwrite: replace that file if it exists.
    """
    if not isinstance(algorithms, Sequence) or not algorithms or isinstance(algorithms, str):
        raise UserError('algorithms must be a list of names, such as ["bc", "edm"]; `sbil algorithms` lists them.')
    for name in algorithms:
        require_known(name)
    if len({*algorithms}) < len(algorithms):
        raise UserError(f"an algorithm is named twice in {list(algorithms)}; name each once.")
    settings = {} if settings is None else settings
    if not isinstance(settings, Mapping) or not all(isinstance(own, Mapping) for own in settings.values()):
        raise UserError(f'settings must be a dict by algorithm, such as {{"edm": {{"noise": 0.1}}}}. Got {settings!r}.')
    if out is not None:
        out, given = as_path("out", out), columns or {}
        must_be_free(out, flag("overwrite", overwrite), (data, *map(given.get, FILES)))
    folds, seed = whole("folds", folds, 2), whole("seed", seed)
    updates = None if updates is None else whole("updates", updates, 1)
    demonstrations = demonstrations_of(data, columns)
    how: dict[str, Any] = {"settings": settings, "updates": updates, "watch": watch}
    learners = dict.fromkeys([*algorithms, *classifiers_beside(demonstrations)])
    found = cross_validate([*learners], demonstrations, folds=folds, seed=seed, **how)
    verdict = Verdict.of_best(found, demonstrations.unit)
    comparison = Comparison(demonstrations, folds, found, scores_of_methods(found), verdict)
    if out is not None:
        write_text(out, json.dumps(comparison.as_json(), indent=2) + "\n")
    return comparison
