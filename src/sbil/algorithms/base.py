"""What an algorithm is, and what its settings look like."""

import dataclasses
import math
import re
from collections.abc import Callable, Iterable
from typing import (
    Any,
    Literal,
    NamedTuple,
    TypeVar,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

import jax
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from sbil.dataset import Dataset, Spec
from sbil.errors import UserError, unknown

T = TypeVar("T")
Metrics = dict[str, Array]
Needs = Literal["pairs", "one-hot pairs", "triples", "trajectories"]


class Algorithm(NamedTuple):
    """Three pure functions: transform them with jit, vmap, scan as you like.

    A state is what an algorithm carries from update to update; its `network` is the part that acts and is saved.

    init:   (key, dataset) -> state
    update: (key, state, dataset) -> (state, metrics)
    logits: (state, observations) -> one logit an action
    """

    init: Callable[[PRNGKeyArray, Dataset], Any]
    update: Callable[[PRNGKeyArray, Any, Dataset], tuple[Any, Metrics]]
    logits: Callable[[Any, Float[Array, "*batch observation"]], Float[Array, "*batch actions"]]


class Entry(NamedTuple):
    """An algorithm in the list of names."""

    make: Callable[[Spec, Any], Algorithm]
    config: type[Any]
    presets: dict[str, Any]
    needs: Needs
    reference: str
    updates: dict[str, int] = {"default": 10_000}  # noqa: RUF012 - how many a preset asks for
    uses_states: bool = False  # whether state-only observations help it
    chunk: int = 500  # updates between two reports

    def budget(self, preset: str, configs: Iterable[Any] = ()) -> int:
        """How many updates a preset asks for; what works in rounds makes as many as its settings say."""
        rounds = [config.rounds for config in configs if hasattr(config, "rounds")]
        return max(rounds, default=self.updates.get(preset, self.updates["default"]))


def setting(
    default: Any,
    meaning: str,
    symbol: str = "",
    low: float = 0,
    high: float = math.inf,
    open_low: bool = False,
) -> Any:
    """A field of a Config: its default, its meaning, its symbol in the paper and the range it must lie in."""
    metadata = {"meaning": meaning, "symbol": symbol, "low": low, "high": high, "open_low": open_low}
    return dataclasses.field(default=default, metadata=metadata)


@dataclass_transform(frozen_default=True, kw_only_default=True)
def config(cls: type[T]) -> type[T]:
    """Make a class of settings a frozen dataclass and a pytree: floats are leaves, so a sweep is a vmap."""
    cls.__post_init__ = check  # type: ignore[attr-defined]
    cls = dataclasses.dataclass(frozen=True, kw_only=True)(cls)
    hints = get_type_hints(cls)
    floats = [name for name, hint in hints.items() if hint is float]
    others = [name for name in hints if name not in floats]
    return jax.tree_util.register_dataclass(cls, data_fields=floats, meta_fields=others)


def check(config: Any) -> None:
    """Refuse a setting outside its range, naming it; traced values and arrays are taken as they are."""
    hints = get_type_hints(type(config))
    for field in dataclasses.fields(config):
        value, hint = getattr(config, field.name), hints[field.name]
        problem = _problem(value, hint, field.metadata)
        if problem:
            name = type(config).__name__.removesuffix("Config")
            raise UserError(f"The '{field.name}' parameter of {name} must be {problem}. Got {value!r} instead.")


def _problem(value: Any, hint: Any, limits: Any) -> str:
    if get_origin(hint) is Literal:
        return "" if value in get_args(hint) else f"one of {', '.join(map(repr, get_args(hint)))}"
    if hint is bool:
        return "" if isinstance(value, bool) else "True or False"
    if get_origin(hint) is tuple:
        good = isinstance(value, tuple) and all(type(v) is int and v > 0 for v in value) and len(value) >= limits["low"]
        return "" if good else f"a tuple of {'one or more ' * (limits['low'] > 0)}whole numbers from 1"
    if hint is float and not isinstance(value, (int, float, str, bool, list, tuple, dict)):
        return ""  # an array, a tracer, or a placeholder of a tree transformation
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if hint is int:
        number = isinstance(value, int) and not isinstance(value, bool)
    low, high = limits["low"], limits["high"]
    above = number and (value > low if limits["open_low"] else value >= low)
    if number and above and value <= high and math.isfinite(value):
        return ""
    kind = "a whole number" if hint is int else "a number"
    opening, closing = "(" if limits["open_low"] else "[", ")" if high == math.inf else "]"
    return f"{kind} in the range {opening}{low:g}, {high:g}{closing}"


def parse_settings(config: Any, words: tuple[str, ...]) -> Any:
    """`config` with the settings written as name=value, as on the command line."""
    hints = get_type_hints(type(config))
    changes: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals:
            raise UserError(f"--set {word}: write name=value, for instance --set weight_decay=1.")
        if name not in hints:
            raise unknown(f"setting of {type(config).__name__.removesuffix('Config')}", name, hints)
        changes[name] = _parse(text, hints[name])
    return dataclasses.replace(config, **changes)


def _parse(text: str, hint: Any) -> Any:
    try:
        if hint in (int, float):
            return hint(text)
        if get_origin(hint) is tuple:
            return tuple(int(part) for part in re.split("[,x]", text))
    except ValueError:
        return text  # `check` names the setting and what it must be
    if hint is bool:
        return {"true": True, "false": False}.get(text.lower(), text)
    return text


def settings_of(config: Any) -> dict[str, Any]:
    """The settings as plain values, for files and tables."""
    return {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}


def adam(config: Any) -> optax.GradientTransformation:
    """Adam with decoupled weight decay; both numbers may be traced."""
    return optax.adamw(config.learning_rate, weight_decay=config.weight_decay)


def cross_entropy(logits: Float[Array, "batch actions"], action: Array) -> Float[Array, " batch"]:
    """-log pi(a|s) for pi = softmax f(s)."""
    return optax.softmax_cross_entropy_with_integer_labels(logits, action)
