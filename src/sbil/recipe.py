"""How one policy is trained, apart from the data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

from sbil import algorithms
from sbil.demonstrations.roles import Columns
from sbil.errors import UserError, flag, unknown, whole
from sbil.portfolio import AUTO, chooses_itself, portfolio, require_known
from sbil.selection import Candidate, Criterion


@dataclass
class Recipe:
    """What `fit` is asked for; it explains the fields. What is wrong with them is refused.

    candidates: what to choose from; a single one is taken as it is.
    """

    algorithm: str  # or "auto": the candidates are of several algorithms
    preset: str = "default"
    config: Any = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    criterion: Criterion | None = None
    updates: int | None = None
    seed: int = 0
    thin: int = 1
    thin_offset: int = 0
    standardise: bool | None = None
    candidates: Sequence[Candidate] = field(init=False)

    def __post_init__(self) -> None:
        self.seed, self.thin = whole("seed", self.seed), whole("thin", self.thin, 1)
        self.thin_offset = whole("thin_offset", self.thin_offset)
        if self.standardise is not None:
            flag("standardise", self.standardise)
        if self.updates is not None:
            self.updates = whole("updates", self.updates, 1)
        if self.criterion not in (None, *get_args(Criterion)):
            raise unknown("criterion", self.criterion, get_args(Criterion))
        self.candidates = self._candidates()
        if self.criterion and len(self.candidates) == 1:
            raise UserError("criterion decides among several candidates; give a list of values for a setting as well.")
        self.criterion = self.criterion or ("auto" if self.algorithm == AUTO else "log_loss")

    def _candidates(self) -> list[Candidate]:
        given: Any = self.algorithm
        if not isinstance(given, str):
            kind = type(given).__name__
            raise UserError(f'unknown algorithm; it comes first and is a name, such as "bc". Got {kind}.')
        require_known(self.algorithm)
        if self.algorithm == AUTO:
            given = [f"the setting '{name}'" for name in self.settings]
            given += ["a config"] * (self.config is not None)
            given += [f"the preset '{self.preset}'"] * (self.preset != "default")
            if given:
                raise chooses_itself(given[0])
            return portfolio(updates=self.updates)
        configs = _configs(self.algorithm, self.preset, self.config, self.settings)
        updates = algorithms.updates_for(self.algorithm, self.preset, configs.values(), self.updates)
        return [Candidate(self.algorithm, config, updates, name) for name, config in configs.items()]


def _configs(algorithm: str, preset: str, config: Any, settings: Mapping[str, Any]) -> Mapping[str, Any]:
    kind = algorithms.get(algorithm).config
    for name in settings:
        if name in Columns.__annotations__ and name not in kind.__annotations__:
            raise UserError(f"{name} says what a column means; give it in columns={{'{name}': ...}}.")
    if config is None:
        chosen = algorithms.candidates(algorithm, preset, settings)
        return {name: algorithms.plain(one) for name, one in chosen.items()}
    if type(config) is not kind:
        raise UserError(f"the config of {algorithm} must be of the class {kind.__name__}. Got {type(config).__name__}.")
    if settings:
        raise UserError(f"both config and the setting '{next(iter(settings))}' are given; change the config instead.")
    if preset != "default":
        raise UserError(f"both config and the preset '{preset}' are given; give one of them.")
    return {"": algorithms.plain(config)}
