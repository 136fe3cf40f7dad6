"""The card of a policy: README.md of its folder, for those who must decide whether to use it.

The policy gives its content. Names from the data are escaped, so that no name can break a table or become HTML.
About the data it shows totals, shares of actions, means and spreads. It hides shares of actions that were taken fewer
than ten times, and means of columns of codes or of zeros and ones; other means have three digits. The weights must hold
the means in full. policy.json has the same shares as the card, and no other counts of actions.
"""

import html
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from sbil.demonstrations import Column
from sbil.mixtures import Blend
from sbil.networks import ConvNet
from sbil.policy.folder import DESCRIPTION, WEIGHTS
from sbil.policy.guard import LEVELS, Guard
from sbil.policy.guard_measures import in_words
from sbil.policy.policy import Policy
from sbil.text import counted, over
from sbil.trees import Trees

FEW = 10  # decisions; a smaller count could identify a person
MOST = 30  # rows of a table; policy.json has all
LONGEST, LONGEST_SENTENCE = 80, 2000  # characters of a name, and of what sbil says of its choice
MADE = ("algorithm", "preset", "seed", "updates", "sbil", "device")
KNOWN = {
    *(*MADE, "settings", "thin", "thin_offset", "standardised", "data"),
    *("selection", "baselines", "shares", "calibration"),
}


def card(
    policy: Policy, scores: Sequence[Mapping[str, Any]] | None = None, facts: Mapping[str, Any] | None = None
) -> str:
    """The card as Markdown.

    scores: one row per method on held-out decisions: {"method": name, heading: {"value", "low", "high"}, ...}.
    facts: the data behind the scores: {"held_out": {"episodes": count, "steps": count, "resampled": {"unit": what the
        intervals are over, "count": how many of them}}, "verdict": sentences}.
    """
    held_out = (facts or {}).get("held_out", {})
    parts = [
        f"# {_title(policy)}",
        _what(policy),
        "## Data",
        _data(policy),
        _columns(policy),
        _actions(policy),
        "## Settings",
        _settings(policy),
        "## How good it is",
        _scores(scores or (), held_out),
        escaped((facts or {}).get("verdict", ""), LONGEST_SENTENCE),
        "## How sure it is",
        _certainty(policy),
        "## Intended use and limits",
        _limits(policy),
        "## How to use it",
        _use(policy),
        "## Files",
        FILES,
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


LIMITS = """\
Meant for study, for second opinions that a person weighs, and for comparing practice with practice.

- It imitates recorded decisions, good and bad; it does not know their outcomes.
- It makes no causal claim: a probable action need not help.
- It must not decide alone if a wrong action does harm.
- It knows nothing about states unlike those it was trained on, but gives probabilities there too: look at what is
  outside the ranges, and at the flag for unfamiliar states.
- Other places, times and people may decide differently: score it on decisions of your own first."""

COPYING = """
- It sees the previous action. A policy that only repeats it agrees with most recorded decisions and has learned nothing
  about states: compare it with the previous action, above all where the action changes."""

FILES = f"""\
- `{DESCRIPTION}`: what the policy is, in full; `{WEIGHTS}`: its numbers. Loading them runs no code.
- `metrics.csv`, if it exists: the course of training.
- `README.md`: this card."""


def _title(policy: Policy) -> str:
    made = escaped(policy.provenance.get("algorithm", "unknown origin"))
    return f"Policy ({made}) for {escaped(policy.schema.action)}" if policy.schema else f"Policy ({made})"


def _what(policy: Policy) -> str:
    made, selection = policy.provenance, policy.provenance.get("selection")
    shape = " x ".join(map(str, policy.spec.observation_shape))
    images = isinstance(policy.network, ConvNet)
    sees = f"images of {shape} bytes" if images else counted(policy.spec.observation_shape[0], "number")
    actions = counted(len(policy.action_names), "action")
    lines = [
        f"{_decider(policy.network)} that sees {sees} and gives each of {actions} a probability.",
        _listed({key: made[key] for key in MADE if key in made}),
    ]
    if selection:
        before = f"chosen by cross-validation: {selection.get('chosen', '')}"  # what older policies record
        lines.append(f"How it was found: {escaped(selection.get('words', before), LONGEST_SENTENCE)}.")
        lines += [f"Warning: {escaped(warning, LONGEST_SENTENCE)}" for warning in [selection.get("warning")] if warning]
    return "\n\n".join(lines)


def _decider(network: Any) -> str:
    """What decides."""
    if isinstance(network, Blend):
        return f"A mixture of {counted(len(network.parts), 'method')}"
    return "A sum of decision trees" if isinstance(network, Trees) else "A network"


def _data(policy: Policy) -> str:
    data = policy.provenance.get("data")
    if not isinstance(data, Mapping):
        return "The policy does not record which decisions it was trained on."
    origin = data.get("provenance", {})
    facts = {
        "source": ", ".join(map(str, origin["source"])) if isinstance(origin.get("source"), list) else None,
        "episodes": data.get("trajectories"),
        "decisions": data.get("steps"),
        "decisions used": data.get("steps_used"),
        "SHA-256 of what was learned": data.get("sha256"),
        "SHA-256 of all that was read": data.get("sha256_of_all"),
        "SHA-256 of the source": origin.get("sha256"),
    }
    named = {"source", "sha256"}
    others = {key: value for key, value in origin.items() if key not in named and isinstance(value, str | int)}
    facts |= {str(key).replace("_", " "): value for key, value in others.items()}
    if policy.schema:
        roles = {
            role: getattr(policy.schema, role)
            for role in ("episode", "time", "terminal", "truncated", "weights", "group")
        }
        facts |= {f"column of {role}": name for role, name in roles.items()}
        facts["missing values"] = policy.schema.missing
        facts["balance"] = "every action counts the same in training" if policy.schema.balance else None
    return _listed({key: value for key, value in facts.items() if value is not None})


def _columns(policy: Policy) -> str:
    if not policy.observation_names:
        return ""
    names, schema = policy.observation_names, policy.schema
    kinds = [kind for one in schema.observed for kind in _kinds(one)] if schema else ["number"] * len(names)
    rows = []
    ranges = _ranges(policy.guard, kinds)
    for name, kind, known, *scaling in zip(names, kinds, ranges, *(policy.standardisation or ()), strict=True):
        told = ["-" if _counts(kind, *map(float, scaling)) else f"{number:.3g}" for number in scaling]
        rows.append([name, kind, *known, *told])
    heads, note = ["column", "kind", *(["range", "median"] if policy.guard else [])], "Columns are not changed."
    if policy.standardisation:
        heads = [*heads, "mean", "scale"]
        note = "Columns are standardised: (value - mean) / scale."
        if any(row[-1] == "-" for row in rows):
            note += " A dash (-) hides values of codes and of columns of zeros and ones, because these would be counts."
    return f"{note}{_inside(policy.guard)}\n\n{_table(heads, rows)}"


def _ranges(guard: Guard | None, kinds: Sequence[str]) -> list[list[str]]:
    """The range and the median of each column; codes have levels instead."""
    if guard is None:
        return [[] for _ in kinds]
    numbers = zip(kinds, guard.low, guard.high, guard.quantiles[:, len(LEVELS) // 2], strict=True)
    known = [[f"{low:.4g} to {high:.4g}", f"{middle:.3g}"] for _, low, high, middle in numbers]
    return [["-", "-"] if kind != "number" else pair for kind, pair in zip(kinds, known, strict=True)]


def _inside(guard: Guard | None) -> str:
    if guard is None:
        return ""
    return (
        f" At least {guard.inside:.1%} of the training states lie inside all ranges. An end of a range is no recorded "
        "value: it is drawn from what at least ten episodes (or states) reach, widened and rounded outward."
    )


def _counts(kind: str, mean: float = math.nan, scale: float = math.nan) -> bool:
    """Whether the mean of a column reveals how often a value occurred: codes, and numbers that are 0 or 1."""
    return kind != "number" or (0 < mean < 1 and math.isclose(scale**2, mean * (1 - mean), rel_tol=1e-2))


def _kinds(column: Column) -> list[str]:
    """What each number of a column is."""
    levels = ", ".join(f"{number} {level}" for number, level in enumerate(column.levels))
    own = f"category ({levels})" if column.kind == "category" else "range" if column.edges else column.kind
    codes = column.codes[len(column.names) - len(column.added) :]
    return [own] * (len(column.names) - len(codes)) + ["missing or not" if code else "number" for code in codes]


def _actions(policy: Policy) -> str:
    shares = _shares(policy)
    words = ["hidden" if share is None else f"{share:.0%}" for share in shares or ()]
    words = words or ["not recorded"] * len(policy.action_names)
    rows = [[str(number), *pair] for number, pair in enumerate(zip(policy.action_names, words, strict=True))]
    few = f"Hidden: fewer than {FEW} decisions, or a share that would reveal such a count."
    return _table(["number", "action", "share of decisions"], rows) + (f"\n\n{few}" if "hidden" in words else "")


def _shares(policy: Policy) -> list[float | None] | None:
    """Return how often each action was taken; older policies have counts."""
    baselines = policy.provenance.get("baselines")
    if not baselines:
        return policy.provenance.get("shares")
    return disclosed_shares(np.array(baselines["first"]) + np.array(baselines["following"]).sum(axis=0))


def disclosed_shares(counts: np.ndarray) -> list[float | None]:
    """Return the shares of actions that may be published: in hundredths, and None for small counts.

    If only one count is small, the next smallest is hidden too, because the two could be subtracted.
    """
    shares = [round(float(count / counts.sum()), 2) if count >= FEW else None for count in counts]
    if shares.count(None) == 1 and len(counts) > 1:
        shares[int(np.argsort(counts)[1])] = None
    return shares


def _settings(policy: Policy) -> str:
    made = policy.provenance
    kept = {key: made[key] for key in ("thin", "thin_offset") if key in made}
    more = {key: value for key, value in made.items() if key not in KNOWN}
    listed = {**made.get("settings", {}), **kept, **more}
    return "; ".join(f"{escaped(name)} {escaped(_plain(value))}" for name, value in listed.items()) or "None recorded."


def _scores(rows: Sequence[Mapping[str, Any]], held_out: Mapping[str, Any]) -> str:
    if not rows:
        return "It has not been scored on held-out data: nothing here says how good it is."
    metrics = [metric for metric in rows[0] if metric != "method"]
    lines = [[row["method"], *(_interval(row.get(metric)) for metric in metrics)] for row in rows]
    words = {"episodes": "episode", "steps": "decision"}
    counts = [counted(held_out[key], word) for key, word in words.items() if key in held_out]
    where = f" ({', '.join(counts)})" if counts else ""
    intervals = over(held_out.get("resampled", {}))
    intervals = f"in brackets the {intervals}" if intervals.startswith("95 %") else intervals
    return f"On decisions held out of training{where}; {intervals}.\n\n" + _table(["method", *metrics], lines)


def _interval(found: Mapping[str, float | None] | None) -> str:
    if not found or found["value"] is None:
        return "-"
    ends = found.get("low"), found.get("high")
    return f"{found['value']:.3f}" + (f" ({ends[0]:.3f} to {ends[1]:.3f})" if None not in ends else "")


def _certainty(policy: Policy) -> str:
    calibration = policy.provenance.get("calibration")
    source = f", fitted on {counted(calibration['decisions'], 'decision')} it was not trained on" if calibration else ""
    lines = [f"Probabilities are softmax(logits / temperature) with temperature {policy.temperature:.6g}{source}."]
    if not source:
        lines.append("They have not been calibrated.")
    if policy.energies is None:
        lines.append("The energies of the training states are not recorded.")
    else:
        low, middle, high = np.quantile(policy.energies, [0.05, 0.5, 0.95])
        lines.append(
            f"The energy of a state is low where training states were dense (meaningful for EDM). Of the training "
            f"states, 5 % lie below {low:.4g}, half below {middle:.4g}, 95 % below {high:.4g}: a state above is unlike "
            "nearly all training states."
        )
    if policy.guard and policy.guard.measure:
        lines.append(in_words(policy.guard.measure))
    return "\n".join(lines)


def _limits(policy: Policy) -> str:
    return LIMITS + COPYING if policy.schema and policy.schema.previous_action else LIMITS


def _use(policy: Policy) -> str:
    table = "sbil predict policy/ --data new.csv --out decisions.csv\n" if policy.schema else ""
    held_out = "held_out.csv" if policy.schema else "held_out.npz"
    kind = "uint8 images" if isinstance(policy.network, ConvNet) else "float32 rows, the columns above in their units"
    more = ", policy.percentile(x)" if policy.energies is not None else ""
    more += ", policy.outside_names(x)" if policy.guard else ""
    return f"""\
```sh
{table}sbil evaluate policy/ --data {held_out}
sbil export policy/ --onnx policy.onnx
```

```python
import sbil
policy = sbil.Policy.load("policy/")
# x: {kind}
policy.act(x), policy.probabilities(x), policy.energy(x){more}

import onnxruntime
session = onnxruntime.InferenceSession("policy.onnx")
logits, probabilities, energy = session.run(["logits", "probabilities", "energy"], {{"observation": x}})
```"""


def _listed(facts: Mapping[str, Any]) -> str:
    return "\n".join(f"- {escaped(name)}: {escaped(_plain(value))}" for name, value in facts.items())


def _table(heads: Iterable[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [list(heads), *rows[:MOST]]
    text = ["| " + " | ".join(map(escaped, line)) + " |" for line in lines]
    text.insert(1, "|" + "---|" * len(lines[0]))
    more = f"\n\n{len(rows) - MOST} more are in `{DESCRIPTION}`." if len(rows) > MOST else ""
    return "\n".join(text) + more


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {part}" for key, part in value.items())
    return f"{value:,}" if isinstance(value, int) and abs(value) >= 10_000 else str(value)


def escaped(value: object, longest: int = LONGEST) -> str:
    """Return text that Markdown shows unchanged: one line, no HTML, no links, no marks; very long text is cut."""
    text = " ".join("".join(letter if letter.isprintable() else " " for letter in str(value)).split())
    text = text if len(text) <= longest else f"{text[:longest]}…"
    text = re.sub(r"(^[-+](?=\s)|[\\`*\[\]|~$#@]|(?<!\w)_|_(?!\w)|(?<=\w):(?=//)|(?<=www)\.)", r"\\\1", text)
    return html.escape(text, quote=False)
