"""Types of an algorithm and of its settings."""

import dataclasses
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple, TypeVar, dataclass_transform, get_args, get_origin, get_type_hints

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from sbil.dataset import Dataset, Spec
from sbil.errors import UserError, unknown

T = TypeVar("T")
Metrics = dict[str, Array]
Needs = Literal["pairs", "numeric pairs", "one-hot pairs", "triples", "trajectories", "quadruples"]


def _logits(state: Any, observations: Array) -> Array:
    return state.network(observations)


class Algorithm(NamedTuple):
    """Three pure functions: transform them with jit, vmap, scan as you like.

    A state is what an algorithm carries from update to update; its `network` is the part that acts and is saved.

    init:   (key, dataset) -> state
    update: (key, state, dataset) -> (state, metrics)
    logits: (state, observations) -> one logit per action, by default those of the state's network
    batch:  the largest number of rows that an update gives to a network at once; memory is planned with it
    limits: the largest size of some metrics; a run that exceeds one counts as diverged
    on_host: whether `init` learns everything outside of JAX. Training then calls it run by run and compiles no program
        for it
    """

    init: Callable[[PRNGKeyArray, Dataset], Any]
    update: Callable[[PRNGKeyArray, Any, Dataset], tuple[Any, Metrics]]
    logits: Callable[[Any, Float[Array, "*batch observation"]], Float[Array, "*batch actions"]] = _logits
    batch: int = 64
    limits: Mapping[str, float] = {}
    on_host: bool = False


class Entry(NamedTuple):
    """What the package knows about an algorithm. The algorithm's file holds it as ENTRY, and the package finds it."""

    make: Callable[[Spec, Any], Algorithm]  # its name is that of the algorithm
    presets: Mapping[str, Any]  # a Config by name; "default" is one of them
    needs: Needs
    reference: str
    titles: Mapping[str, str] = {}  # names of presets in tables and figures; a preset without one has its own name
    updates: Mapping[str, int] = {"default": 10_000}  # updates of a preset; a preset without a number has the default's
    rounds: Callable[[Any], int] | None = None  # if one update is one round: the number of rounds that a Config allows
    uses_states: bool = False  # whether it learns from states without a decision
    trains_energy: bool = False  # whether it makes the energy low where training states are dense
    chunk: int = 500  # updates between two reports
    extra: str = ""  # the extra of sbil that it needs; its name is that of the package which it brings
    weighs: bool = False  # whether it can let some decisions count more than others
    seeded: bool = True  # whether the seed changes what is learned

    @property
    def name(self) -> str:
        """What the algorithm is called in commands and files."""
        return self.make.__name__

    @property
    def config(self) -> type[Any]:
        """The class of its settings."""
        return type(self.presets["default"])

    def budget(self, preset: str, configs: Iterable[Any] = ()) -> int:
        """Return how many updates a preset asks for, or how many rounds the Config allows."""
        if self.rounds:
            return max(self.rounds(config) for config in configs or [self.presets[preset]])
        return self.updates.get(preset, self.updates["default"])

    def title(self, preset: str = "default") -> str:
        """Return the name of a preset in tables and figures."""
        default = self.titles.get("default", self.name)
        return self.titles.get(preset, default if preset == "default" else f"{default}, {preset}")


def choose(condition: Array, one: T, other: T) -> T:
    """Return one of two states of the same form; the condition may be traced."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), one, other)


def setting(
    default: Any,
    meaning: str,
    symbol: str = "",
    low: float = 0,
    high: float = math.inf,
    open_low: bool = False,
    switch: bool = False,
) -> Any:
    """Return a field of a Config: its default, its meaning, its symbol in the paper and its allowed range.

    switch: the default of this float leaves a part of the algorithm out (`is_on`), and nothing of it is compiled.
    """
    limits = {"low": low, "high": high, "open_low": open_low}
    return dataclasses.field(
        default=default, metadata={"meaning": meaning, "symbol": symbol, **limits, "switch": switch}
    )


@dataclass_transform(frozen_default=True, kw_only_default=True)
def config(cls: type[T]) -> type[T]:
    """Make a class of settings a frozen dataclass and a pytree: floats are leaves, so a sweep is a vmap.

    A switch that is not on is no leaf.
    """
    cls.__post_init__ = check  # type: ignore[attr-defined]
    cls = dataclasses.dataclass(frozen=True, kw_only=True)(cls)
    hints = get_type_hints(cls)
    floats = [name for name, hint in hints.items() if hint is float]
    others = [name for name in hints if name not in floats]
    if not any(field.metadata["switch"] for field in dataclasses.fields(cls)):  # type: ignore[arg-type]
        return jax.tree_util.register_dataclass(cls, data_fields=floats, meta_fields=others)

    def flatten(config: T) -> tuple[list[Any], tuple[tuple[str, ...], tuple[tuple[str, Any], ...]]]:
        leaves = tuple(name for name in floats if is_on(config, name))
        static = tuple((name, getattr(config, name)) for name in hints if name not in leaves)
        return [getattr(config, name) for name in leaves], (leaves, static)

    def restore(names: tuple[tuple[str, ...], tuple[tuple[str, Any], ...]], leaves: Iterable[Any]) -> T:
        return cls(**dict(zip(names[0], leaves, strict=True)), **dict(names[1]))

    jax.tree_util.register_pytree_node(cls, flatten, restore)
    return cls


def is_on(config: Any, name: str) -> bool:
    """Whether a float of a Config is in use: all are, except a switch that is one number and has its default."""
    field, value = type(config).__dataclass_fields__[name], getattr(config, name)
    return not (field.metadata["switch"] and isinstance(value, int | float) and value == field.default)


def check(config: Any) -> None:
    """Refuse a setting outside its range. Traced values and arrays are not checked."""
    hints = get_type_hints(type(config))
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        good, wanted = _judged(value, hints[field.name], field.metadata)
        if not good:
            raise UserError(
                f"The '{field.name}' parameter of {_title(config)} must be {wanted}. Got {value!r} instead."
            )


def _judged(value: Any, hint: Any, limits: Any) -> tuple[bool, str]:
    """Return (whether the value of a setting is correct, what it must be)."""
    kind = get_origin(hint) or hint
    if kind is Literal:
        return value in get_args(hint), f"one of {', '.join(map(repr, get_args(hint)))}"
    if kind is bool:
        return isinstance(value, bool), "True or False"
    if kind is tuple:
        sizes = isinstance(value, tuple) and all(type(size) is int and size > 0 for size in value)
        some = "one or more " if limits["low"] > 0 else ""
        wanted = f"a tuple of {some}whole numbers from 1, such as (32, 32), and a list of tuples for a choice"
        return sizes and len(value) >= limits["low"], wanted
    if kind is int:
        return type(value) is int and _within(value, limits), f"a whole number in the range {_range(limits)}"
    return _judged_number(value, limits)


def _judged_number(value: Any, limits: Any) -> tuple[bool, str]:
    """`_judged` for a number."""
    if not isinstance(value, int | float | str | list | tuple | dict | set):
        return True, ""  # an array, a tracer, or a placeholder of a tree transformation
    good = isinstance(value, int | float) and not isinstance(value, bool) and _within(value, limits)
    choice = f", or a list for a choice, {list(value)}" if isinstance(value, tuple) else ""
    return good, f"a number in the range {_range(limits)}{choice}"


def _within(value: float, limits: Any) -> bool:
    above = value > limits["low"] if limits["open_low"] else value >= limits["low"]
    return above and value <= limits["high"] and math.isfinite(value)


def _range(limits: Any) -> str:
    opening, closing = "(" if limits["open_low"] else "[", ")" if limits["high"] == math.inf else "]"
    return f"{opening}{limits['low']:g}, {limits['high']:g}{closing}"


def _title(config: Any) -> str:
    """Return the name of an algorithm for errors: BC for BCConfig."""
    return (config if isinstance(config, type) else type(config)).__name__.removesuffix("Config")


def change(config: T, settings: Mapping[str, Any]) -> T:
    """Return `config` with other values for some settings. NumPy numbers become Python numbers."""
    hints = get_type_hints(type(config))
    for name in settings:
        if name not in hints:
            raise unknown(f"setting of {_title(config)}", name, hints)
    plain = {name: _plain(value, hints[name]) for name, value in settings.items()}
    return dataclasses.replace(config, **plain)  # type: ignore[type-var]


def _plain(value: Any, hint: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    return float(value) if hint is float and type(value) is int else value


def plain(config: T) -> T:
    """Return the Config of one run: its numbers as Python numbers. Refuse any other value, such as one per run."""
    numbers: dict[str, Any] = {}
    for name in (name for name, hint in get_type_hints(type(config)).items() if hint is float):
        value = getattr(config, name)
        if isinstance(value, np.generic | np.ndarray | jax.Array) and value.ndim == 0 and value.dtype.kind in "fiu":
            numbers[name] = value.item()
        elif not isinstance(value, int | float):
            one = "one number, or a list of numbers for a choice"
            raise UserError(f"The '{name}' parameter of {_title(config)} must be {one}. Got {value!r} instead.")
    return dataclasses.replace(config, **numbers)  # type: ignore[type-var]


def parse(config: type[Any], words: Iterable[str]) -> dict[str, Any]:
    """Return settings from words such as weight_decay=1 and hidden=64x64; values between slashes become a list."""
    hints = get_type_hints(config)
    settings: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals:
            raise UserError(f"setting '{word}': write name=value, for instance weight_decay=1.")
        if name not in hints:
            raise unknown(f"setting of {_title(config)}", name, hints)
        if name in settings:
            raise UserError(f"setting '{name}' is given more than once; give it once.")
        values = [_value(part, hints[name]) for part in text.split("/")]
        settings[name] = values if len(values) > 1 else values[0]
    return settings


def _value(text: str, hint: Any) -> Any:
    """Return the value that a text means. Text without such a meaning is kept, and `check` refuses it."""
    try:
        if hint in (int, float):
            return hint(text)
        if get_origin(hint) is tuple:
            return () if text == "none" else tuple(int(part) for part in re.split("[,x]", text))
    except ValueError:
        return text
    return {"true": True, "false": False}.get(text.lower(), text) if hint is bool else text


def written(value: Any) -> str:
    """Return a value as the text that is read back as it: 0.1, 1, 64x64, none (no layers), true."""
    if isinstance(value, tuple):
        return "x".join(map(str, value)) or "none"
    return str(value).lower() if isinstance(value, bool) else str(value).removesuffix(".0")


def settings_of(config: Any) -> dict[str, Any]:
    """Return the settings as plain values, for files and tables."""
    return {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}


def adam(config: Any) -> optax.GradientTransformation:
    """Adam with decoupled weight decay; both numbers may be traced."""
    return optax.adamw(config.learning_rate, weight_decay=config.weight_decay)


def cross_entropy(logits: Float[Array, "batch actions"], action: Array) -> Float[Array, " batch"]:
    """-log pi(a|s) for pi = softmax f(s)."""
    return optax.softmax_cross_entropy_with_integer_labels(logits, action)
