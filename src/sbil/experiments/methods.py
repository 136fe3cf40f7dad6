"""Methods: what a cell trains or counts, written as in "edm:released+noise=0.1"."""

from dataclasses import dataclass
from typing import Any

from sbil import algorithms


@dataclass(frozen=True)
class Method:
    """An algorithm, one of its presets, and settings changed by hand; or the name of a baseline of the task.

    Where the values of a setting are separated by slashes, each run chooses one of them on held-out demonstrations
    (see `sbil.selection`).
    """

    algorithm: str
    preset: str = "default"
    settings: tuple[str, ...] = ()

    def __str__(self) -> str:
        name = self.algorithm if self.preset == "default" else f"{self.algorithm}:{self.preset}"
        return "+".join((name, *self.settings))

    @classmethod
    def parse(cls, text: str) -> "Method":
        """From "edm", "edm:released", "edm:released+noise=0.1" or "bc+weight_decay=0/0.1/1"."""
        name, *settings = text.strip().split("+")
        algorithm, _, preset = name.partition(":")
        return cls(algorithm, preset or "default", tuple(settings))

    @property
    def candidates(self) -> dict[str, Any]:
        """The Configs that the settings allow, by name; if there are several, every run chooses among them."""
        settings = algorithms.parse_words(self.algorithm, self.settings)
        return algorithms.candidates(self.algorithm, self.preset, settings)

    def updates(self, asked: int | None) -> int:
        """Return the number of updates: the one asked for, or the preset's own."""
        return algorithms.updates_for(self.algorithm, self.preset, self.candidates.values(), asked)
