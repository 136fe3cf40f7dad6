"""Columns that do not mean what they seem to: a missing header, units, codes, outcomes, numbers of rows."""

import numpy as np
import polars as pl
import pytest
from tables import in_process

from sbil.demonstrations import check, reader_process

STAYS, HOURS = 60, 10
ROWS = STAYS * HOURS
STAY, HOUR = np.repeat(np.arange(STAYS), HOURS), np.tile(np.arange(HOURS), STAYS)
ROLES = {"episode": "stay", "time": "hour", "action": "treat"}
RNG = np.random.default_rng(5)
GLUCOSE = RNG.lognormal(2.0, 0.25, STAYS)[STAY] * RNG.lognormal(0, 0.15, ROWS)
WARM = RNG.normal(37, 0.5, ROWS)
FOREIGN = STAY % 3 == 0


@pytest.fixture(autouse=True)
def _here(monkeypatch):
    monkeypatch.setattr(reader_process, "elsewhere", in_process)


def table(**changes):
    columns = {"stay": STAY, "hour": HOUR, "pulse": np.round(RNG.normal(80, 9, ROWS), 1)}
    return pl.DataFrame({**columns, "treat": RNG.choice(["a", "b"], ROWS), **changes})


def rules(frame, **roles):
    """The rule and the column of every problem, without what a person did not say."""
    return {p.rule: p for p in check(frame, **ROLES, **roles).problems if not p.rule.startswith(("guessed", "missing"))}


FOUND = {
    "glucose in mmol/l and mg/dl": ("mixed units", {"x": np.where(FOREIGN, 18.016, 1) * GLUCOSE}),
    "a share in percent": ("mixed units", {"x": np.where(FOREIGN, 100, 1) * GLUCOSE / 20}),
    "Celsius and Fahrenheit": ("mixed units", {"x": np.where(FOREIGN, 1.8 * WARM + 32, WARM)}),
    "codes of wards": ("codes", {"ward_id": STAY % 5}),
    "codes of hospitals": ("codes", {"hospitalid": 60 + STAY % 20}),
    "the number of the row": ("numbered rows", {"x": np.arange(ROWS)}),
    "numbers of rows, shuffled": ("numbered rows", {"x": RNG.permutation(ROWS)}),
    "the number of the stay": ("identifier", {"x": 400 + STAY}),
    "an outcome": ("observed outcome", {"died_in_hospital": STAY % 2}),
    "hardly measured": ("mostly missing", {"x": np.where(RNG.random(ROWS) < 0.7, np.nan, GLUCOSE)}),
}


@pytest.mark.parametrize("case", FOUND)
def test_what_is_found(case):
    rule, columns = FOUND[case]
    found = rules(table(**columns), missing="mean")
    assert {*found} == {rule}, found
    assert found[rule].column in columns
    assert found[rule].severity == ("note" if rule == "mostly missing" else "harms")


CLEAN = {
    "one unit": {"x": GLUCOSE},
    "sexes of different weight": {"x": np.where(STAY % 2, 62, 80) * RNG.lognormal(0, 0.1, STAYS)[STAY]},
    "newborns and adults": {"x": np.where(FOREIGN, 3.2, 75) * RNG.lognormal(0, 0.1, STAYS)[STAY]},
    "few values": {"x": np.where(FOREIGN, 1, 100)},
    "a dose and none": {"x": np.where(FOREIGN, 0.0, GLUCOSE)},
    "a number for never": {"x": np.where(FOREIGN & (RNG.random(ROWS) < 0.7), 48, RNG.uniform(0.3, 0.6, ROWS))},
    "a skewed column": {"x": RNG.lognormal(0, 2, STAYS)[STAY] * RNG.lognormal(0, 0.2, ROWS)},
    "a score": {"coma_scale": RNG.integers(3, 16, ROWS)},
    "cents": {"paid": RNG.integers(0, 10_000_000, ROWS)},
    "measured in most rows": {"x": np.where(RNG.random(ROWS) < 0.3, np.nan, GLUCOSE)},
}


@pytest.mark.parametrize("case", CLEAN)
def test_what_is_as_it_seems_gives_no_alarm(case):
    assert not rules(table(**CLEAN[case]), missing="mean")


def test_a_reward_is_an_alarm_only_if_it_is_observed():
    frame = table(reward=np.round(RNG.normal(0, 1, ROWS), 2), next_pulse=np.round(RNG.normal(0, 1, ROWS), 1))
    assert {*rules(frame)} == {"left out"}
    found = rules(frame, observations=["pulse", "reward"])["observed outcome"]
    assert (found.column, found.severity) == ("reward", "harms")
    assert "looks like a reward" in found.message


def written(folder, header, seed=0):
    rng = np.random.default_rng(seed)
    rows = (
        f"{i // 4},{i % 4},{rng.normal(80, 9):.1f},{'fm'[i % 2]},{rng.choice(['none', 'fluid'])}" for i in range(80)
    )
    path = folder / "stays.csv"
    path.write_text("\n".join([*header, *rows]) + "\n")
    return path


@pytest.mark.parametrize(
    ("header", "missing"),
    [
        (["0,4,81.5,m,none"], True),
        (["x,y,81.5,m,none"], True),
        (["stay,hour,81.5,sex,none"], True),
        (["stay,hour,pulse,sex,treat"], False),
        (["stay,hour,pulse,sex,fluid"], False),
        (["0,1,2,3,treat"], False),
        (["0,1,2,3,4"], None),
    ],
)
def test_a_missing_header(tmp_path, header, missing):
    path = written(tmp_path, header)
    if missing is None:  # numbers only
        with pytest.raises(ValueError, match="line 1 holds numbers; a header"):
            check(path)
        return
    found = [problem for problem in check(path).problems if problem.rule == "no header"]
    assert [problem.where for problem in found] == ["the table"] * missing


def test_a_first_row_with_equal_cells(tmp_path):
    with pytest.raises(ValueError, match="two columns are called '4'; rename one of them, or write a header"):
        check(written(tmp_path, ["4,4,81.5,m,none"]))
