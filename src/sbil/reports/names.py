"""The names of methods in print, in the order of tables."""

from sbil.algorithms import ALGORITHMS

_REGULARISED = tuple(name for name in ALGORITHMS["bc_regularised"].presets if name != "default")
# The order of tables: one line per family.
ORDER = (
    *("bc", "bc:decay", "bc+weight_decay=0/0.1/0.3/1/3/10"),
    *("bc_early_stopping", "bc_ensemble", "bc_ensemble:ten"),
    *(f"bc_regularised:{control}" for control in _REGULARISED),
    *("rcal", "rcal+coefficient=1", "rcal+coefficient=0/0.01/0.1/1", "rcal:iq_learn"),
    *("iq_learn", "iq_learn:released", "iq_learn:plain", "avril", "avril:released"),
    *("ckil", "ckil:all", "corrective", "corrective:every"),
    *("dsfn", "tril"),
    *("value_dice", "value_dice:long", "value_dice+actor_learning_rate=1e-4", "value_dice+actor_learning_rate=1e-3"),
    *("value_dice+actor_learning_rate=1e-4+gradient_penalty=1", "value_dice+straight_through=true"),
    *("value_dice_exact", "value_dice_exact+actor_learning_rate=1e-3"),
    *("edm", "edm:released", "edm:paper", "edm:paper+start=unit", "edm+weight=0.1/1+weight_decay=0/1"),
    *("edm_robust", "edm_imagined", "edm_imagined:rollouts", "edm_exact", "edm_metropolis"),
    *("majority", "random"),
)
WITH_SETTINGS = {
    "bc+weight_decay=0/0.1/0.3/1/3/10": "BC, weight decay chosen",
    "rcal+coefficient=1": "RCAL, coefficient 1",
    "rcal+coefficient=0/0.01/0.1/1": "RCAL, coefficient chosen",
    "value_dice+actor_learning_rate=1e-4": "ValueDICE, actor 1e-4",
    "value_dice+actor_learning_rate=1e-3": "ValueDICE, actor 1e-3",
    "value_dice+actor_learning_rate=1e-4+gradient_penalty=1": "ValueDICE, actor 1e-4, penalty 1",
    "value_dice+straight_through=true": "ValueDICE, straight-through",
    "value_dice_exact+actor_learning_rate=1e-3": "ValueDICE, exact, actor 1e-3",
    "edm:paper+start=unit": "EDM, as printed, chains from (-1, 1)",
    "edm+weight=0.1/1+weight_decay=0/1": "EDM, weight and decay chosen",
}
MAIN = ("bc", "bc:decay", "rcal", "dsfn", "value_dice", "edm", "edm:released", "edm:paper")  # figures show these first


def name_of(method: str) -> str:
    """A method in words: its name above, or the title in its algorithm's ENTRY, or else its own text."""
    algorithm, _, preset = method.partition(":")
    if "+" in method or algorithm not in ALGORITHMS:
        return WITH_SETTINGS.get(method, method)
    return ALGORITHMS[algorithm].title(preset or "default")


NAMES = {method: name_of(method) for method in ORDER}
_PLACES = {method: place for place, method in enumerate(ORDER)}


def place_of(method: str) -> tuple[int, str]:
    """Return the key that sorts methods: their place in tables; methods without a name come last."""
    return _PLACES.get(method, len(_PLACES)), method
