"""The names of methods in print, in the order of tables."""

from sbil.algorithms import ALGORITHMS

NAMES = {
    "bc": "BC",
    "bc:decay": "BC, weight decay 1",
    "bc+weight_decay=0/0.1/0.3/1/3/10": "BC, weight decay chosen",
    "rcal": "RCAL",
    "rcal+coefficient=1": "RCAL, coefficient 1",
    "rcal+coefficient=0/0.01/0.1/1": "RCAL, coefficient chosen",
    "rcal:iq_learn": "RCAL, squared (IQ-Learn)",
    "dsfn": "DSFN",
    "tril": "TRIL (warm start of DSFN)",
    "value_dice": "ValueDICE",
    "value_dice:long": "ValueDICE, 500,000 updates",
    "value_dice+actor_learning_rate=1e-4": "ValueDICE, actor 1e-4",
    "value_dice+actor_learning_rate=1e-3": "ValueDICE, actor 1e-3",
    "value_dice+actor_learning_rate=1e-4+gradient_penalty=1": "ValueDICE, actor 1e-4, penalty 1",
    "value_dice+straight_through=true": "ValueDICE, straight-through",
    "value_dice_exact": "ValueDICE, exact",
    "value_dice_exact+actor_learning_rate=1e-3": "ValueDICE, exact, actor 1e-3",
    "edm": "EDM (our default)",
    "edm:released": "EDM, released code",
    "edm:paper": "EDM, as printed",
    "edm:paper+start=unit": "EDM, as printed, chains from (-1, 1)",
    "edm+weight=0.1/1+weight_decay=0/1": "EDM, weight and decay chosen",
    "edm_robust": "EDM, robust",
    "edm_exact": "EDM, exact",
    "edm_metropolis": "EDM, Metropolis chains",
    "majority": "majority action",
    "random": "random network",
}
MAIN = ("bc", "bc:decay", "rcal", "dsfn", "value_dice", "edm", "edm:released", "edm:paper")  # figures show these first
_PLACES = {method: place for place, method in enumerate(NAMES)}


def name_of(method: str) -> str:
    """A method in words: the name above, the title in its algorithm's ENTRY, or its own text."""
    algorithm, _, preset = method.partition(":")
    if method in NAMES or algorithm not in ALGORITHMS:
        return NAMES.get(method, method)
    return ALGORITHMS[algorithm].title(preset or "default")


def place_of(method: str) -> tuple[int, str]:
    """Return the key that sorts methods: their place in tables; methods without a name come last."""
    return _PLACES.get(method, len(_PLACES)), method
