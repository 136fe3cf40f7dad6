"""The card of a policy holds all its facts and no row of the data; names in it can do no harm."""

import html
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import probes
import sbil
from sbil import demonstrators
from sbil.demonstrations import Column, Schema
from sbil.policy import Policy, Standardisation
from sbil.policy.card import card, disclosed_shares, escaped
from sbil.policy.guard import learned
from sbil.text import counted, over

SCHEMA = Schema(
    action="treatment",
    columns=(
        Column("pulse", unit="1/min"),
        Column("unit", "category", ("ward", "icu")),
        Column("sex", "one-hot", ("f", "m")),
    ),
    actions=("none", "fluids", "rare"),
    episode="stay",
    time="hour",
    group="patient",
    missing="mean",
)
PROVENANCE = {
    "algorithm": "edm",
    "preset": "released",
    "settings": {"learning_rate": 0.00123, "hidden": [48, 24]},
    "updates": 12_345,
    "seed": 417,
    "thin": 3,
    "thin_offset": 2,
    "standardised": True,
    "data": {
        "sha256": "ab" * 32,
        "trajectories": 321,
        "steps": 6543,
        "steps_used": 2181,
        "provenance": {"source": ["stays.csv"], "sha256": "cd" * 32},
    },
    "sbil": "0.7.1",
    "device": {"platform": "cpu", "jax": "0.10.2"},
    "shares": [0.65, 0.33, 0.02],
    "calibration": {"temperature": 1.375, "episodes": 40, "decisions": 789},
}
POLICY = Policy(
    probes.network(4, 5, 3),
    SCHEMA.observation_names,
    SCHEMA.actions,
    Standardisation(np.array([71.5, 0.25, 0.4, 0.6], np.float32), np.array([12.25, 0.5, 0.3, 0.2], np.float32)),
    PROVENANCE,
    temperature=1.375,
    energies=np.linspace(-3, 1, 1001).astype(np.float32),
    schema=SCHEMA,
)
MEASURED = {"value": 0.9125, "low": 0.8811, "high": 0.9433}
SCORES = [
    {"method": "majority", "accuracy": {"value": 0.5, "low": None, "high": None}, "log-loss": MEASURED},
    {"method": "edm", "accuracy": MEASURED, "log-loss": {"value": None, "low": None, "high": None}},
]
FACTS = {"held_out": {"episodes": 64, "steps": 1290, "resampled": {"unit": "group", "count": 32}}}


def shown(markdown: str) -> str:
    """What a reader of the page sees: escapes undone."""
    return html.unescape(re.sub(r"\\([\\`*\[\]|~$#@_:.+-])", r"\1", markdown))


def tables(markdown: str) -> list[list[str]]:
    """The lines of every table, split where a table would be."""
    lines = [line for line in markdown.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def test_ranges_are_on_the_card():
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.normal(80, 10, 500), rng.integers(0, 2, (500, 2)), rng.random(500) < 0.5])
    guard = learned(rows, np.arange(500), SCHEMA.codes)
    text = card(replace(POLICY, guard=guard))
    known = next(row for row in tables(text) if row[0].startswith("pulse"))
    assert known[2] == f"{guard.low[0]:.4g} to {guard.high[0]:.4g}"
    assert float(known[3]) == pytest.approx(80, abs=2)
    assert ["sex=f", "one-hot", "-", "-"] in [row[:4] for row in tables(text)]
    assert f"At least {guard.inside:.1%} of the training states lie inside all ranges" in text
    assert "decided by the range of each column; no other measure was tried" in text
    assert "range" not in tables(card(POLICY))[0]


def test_every_fact_of_the_policy_is_on_the_card():
    text = shown(card(POLICY, SCORES, FACTS))
    facts = [
        *("edm", "released", "417", "12,345", "0.7.1", "cpu", "0.10.2"),
        *("learning_rate 0.00123", "hidden 48, 24", "thin 3", "thin_offset 2"),
        *("stays.csv", "ab" * 32, "cd" * 32, "321", "6543", "2181"),
        *("treatment", "stay", "hour", "patient", "missing values: mean"),
        *("pulse [1/min]", "category (0 ward, 1 icu)", "sex=f", "sex=m", "71.5", "12.2"),
        *("none", "fluids", "rare", "1.375", "789", "half below -1"),
        *("64 episodes", "1,290 decisions", "majority", "0.912 (0.881 to 0.943)", "0.500", "log-loss"),
        "interval over 32 groups",
    ]  # fmt: skip
    assert [fact for fact in facts if fact not in text] == []


OLD = {"first": [200, 100, 21], "following": [[1000, 500, 20], [400, 200, 9], [30, 10, 0]]}  # what policies once had


@pytest.mark.parametrize("made", [PROVENANCE, {**PROVENANCE, "shares": None, "baselines": OLD}], ids=["now", "once"])
def test_shares_are_those_of_all_decisions(made):
    """1630 none, 810 fluids, 50 rare of 2490."""
    rows = tables(card(replace(POLICY, provenance=made)))
    assert ["0", "none", "65%"] in rows
    assert ["1", "fluids", "33%"] in rows
    assert ["2", "rare", "2%"] in rows


def test_no_count_below_ten_can_be_read_or_worked_out():
    assert disclosed_shares(np.array([60, 9, 31])) == [0.6, None, None]  # 31 %, and 9 would be what is left
    assert disclosed_shares(np.array([90, 0, 9])) == [0.91, None, None]
    assert disclosed_shares(np.array([1630, 810, 50])) == [0.65, 0.33, 0.02]
    assert disclosed_shares(np.array([7])) == [None]
    text = card(replace(POLICY, provenance={**PROVENANCE, "shares": [0.6, None, None]}))
    assert ["1", "fluids", "hidden"] in tables(text)
    assert "fewer than 10 decisions" in text
    assert "fewer than 10 decisions" not in card(POLICY)


def test_means_that_are_counts_are_not_told():
    """2 of 931 is 0.00214823: whoever knows 931 knows 2."""
    share = 2 / 931
    mean = np.array([share, 71.4999, 0.25, share], np.float32)
    scale = np.array([(share * (1 - share)) ** 0.5, 12.3456, 0.4, 1.0], np.float32)
    rows = tables(card(replace(POLICY, standardisation=Standardisation(mean, scale))))
    assert ["pulse \\[1/min\\]", "number", "-", "-"] in rows  # a number that is 0 or 1
    assert ["sex=f", "one-hot", "-", "-"] in rows
    plain = replace(POLICY, schema=None, standardisation=Standardisation(mean, scale))
    assert ["unit", "number", "71.5", "12.3"] in tables(card(plain))
    assert "these would be counts" in card(plain)


def test_what_intervals_are_over_is_said():
    assert over({"unit": "group", "count": 32}) == "95 % interval over 32 groups"
    assert over({"unit": "trajectory", "count": 2}) == "95 % interval over 2 trajectories"
    assert over({}) == "95 % interval over episodes"
    assert over({"unit": "group", "count": 1}) == "no interval, because there is only one group to resample"
    one = {"held_out": {"episodes": 1, "steps": 1, "resampled": {"unit": "episode", "count": 1}}}
    text = card(POLICY, SCORES, one)
    assert "(1 episode, 1 decision); no interval, because there is only one episode to resample." in text
    assert (counted(1, "step"), counted(2000, "step")) == ("1 step", "2,000 steps")


def test_a_policy_that_was_not_scored_says_so():
    for scores in (None, []):
        text = card(POLICY, scores, {"training": {"accuracy": 1.0}})
        assert "has not been scored on held-out data" in text
        assert "interval" not in text
    assert "has not been scored" not in card(POLICY, SCORES, FACTS)


def test_what_is_not_known_is_said_and_not_left_open():
    text = card(Policy(probes.network(2, 3), ("a", "b"), ("x", "y", "z")))
    for sentence in ("does not record which decisions", "not changed", "not recorded", "not been calibrated"):
        assert sentence in text
    assert not re.search(r"None\b(?! recorded)|nan|\{|TODO|More Information", text.split("```")[0])


@pytest.mark.parametrize("name", demonstrators.names())
def test_shipped_policies_have_cards(name):
    policy = demonstrators.get(name)
    text = shown(card(policy))
    assert policy.provenance["algorithm"] in text
    assert all(action in text for action in policy.action_names)


def test_a_card_is_short():
    """Two pages of some 60 lines, even of a hundred columns and actions."""
    names = tuple(f"column {number}" for number in range(100))
    wide = Policy(
        probes.network(100, 80), names, tuple(f"action {number}" for number in range(80)), provenance=PROVENANCE
    )
    wide = replace(wide, provenance={**PROVENANCE, "shares": None})
    assert "70 more are in `policy.json`" in card(wide)
    assert "50 more are in `policy.json`" in card(wide)
    assert len(card(POLICY, SCORES, FACTS).splitlines()) < 110


def test_nothing_of_the_rows_is_on_the_card():
    """Every recorded number is odd enough to be found if it were there."""
    data = probes.demonstrations()
    policy = sbil.fit("bc", data, updates=1, hidden=(4,), standardise=True)
    text = card(policy)
    states = np.concatenate([trajectory.observations for trajectory in data.trajectories]).ravel()
    assert len(states) > 100
    assert not [value for value in states if f"{value:.4g}" in text or f"{value:.6g}" in text]


# Hostile names


HOSTILE = [
    "a|b", "a\\|b", "`rm`", "```", "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "<!-- ", "&lt;b&gt;",
    "a\n\n# Title\n\n| x |", "a\r\nb\u2028c\u0085d", "[x](javascript:1)", "![x](http://x/y.png)",
    "https://x.org www.x.org", "*bold* _it_ ~~no~~", "\\", "a\\", "\u202ereversed", "\x00\x1b[31m", "- x", "# x",
    "@name", "$x$",
]  # fmt: skip


def hostile(name):
    columns = (Column(name, unit=name), Column("b", "category", (name, "other")), Column("c", "one-hot", ("f", name)))
    schema = Schema(name + "!", columns, (name, "other", "third"), episode="stay", group="patient")
    made = {**PROVENANCE, "algorithm": name, "settings": {name: name}, name: name}
    made["data"] = {**PROVENANCE["data"], "provenance": {"source": [name], name: name}}
    return replace(
        POLICY, schema=schema, observation_names=schema.observation_names, action_names=schema.actions, provenance=made
    )


def structure(markdown):
    """What the page is made of: the first letters of every line, and how many cells it has."""
    cells = [len(tables(line)[0]) if line.startswith("|") else 0 for line in markdown.splitlines()]
    return [(re.match(r"[#\-`|]*", line)[0], count) for line, count in zip(markdown.splitlines(), cells, strict=True)]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_change_nothing_but_the_words(name):
    text = card(hostile(name), [{**SCORES[1], "method": name}], FACTS)
    plain = card(hostile("plain"), [{**SCORES[1], "method": "plain"}], FACTS)
    assert structure(text) == structure(plain)
    outside = "".join(text.split("```")[::2])
    assert "<" not in outside
    assert ">" not in outside
    assert not re.search(r"(?<!\\)[\[\]$@]|(?<!\\)://|\w://", outside)


@given(st.text(st.characters(exclude_categories=()), max_size=60))
@example("a\\|b")
@example("\\\\|")
@example("&amp;")
def test_any_text_is_shown_as_it_is_on_one_line(text):
    made = escaped(text)
    assert len(made.splitlines()) <= 1
    assert not re.search(r"(?<!\\)(?:\\\\)*(?:(?<=\\\\)|(?<!\\))[|`<>]", made)
    assert shown(made) == " ".join("".join(c if c.isprintable() else " " for c in text).split())


def test_long_names_are_cut():
    assert len(escaped("x" * 10_000)) < 100
