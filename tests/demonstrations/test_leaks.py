"""Columns that give the action away are found; tables without such columns give no alarm."""

import numpy as np
import polars as pl
import pytest

from sbil.demonstrations import check
from sbil.demonstrations.sample import MOST, Sample, Sampled
from sbil.demonstrations.table import Batch

STAYS, HOURS = 60, 15
ROWS = STAYS * HOURS
ROLES = {"episode": "stay", "time": "hour", "action": "treat"}


def table(seed=0, **changes):
    """60 stays of 15 hours. The treatment follows the pulse, the last treatment and chance."""
    rng = np.random.default_rng(seed)
    stay, hour = np.repeat(np.arange(STAYS), HOURS), np.tile(np.arange(HOURS), STAYS)
    pulse, treat = np.zeros(ROWS), np.zeros(ROWS, int)
    for row in range(ROWS):
        before = (80.0, 0) if hour[row] == 0 else (pulse[row - 1], treat[row - 1])
        pulse[row] = np.round(80 + 0.8 * (before[0] - 80) - 4 * before[1] + rng.normal(0, 9), 1)
        treat[row] = rng.random() < 1 / (1 + np.exp(-(pulse[row] - 82) / 4 - 2 * before[1]))
    columns = {"stay": stay, "hour": hour, "pulse": pulse, "temperature": np.round(rng.normal(37, 0.6, ROWS), 1)}
    age = rng.integers(18, 95, STAYS)[stay]
    return pl.DataFrame({**columns, "age": age, "treat": np.array(["none", "fluid"])[treat], **changes})


BASE = table()
TAKEN = (BASE["treat"] == "fluid").to_numpy().astype(int)
PULSE, STAY, HOUR = (BASE[name].to_numpy() for name in ("pulse", "stay", "hour"))
LAST, FIRST = HOUR == HOURS - 1, HOUR == 0
RNG = np.random.default_rng(7)
THREE = RNG.integers(0, 3, ROWS)


def shifted(values, by, fill):
    """The values of the row `by` rows later in the stay."""
    moved = np.roll(values, -by).astype(float)
    gone = LAST if by > 0 else FIRST
    moved[gone] = values[gone] if fill is None else fill
    return moved


def summed(values):
    """The running sum within each stay."""
    return np.cumsum(values.reshape(STAYS, HOURS), axis=1).ravel()


def noisy(share):
    return np.where(np.random.default_rng(1).random(ROWS) < share, 1 - TAKEN, TAKEN)


# name -> (columns, how severe)
LEAKS = {
    "a copy": ({"x": TAKEN}, "harms"),
    "a copy with noise": ({"x": TAKEN + RNG.normal(0, 0.12, ROWS)}, "harms"),
    "a copy with errors": ({"x": noisy(0.005)}, "harms"),
    "a scaled copy": ({"x": 100 - 7.5 * TAKEN}, "harms"),
    "one-hot": ({"x": THREE == 1, "treat": np.array(["none", "fluid", "drug"])[THREE]}, "harms"),
    "the next action": ({"x": shifted(TAKEN, 1, 0)}, "harms"),
    "a payment for the action": ({"x": 20.0 * TAKEN + RNG.normal(0, 2, ROWS)}, "harms"),
    "a code as text": ({"x": np.array(["A7", "B2"])[TAKEN]}, "note"),
    "a later value": ({"x": shifted(PULSE, 1, None)}, "harms"),
    "a later value, named": ({"future_pulse": shifted(PULSE, 1, 80.0)}, "harms"),
    "a count of the action": ({"x": summed(TAKEN)}, "harms"),
    "a number with the action as its last digit": ({"x": 10 * (5_000 + RNG.permutation(ROWS)) + TAKEN}, "harms"),
    "a name that begins with the action": (
        {"x": [f"{'FN'[1 - one]}{number:04}" for number, one in enumerate(TAKEN)]},
        "note",
    ),
    "missing unless treated": ({"x": np.where(TAKEN, RNG.normal(5, 1, ROWS), np.nan)}, "harms"),
    "a copy of the reward": (
        {"reward": np.round(PULSE - 3 * TAKEN, 2), "x": np.round(PULSE - 3 * TAKEN, 2) / 7 + 4},
        "harms",
    ),
}


@pytest.mark.parametrize("case", LEAKS)
def test_leaks_are_found(case):
    columns, severity = LEAKS[case]
    frame = table(**columns)
    found = check(frame, **ROLES, missing="mean")
    name = next(name for name in columns if name not in ("treat", "reward"))
    alarms = [p for p in found.problems if (p.column == name and "away" in p.message) or p.rule == "later value"]
    alarms += [problem for problem in found.problems if problem.rule == "copy of an outcome"]
    assert [problem.severity for problem in alarms] == [severity], [problem.line for problem in found.problems]
    assert alarms[0].column == name
    if severity == "note":  # observed, it is as bad as any other
        assert any(p.severity == "harms" and p.column == name for p in check(frame, **ROLES, one_hot=[name]).problems)


def test_what_follows_from_how_an_episode_ends():
    died = np.random.default_rng(2).random(STAYS) < 0.4
    frame = table(end=LAST & died[STAY], score=np.where(died[STAY], 9, 2))
    problems = {p.rule: p for p in check(frame, **ROLES, terminal="end").problems}
    assert "how its episode ended" in problems["copy of an outcome"].message


CLEAN = {
    "the table itself": {},
    "the last action": {"last_treat": shifted(TAKEN, -1, 0)},
    "the last action, missing at first": {"x": shifted(TAKEN, -1, np.nan)},
    "a count of earlier actions": {"x": summed(TAKEN) - TAKEN},
    "an earlier value": {"x": shifted(PULSE, -1, None)},
    "an earlier value, named": {"pulse_before": np.where(FIRST, RNG.normal(80, 9, ROWS), shifted(PULSE, -1, 0.0))},
    "the change of a value": {"x": np.where(FIRST, 0, PULSE - shifted(PULSE, -1, None))},
    "a clock": {"clock": HOUR % 24, "minutes": 60.0 * HOUR},
    "a site and a sex": {"north": STAY % 3 == 0, "sex": np.array(["f", "m"])[STAY % 2]},
    "a strong hint": {"x": np.where(RNG.random(ROWS) < 0.93, TAKEN, 1 - TAKEN)},
    "noise": {f"x{i}": RNG.normal(0, 1, ROWS) for i in range(40)},
    "an action that lasts": {"treat": np.array(["none", "fluid"])[(STAY + HOUR // 10) % 2]},
    "an action per stay": {"treat": np.array(["none", "fluid"])[np.random.default_rng(3).integers(0, 2, STAYS)[STAY]]},
    "many actions": {"treat": RNG.integers(0, 30, ROWS).astype(str)},
    "a score": {"score": RNG.integers(3, 16, ROWS), "pain": RNG.integers(0, 11, ROWS)},
    "counts": {"drugs": RNG.poisson(2, ROWS), "platelets": RNG.integers(20_000, 400_000, ROWS)},
    "doses": {"dose": RNG.choice([0, 5, 10, 50, 100], ROWS), "weight": np.round(RNG.lognormal(4.3, 0.25, STAYS)[STAY])},
    "few rows": {"pulse": np.round(PULSE)},
}


@pytest.mark.parametrize("case", CLEAN)
def test_tables_without_leaks_give_no_alarm(case):
    frame = table(**CLEAN[case])
    frame = frame.head(75) if case == "few rows" else frame
    problems = check(frame, **ROLES, missing="mean").problems
    rules = {p.rule: p.line for p in problems if not p.rule.startswith(("guessed", "missing", "text left out", "rare"))}
    assert not rules


@pytest.mark.parametrize("seed", range(5))
def test_chance_gives_no_alarm(seed):
    """Neither with few rows nor with an action that never changes within its stay."""
    rng = np.random.default_rng(seed)
    few = {f"x{i}": rng.normal(0, 1, 120) for i in range(60)}
    whole = pl.DataFrame({"stay": np.arange(120) // 6, "treat": rng.choice(["a", "b"], 20)[np.arange(120) // 6], **few})
    for frame in (whole, whole.drop("stay"), whole.with_columns(treat=pl.Series(rng.choice(["a", "b"], 120)))):
        assert not [p.line for p in check(frame, action="treat").problems if "away" in p.message]


def test_decisions_that_follow_a_schedule_give_no_alarm_about_later_actions():
    frame = table(treat=np.array(["none", "none", "fluid"])[HOUR % 3], since=HOUR % 3, old=HOUR % 3 == 0)
    rules = {problem.rule for problem in check(frame, **ROLES).problems}
    assert "gives the action away" in rules  # `since` does
    assert not rules & {"steps with the action", "gives the next action away"}


# ---- the sample


def batches(rows, size, episodes):
    """A table of one column in batches, with the number of the episode of each row."""
    for start in range(0, rows, size):
        part = np.arange(start, min(start + size, rows))
        frame = pl.DataFrame({"x": part.astype(float)})
        yield Batch(frame, part + 1, "a"), None if episodes is None else episodes[part]


@pytest.mark.parametrize("length", [1, 50, 30_000, 200_000])
def test_a_sample_holds_whole_episodes_whatever_the_batches(length):
    rows, found = 200_000, []
    episodes = np.arange(rows) // length
    for size in (7_000, 60_000):
        sample = Sample({"x": True})
        for batch, numbers in batches(rows, size, None if length == 1 else episodes):
            sample.add(batch, numbers, {})
        sample.finish()
        found.append(sample.rows)
        np.testing.assert_array_equal(pl.concat(sample.parts)["x"].to_numpy(), sample.rows)
    np.testing.assert_array_equal(*found)
    taken = np.bincount(episodes[found[0]])
    assert 0.5 * MOST <= len(found[0]) <= MOST
    assert {*taken[taken > 0]} == {min(length, MOST)}


def test_where_episodes_begin_and_end():
    sample = Sampled(
        pl.DataFrame({"x": [1.0, None, 3.0]}), np.arange(3), np.zeros(3, int), np.array([1, 0, 1]) > 0, ["a"]
    )
    assert sample.ends.tolist() == [False, True, True]
    assert sample.episode.tolist() == [0, 0, 1]
    assert sample.numbers("x").tolist() == [1.0, -np.inf, 3.0]
