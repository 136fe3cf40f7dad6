"""Tables to demonstrations: hand-worked ones, random ones in every dialect, and the same one in every format."""

import gzip
import json
from dataclasses import replace

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import GOOD, ROLES, assert_same, in_process

import sbil
from sbil.demonstrations import Column, Schema, read, read_observations, reader_process
from sbil.errors import UserError


@pytest.fixture
def here(monkeypatch):
    """Read in this process."""
    monkeypatch.setattr(reader_process, "elsewhere", in_process)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("tables")


def write(folder, content, name="stays.csv"):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def table(content):
    """Rows of a table drawn with blanks, as CSV."""
    return "\n".join(",".join(line.split()) for line in content.strip().splitlines()) + "\n"


def seen(demonstrations):
    return [t.observations.tolist() for t in demonstrations.trajectories]


def taken(demonstrations):
    return [[demonstrations.action_names[a] for a in t.actions] for t in demonstrations.trajectories]


def test_by_hand(tmp_path):
    """The whole way, through the reader process."""
    content = table("""
        stay hour pulse sex unit treat done patient
        10   1    61    m   ICU  fluid 1    p2
        10   0    60    m   ICU  none  0    p2
        9    0    80    f   ER   none  0    p1
        9    2    82    f   ER   cut   0    p1
        11   5    70    m   ER   none  TRUE p2
    """)
    read_ = sbil.read(
        write(tmp_path, content),
        **ROLES,
        terminal="done",
        group="patient",
        one_hot=["sex"],
        categories=["unit"],
        units={"pulse": "1/min"},
    )
    assert read_.action_names == ("cut", "fluid", "none")
    assert read_.observation_names == ("pulse [1/min]", "sex=f", "sex=m", "unit")
    assert seen(read_) == [[[80, 1, 0, 0], [82, 1, 0, 0]], [[60, 0, 1, 1], [61, 0, 1, 1]], [[70, 0, 1, 0]]]
    assert taken(read_) == [["none", "cut"], ["none", "fluid"], ["none"]]  # stays 9, 10, 11
    assert [t.terminal for t in read_.trajectories] == [False, True, True]
    assert not any(t.has_last_observation for t in read_.trajectories)
    np.testing.assert_array_equal(read_.groups, [0, 1, 1])
    assert read_.trajectories[0].observations.dtype == np.float32
    provenance = dict(read_.provenance)
    assert len(provenance.pop("sha256")) == 64
    assert provenance == {
        "source": ["stays.csv"],
        "rows": 5,
        "rows_in_file": 5,
        "dropped_rows": {},
        "filled_values": {},
        "left_out_columns": [],
        "sorted_rows": True,
    }
    json.dumps(provenance)
    columns = (
        Column("pulse", unit="1/min", fill=70.6),
        Column("sex", "one-hot", ("f", "m")),
        Column("unit", "category", ("ER", "ICU")),
    )
    assert read_.schema == Schema("treat", columns, ("cut", "fluid", "none"), "stay", "hour", "done", "patient")
    again = read(tmp_path / "stays.csv", schema=read_.schema)
    assert_same(again, read_)


def test_without_an_episode_each_row_is_one(tmp_path, here):
    read_ = read(write(tmp_path, "x,y,label\n1,2,b\n3,4,a\n"), action="label")
    assert seen(read_) == [[[1, 2]], [[3, 4]]]
    assert taken(read_) == [["b"], ["a"]]
    assert read_.provenance["left_out_columns"] == []


def test_dropped_columns_are_never_observed(tmp_path, here):
    file = write(tmp_path, GOOD)
    plain, kept = read(file, **ROLES, one_hot=["sex"]), read(file, **ROLES, one_hot=["sex"], drop=["pulse"])
    assert kept.observation_names == plain.observation_names[1:]
    assert seen(kept) == [[row[1:] for row in rows] for rows in seen(plain)]
    assert kept.provenance["left_out_columns"] == ["pulse"]
    schema = kept.schema
    assert schema.drop == ("pulse",)
    assert Schema.from_json(schema.as_json()) == schema
    assert "drop" not in plain.schema.as_json()
    later = write(tmp_path, "sex\nf\n", "later.csv")
    assert read_observations(later, schema).observations.tolist() == [[1, 0]]
    assert read(write(tmp_path, GOOD.replace("pulse", "other"), "other.csv"), schema=schema).schema == schema
    by_schema = {**ROLES, "columns": [], "drop": ["stay", "pulse"]}
    again = read(file, schema=by_schema, one_hot=["sex"])
    assert again.observation_names == kept.observation_names
    assert read(file, schema=plain.schema, drop=["pulse"]).observation_names == kept.observation_names


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        ({"drop": ["pulse"]}, "no column of numbers is left to observe"),
        ({"drop": ["puls"]}, "no column 'puls' (drop); did you mean 'pulse'?"),
        ({"drop": [3]}, "drop must be the name of a column. Got 3."),
        ({"drop": "pulse"}, "drop is a list. Got the text 'pulse'; write ['pulse']."),
        ({"drop": ["pulse"], "observations": ["pulse"]}, "column 'pulse' is both observed and dropped; choose one."),
        ({"drop": ["sex"], "one_hot": ["sex"]}, "column 'sex' is both observed and dropped; choose one."),
        ({"schema": {**ROLES, "columns": [], "drop": ["puls"]}}, "no column 'puls' (drop); did you mean 'pulse'?"),
        ({"schema": {**ROLES, "columns": [], "drop": "pulse"}}, "the drop of a schema must be a list"),
        ({"schema": {**ROLES, "columns": [], "drop": [1]}}, "the drop must be a list of different texts"),
    ],
)
def test_what_cannot_be_dropped(tmp_path, here, given_, message):
    with pytest.raises(UserError) as error:
        read(write(tmp_path, GOOD), **(ROLES | given_))
    assert message in str(error.value)


def test_text_columns_are_left_out(tmp_path, here):
    read_ = read(write(tmp_path, GOOD), **ROLES)
    assert read_.observation_names == ("pulse",)
    assert read_.provenance["left_out_columns"] == ["sex"]


@pytest.mark.parametrize(
    ("actions", "names"),
    [
        (("10", "9", "-1"), ("-1", "9", "10")),
        (("2.0", "1", "1.0"), ("1", "2")),
        (("10", "b", "9"), ("10", "9", "b")),
        (("True", "False", "True"), ("False", "True")),
        (("none", "None", "fluid"), ("None", "fluid", "none")),
        (("01", "1", "1"), ("01", "1")),
        (("9007199254740993", "9007199254740992", "3"), ("3", "9007199254740992", "9007199254740993")),
    ],
    ids=str,
)
def test_actions_are_sorted(tmp_path, here, actions, names):
    rows = "".join(f"{i},{action}\n" for i, action in enumerate(actions))
    assert read(write(tmp_path, f"x,a\n{rows}"), action="a").action_names == names


def test_large_ids_are_not_rounded(tmp_path, here):
    """2^53 and 2^53 + 1 are the same float."""
    content = f"e,t,x,a\n{2**53},{2**60},1,u\n{2**53 + 1},{2**60},2,u\n{2**53 + 1},{2**60 + 1},3,u\n"
    path = write(tmp_path, content)
    frame = pl.read_csv(path)
    frame.write_parquet(tmp_path / "t.parquet")
    for source in (path, tmp_path / "t.parquet", frame, frame.to_pandas()):
        assert seen(read(source, episode="e", time="t", action="a")) == [[[1]], [[2], [3]]]


TIMES = {
    "whole": ("2", "10", "9"),
    "numbers": ("2.5", "10", "9"),
    "negative": ("-2", "1", "0"),
    "dates": ("2020-01-02", "2020-11-01", "2020-02-01"),
    "minutes": ("2020-01-02 09:59", "2020-01-02 10:01", "2020-01-02 10:00"),
    "seconds": ("2020-01-02 09:59:00", "2020-01-02 10:01:00", "2020-01-02 10:00:59.5"),
    "T": ("2020-01-02T09:59:00", "2020-01-02T10:01:00", "2020-01-02T10:00:59"),
    "zones": ("2020-01-02T12:00:00+05:00", "2020-01-02T09:00:00Z", "2020-01-02T08:00:00+0000"),
    "German": ("31.01.2020", "01.03.2020", "29.02.2020"),
    "German clock": ("31.01.2020 10:00", "01.03.2020 09:00", "29.02.2020 11:00"),
}


@pytest.mark.parametrize("case", TIMES)
def test_times_order_the_rows(tmp_path, here, case):
    """The first is the earliest and the second the latest, even if they sort differently as text."""
    rows = "".join(f"{stamp},{x},u\n" for stamp, x in zip(TIMES[case], (1, 3, 2), strict=True))
    path = write(tmp_path, "t,x,a\n" + rows)
    frame = pl.read_csv(path, infer_schema=False).with_columns(e=pl.lit("one"))
    assert seen(read(frame, episode="e", time="t", action="a", observations=["x"])) == [[[1], [2], [3]]]


def test_times_that_turn_to_fractions_later(here):
    frame = pl.DataFrame({"e": ["a"] * 3, "t": ["2", "1", "1.5"], "x": [3, 1, 2], "a": ["u"] * 3})
    assert seen(read(frame, episode="e", time="t", action="a")) == [[[1], [2], [3]]]


def test_rows_of_an_episode_apart(here):
    """Without a time the order of the file is kept."""
    frame = pl.DataFrame({"e": ["b", "a", "b", "a"], "x": [1, 2, 3, 4], "a": ["u"] * 4})
    assert seen(read(frame, episode="e", action="a")) == [[[2], [4]], [[1], [3]]]


def test_ordered_rows_are_not_copied(tmp_path, here):
    """They are views into one array, even if the episodes are not in the order of their names."""
    read_ = read(write(tmp_path, "e,t,x,a\n5,0,1,u\n5,1,2,u\n3,0,3,u\n"), episode="e", time="t", action="a")
    assert seen(read_) == [[[3]], [[1], [2]]]
    assert not read_.provenance["sorted_rows"]
    bases = {id(_root(t.observations)) for t in read_.trajectories}
    assert len(bases) == 1
    assert read_.trajectories[1].observations.ctypes.data < read_.trajectories[0].observations.ctypes.data


def _root(array):
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


GAPS = """
    stay hour pulse bp  treat
    1    0    NA    5   a
    1    1    10    NA  b
    1    2    ?     7   a
    2    0    -     8   a
    2    1    40    NA  b
"""


def test_missing_mean(tmp_path, here):
    read_ = read(write(tmp_path, table(GAPS)), **ROLES, missing="mean")
    assert seen(read_) == [[[25, 5], [10, np.float32(20 / 3)], [25, 7]], [[25, 8], [40, np.float32(20 / 3)]]]
    assert [column.fill for column in read_.schema.columns] == [25, 20 / 3]
    assert read_.provenance["filled_values"] == {"pulse": 3, "bp": 2}
    later = write(tmp_path, "bp,pulse\n1,\nnull,2\n", "later.csv")
    np.testing.assert_array_equal(
        read_observations(later, read_.schema).observations, np.array([[25, 1], [2, 20 / 3]], np.float32)
    )


@pytest.mark.parametrize("rule", ["refuse", "drop"])
def test_gaps_in_later_tables_are_filled_with_the_means_of_training(tmp_path, here, rule):
    """This holds for every rule in training, with and without recorded decisions."""
    schema = read(write(tmp_path, GOOD), **ROLES, missing=rule).schema
    assert [column.fill for column in schema.columns] == [283 / 4]
    later = write(tmp_path, "stay,hour,pulse,treat\n1,0,NA,none\n1,1,1000,fluid\n", "later.csv")
    for filling in ("mean", "last"):
        again = read(later, schema=schema, missing=filling)
        assert seen(again) == [[[70.75], [1000]]]
        assert again.schema.columns == schema.columns
        rows = read_observations(later, replace(schema, missing=filling))
        assert rows.observations.tolist() == [[70.75], [1000]]


def test_a_schema_without_means(tmp_path, here):
    """Written by hand, or by an earlier sbil that kept no means."""
    schema = Schema("treat", (Column("pulse"),), ("fluid", "none"), missing="mean")
    gap = write(tmp_path, "pulse\n1\n\nNA\n")
    with pytest.raises(UserError, match=r"stays\.csv, line 4, column 'pulse': missing value.*no mean of training"):
        read_observations(gap, schema)


def test_missing_last(tmp_path, here):
    read_ = read(write(tmp_path, table(GAPS)), **ROLES, missing="last")
    assert seen(read_) == [[[25, 5], [10, 5], [10, 7]], [[25, 8], [40, 8]]]
    later = write(tmp_path, "stay,hour,bp,pulse\n1,2,1,\n2,0,2,3\n1,1,9,5\n", "later.csv")
    np.testing.assert_array_equal(read_observations(later, read_.schema).observations, [[5, 1], [3, 2], [5, 9]])


def test_missing_drop_keeps_whole_rows(tmp_path, here):
    content = table(GAPS) + "2,2,1,2,b\n1,3,3,4,a\n"
    read_ = read(write(tmp_path, content), **ROLES, missing="drop")
    assert seen(read_) == [[[3, 4]], [[1, 2]]]
    assert read_.provenance["dropped_rows"] == {"pulse": 3, "bp": 2}
    assert (read_.provenance["rows"], read_.provenance["rows_in_file"]) == (2, 7)
    rows = read_observations(tmp_path / "stays.csv", read_.schema)
    assert rows.rows.tolist() == [7, 8]
    assert rows.episode == ["2", "1"]


def test_categories_carried_forward(here):
    frame = pl.DataFrame({"stay": [1, 1, 1], "hour": [0, 1, 2], "sex": ["m", None, "f"], "treat": ["a", "b", "a"]})
    assert seen(read(frame, **ROLES, one_hot=["sex"], missing="last")) == [[[0, 1], [0, 1], [1, 0]]]


def test_levels_of_a_schema_keep_their_order(tmp_path, here):
    schema = Schema("treat", (Column("sex", "category", ("m", "f", "x")),), ("none", "fluid", "cut"), "stay", "hour")
    (tmp_path / "schema.json").write_text(json.dumps(schema.as_json()))
    read_ = read(write(tmp_path, GOOD), schema=tmp_path / "schema.json")
    assert seen(read_) == [[[0], [0]], [[1], [1]]]
    assert [t.actions.tolist() for t in read_.trajectories] == [[0, 1], [0, 0]]
    over = read(tmp_path / "stays.csv", schema=schema, observations=["pulse"], missing="mean")
    assert over.observation_names == ("pulse",)
    assert over.schema.missing == "mean"


SIZES = ["small", "medium", "large", "huge"]


@pytest.mark.parametrize("kind", ["pandas", "polars", "parquet"])
def test_ordered_categories_keep_their_order(tmp_path, kind):
    """As a column and as the action; a name that no row has is left out."""
    cells = {"size": ["large", "small", "medium", None, "small"], "dose": ["small", "large", "large", "small", "large"]}
    if kind == "pandas":
        ordered = pd.CategoricalDtype(SIZES, ordered=True)
        frame = pd.DataFrame({name: pd.Series(values, dtype=ordered) for name, values in cells.items()})
    else:
        frame = pl.DataFrame(cells, schema=dict.fromkeys(cells, pl.Enum(SIZES)))
    if kind == "parquet":
        frame.write_parquet(frame_path := tmp_path / "sizes.parquet")
        frame = frame_path
    found = read(frame, action="dose", categories=["size"], missing="drop")
    assert found.schema.levels["size"] == ("small", "medium", "large")
    assert found.action_names == ("small", "large")
    assert seen(found) == [[[2]], [[0]], [[1]], [[0]]]
    assert taken(found) == [["small"], ["large"], ["large"], ["large"]]
    later = pl.DataFrame({"size": ["small", "large"]})
    assert read_observations(later, found.schema).observations[:, 0].tolist() == [0, 2]


def test_unordered_categories_are_sorted(here):
    cells = ["b", "c", "a"]
    for values in (pd.Series(cells, dtype="category"), pd.Series(cells)):
        found = read(pd.DataFrame({"size": values, "dose": ["x", "y", "x"]}), action="dose", categories=["size"])
        assert found.schema.levels["size"] == ("a", "b", "c")


def test_level_that_looks_missing(here):
    """NA may mean sodium: a schema that lists it as a level makes it a value."""
    frame = pl.DataFrame({"salt": ["NA", "K"], "a": ["u", "v"]})
    assert seen(read(frame, action="a", schema=Schema("a", (Column("salt", "category", ("K", "NA")),)))) == [
        [[1]],
        [[0]],
    ]


def test_booleans_are_numbers(here):
    frame = pl.DataFrame({"on": [True, False], "a": [True, False]})
    read_ = read(frame, action="a")
    assert (seen(read_), read_.action_names) == ([[[1]], [[0]]], ("false", "true"))


TYPES = {
    "decimal": pl.Series(["1.5", "2.25"]).cast(pl.Decimal(10, 2)),
    "float32": pl.Series([1.5, 2.25], dtype=pl.Float32),
    "dictionary": pl.Series(["1.5", "2.25"], dtype=pl.Categorical),
    "text": pl.Series(["1.5", " 2.25 "]),
}


@pytest.mark.parametrize("case", TYPES)
def test_parquet_types(tmp_path, here, case):
    pl.DataFrame({"x": TYPES[case], "a": ["u", "v"]}).write_parquet(tmp_path / "t.parquet")
    assert seen(read(tmp_path / "t.parquet", action="a")) == [[[1.5]], [[2.25]]]


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_parquet_timestamps(tmp_path, here, unit, zone):
    stamps = (
        pl.Series([3, 1, 2]).cast(pl.Datetime(unit, zone))
        if unit != "ns"
        else pl.Series([3000, 1000, 2000]).cast(pl.Datetime("ns", zone))
    )
    pl.DataFrame({"e": [1, 1, 1], "t": stamps, "x": [3, 1, 2], "a": ["u"] * 3}).write_parquet(tmp_path / "t.parquet")
    assert seen(read(tmp_path / "t.parquet", episode="e", time="t", action="a")) == [[[1], [2], [3]]]


def test_parquet_of_many_row_groups(tmp_path, here):
    frame = pl.DataFrame({"x": np.arange(500.0), "a": ["u", "v"] * 250})
    frame.write_parquet(tmp_path / "t.parquet", row_group_size=1)
    assert_same(read(tmp_path / "t.parquet", action="a"), read(frame, action="a"))


ENCODINGS = ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "cp1252"]


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_dialects(tmp_path, here, encoding, newline, delimiter):
    decimal = "." if delimiter == "," else ","
    content = "größe;stadt;wahl\n1#5;Zürich;ja\n-2#25;Genève;nein\n".replace("#", decimal)
    path = write(tmp_path, content.replace(";", delimiter).replace("\n", newline).encode(encoding))
    read_ = read(path, action="wahl", categories=["stadt"])
    assert read_.observation_names == ("größe", "stadt")
    assert read_.schema.columns[1].levels == ("Genève", "Zürich")
    assert seen(read_) == [[[1.5, 1]], [[-2.25, 0]]]


QUOTED = {
    "by columns": ('x,y,c,a\n"1,5","2,25",3.5,u\n"0,125",7,4.5,v\n', ["x", "y"], [[[1.5, 2.25]], [[0.125, 7]]]),
    "a thousand in quotes is no sign": ('x,y,a\n1.5,"1,200",u\n0.25,7,v\n', ["x"], [[[1.5]], [[0.25]]]),
    "the first fraction comes late": (
        "x;a\n" + "1;u\n" * 5_000 + "2,5;v\n",
        ["x"],
        [*[[[1.0]]] * 5_000, [[2.5]]],
    ),
}


@pytest.mark.parametrize("case", QUOTED)
def test_the_decimal_sign_is_that_of_most_columns(tmp_path, here, case):
    content, names, rows = QUOTED[case]
    assert seen(read(write(tmp_path, content), action="a", observations=names)) == rows


def test_latin_1_after_much_ascii(tmp_path, here):
    content = b"x,c,a\n" + b"1,plain,u\n" * 600_000 + "2,Genève,v\n".encode("cp1252")
    path = write(tmp_path, content)
    assert len(content) > 1 << 22
    rows = read_observations(path, Schema("a", (Column("c", "one-hot", ("plain", "Genève")),)))
    assert rows.observations[-1].tolist() == [0, 1]
    assert len(rows.observations) == 600_001


def test_blank_lines_quotes_and_spaces(tmp_path, here):
    content = '\n"e","x y","a"\n\n1 , "1.5",u\n'.replace(' "1.5"', '"1.5"') + '\n"1"," 2 ","say ""no"""\n\n"1",3,"p\nq"'
    read_ = read(write(tmp_path, content), episode="e", action="a")
    assert seen(read_) == [[[1.5], [2], [3]]]
    assert taken(read_) == [["u", 'say "no"', "p\nq"]]
    rows = read_observations(tmp_path / "stays.csv", Schema("a", (Column("x y"),), episode="e"))
    assert rows.rows.tolist() == [4, 6, 8]


def test_a_long_cell_and_many_columns(tmp_path, here):
    names = [f"c{i}" for i in range(1_000)]
    content = ",".join([*names, "note", "a"]) + "\n" + ",".join(["1"] * 1_000 + ["z" * (1 << 20), "u"]) + "\n"
    assert read(write(tmp_path, content), action="a").observation_shape == (1_000,)


def test_folders_globs_and_gzip(tmp_path, here):
    head, *rows = GOOD.splitlines(keepends=True)
    whole = read(write(tmp_path, GOOD, "whole.csv"), **ROLES)
    parts = tmp_path / "parts"
    parts.mkdir()
    write(parts, head + rows[0] + rows[2], "1.csv")
    columns = [line.strip().split(",")[::-1] for line in (head, rows[1], rows[3])]
    write(parts, gzip.compress("".join(",".join(line) + "\n" for line in columns).encode()), "2.csv.gz")
    write(parts, "no table", "_SUCCESS")
    write(parts, head, "3.csv")
    for source in (parts, str(parts), str(parts / "*.csv*")):
        read_ = read(source, **ROLES)
        assert_same(read_, whole)
        assert read_.provenance["source"] == ["1.csv", "2.csv.gz", "3.csv"]


def test_pandas(here):
    frame = pd.DataFrame(
        {
            "stay": [1, 1, 2],
            "hour": pd.to_datetime(["2020-01-02", "2020-01-01", "2020-01-01"]).tz_localize("Europe/Berlin"),
            "pulse": pd.array([60, None, 80], dtype="Int64"),
            "sex": pd.Categorical(["m", "m", "f"]),
            "treat": ["a", "b", "a"],
        }
    )
    read_ = read(frame, **ROLES, one_hot=["sex"], missing="mean")
    assert seen(read_) == [[[70, 0, 1], [60, 0, 1]], [[80, 1, 0]]]
    assert read_.provenance["source"] == ["data frame"]
    indexed = read(frame.set_index(["stay", "hour"]), **ROLES, one_hot=["sex"], missing="mean")
    assert_same(indexed, read_)


def test_plain_npz(tmp_path):
    observed, actions = np.arange(8.0).reshape(4, 2), np.array([7, 3, 7, 7])
    np.savez(tmp_path / "rows.npz", observations=observed, actions=actions)
    rows = read(tmp_path / "rows.npz")
    assert (len(rows), rows.action_names) == (4, ("3", "7"))
    np.savez(tmp_path / "ends.npz", observations=observed, actions=actions, terminals=np.array([0, 1, 0, 0]))
    ends = read(tmp_path / "ends.npz")
    assert [(len(t), t.terminal) for t in ends.trajectories] == [(2, True), (2, False)]
    np.savez(tmp_path / "e.npz", observations=observed, actions=actions, episodes=np.array([5, 2, 5, 2]))
    assert seen(read(tmp_path / "e.npz")) == [[[2, 3], [6, 7]], [[0, 1], [4, 5]]]


def test_our_npz_keeps_schema_and_groups(tmp_path, here):
    read_ = read(write(tmp_path, GOOD), **ROLES, one_hot=["sex"], group="sex", missing="mean")
    sbil.save(read_, tmp_path / "ours.npz")
    assert_same(read(tmp_path / "ours.npz"), read_)


def test_rows_keep_the_order_of_the_file(tmp_path, here):
    schema = read(write(tmp_path, GOOD), **ROLES, one_hot=["sex"]).schema
    content = "sex,extra,pulse,stay\nm,1,5,b\nf,2,4,\nm,3,3,a\n"
    rows = read_observations(write(tmp_path, content, "new.csv"), schema)
    assert rows.observations.tolist() == [[5, 0, 1], [4, 1, 0], [3, 0, 1]]
    assert rows.rows.tolist() == [2, 3, 4]
    assert (rows.episode, rows.time) == (["b", "", "a"], None)
    assert rows.observations.dtype == np.float32


# ---- random tables

NUMBERS = st.floats(-1e6, 1e6, width=32) | st.integers(-(10**6), 10**6)
WORDS = st.text(st.sampled_from('abü ,;|\t"\n.x'), min_size=1, max_size=6).map(lambda word: f"w{word}w")


@st.composite
def tables(draw):
    """(episodes, times, two columns of numbers, a category, actions) of a few rows in any order."""
    keys = draw(st.lists(st.tuples(st.integers(-3, 12), st.integers(-20, 20)), min_size=1, max_size=12, unique=True))
    rows = len(keys)
    columns = [draw(st.lists(kind, min_size=rows, max_size=rows)) for kind in (NUMBERS, NUMBERS, WORDS, WORDS)]
    return {
        "episode": [key[0] for key in keys],
        "time": [key[1] for key in keys],
        **dict(zip(("x", "y", "where", "action"), columns, strict=True)),
    }


RANDOM = {"episode": "episode", "time": "time", "action": "action", "one_hot": ["where"]}


def reference(columns):
    """What reading must give, in plain Python."""
    actions, levels = sorted(set(columns["action"])), sorted(set(columns["where"]))
    rows = sorted(zip(*columns.values(), strict=True), key=lambda row: row[:2])
    episodes = {}
    for episode, _, x, y, where, action in rows:
        observed = [np.float32(x), np.float32(y), *(float(where == level) for level in levels)]
        episodes.setdefault(episode, []).append((observed, actions.index(action)))
    return actions, [episodes[key] for key in sorted(episodes)]


def assert_reference(read_, columns):
    actions, episodes = reference(columns)
    assert list(read_.action_names) == actions
    assert len(read_) == len(episodes)
    for trajectory, steps in zip(read_.trajectories, episodes, strict=True):
        np.testing.assert_array_equal(trajectory.observations, np.array([step[0] for step in steps], np.float32))
        assert trajectory.actions.tolist() == [step[1] for step in steps]


def as_csv(columns, delimiter, newline, decimal, quoting):
    def cell(value):
        text = value if isinstance(value, str) else str(value).replace(".", decimal)
        quoted = quoting or any(mark in text for mark in (delimiter, '"', "\n"))
        return '"' + text.replace('"', '""') + '"' if quoted else text

    rows = [list(columns), *zip(*columns.values(), strict=True)]
    return newline.join(delimiter.join(map(cell, row)) for row in rows) + newline


@settings(max_examples=120)
@given(
    columns=tables(),
    delimiter=st.sampled_from(",;\t|"),
    newline=st.sampled_from(["\n", "\r\n"]),
    comma=st.booleans(),
    quoting=st.booleans(),
    encoding=st.sampled_from(ENCODINGS),
)
def test_any_dialect(folder, columns, delimiter, newline, comma, quoting, encoding):
    decimal = "," if comma and delimiter != "," else "."
    path = write(folder, as_csv(columns, delimiter, newline, decimal, quoting).encode(encoding))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader_process, "elsewhere", in_process)
        assert_reference(read(path, **RANDOM), columns)


@settings(max_examples=40)
@given(columns=tables(), seed=st.integers(0, 99))
def test_any_format_and_any_order_of_rows(folder, columns, seed):
    frame = pl.DataFrame(columns, strict=False).with_columns(pl.col("x", "y").cast(pl.Float64))
    order = np.random.default_rng(seed).permutation(frame.height)
    expected = read(frame, **RANDOM)
    assert_reference(expected, columns)
    frame.write_parquet(folder / "t.parquet")
    frame.write_csv(folder / "t.csv")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader_process, "elsewhere", in_process)
        for source in (frame[order], frame.to_pandas(), folder / "t.parquet", folder / "t.csv"):
            assert_same(read(source, **RANDOM), expected)


def test_a_column_is_named_by_text():
    with pytest.raises(UserError, match=r"action must be the name of a column. Got 3."):
        sbil.read(pl.DataFrame({"a": [1.0, 2.0], "b": [0, 1]}), action=3)


# Dates

WHEN = {
    "ISO": ("2026-02-28 23:30:00", "2026-03-01 00:15:00"),
    "ISO with T and Z": ("2026-02-28T23:30:00Z", "2026-03-01T00:15:00Z"),
    "slashes, the year first": ("2026/02/28 23:30", "2026/03/01 00:15"),
    "points": ("28.02.2026 23:30", "1.3.2026 00:15"),
    "the day first": ("28/02/2026 23:30", "1/3/2026 00:15"),
    "the month first": ("2/28/2026 11:30 PM", "3/1/2026 12:15 AM"),
    "hyphens, the month first": ("02-28-2026 23:30", "03-01-2026 00:15"),
    "names of months": ("28 February 2026 23:30", "1 Mar 2026 00:15"),
    "names of months, American": ("February 28, 2026 23:30:00", "Mar 1, 2026 00:15:00"),
    "names of months, SAS": ("28FEB2026:23:30:00", "01MAR2026:00:15:00"),
}


@pytest.mark.parametrize("form", WHEN)
def test_forms_of_dates(tmp_path, here, form):
    """The rows come in the wrong order; the dates bring them into the right one."""
    early, late = (f'"{when}"' for when in WHEN[form])
    content = f"stay,hour,pulse,treat\n1,{late},61,fluid\n1,{early},60,none\n"
    data = read(write(tmp_path, content), **ROLES)
    assert seen(data) == [[[60], [61]]]
    assert data.schema.dates is None


def test_a_person_says_what_ambiguous_dates_mean(tmp_path, here):
    content = "stay,hour,pulse,treat\n1,03/04/2026,60,none\n1,02/05/2026,61,fluid\n"
    path = write(tmp_path, content)
    found = {dates: read(path, **ROLES, dates=dates) for dates in ("day-first", "month-first")}
    assert seen(found["day-first"]) == [[[60], [61]]]
    assert seen(found["month-first"]) == [[[61], [60]]]
    schema = found["month-first"].schema
    assert Schema.from_json(json.loads(json.dumps(schema.as_json()))) == schema
    assert seen(read(path, schema=schema)) == [[[61], [60]]]
    assert seen(read(path, schema=schema, dates="day-first")) == [[[60], [61]]]
    command = sbil.check(path, **ROLES, dates="day-first")
    assert not command.blocked
    assert "--dates day-first" in command.command
    assert [p.rule for p in sbil.check(path, **ROLES).problems if p.severity == "stops"] == ["ambiguous dates"]


# What is no path


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (np.zeros((3, 2)), "Got ndarray; make a data frame with named columns, or give X and y to a classifier"),
        ({"x": [1.0], "treat": ["a"]}, "Got dict; make a data frame of it"),
        (pl.LazyFrame({"x": [1.0], "treat": ["a"]}), "Got LazyFrame; call its collect"),
        (pl.Series([1.0]), "Got Series; make a data frame"),
        (None, "Got NoneType"),
    ],
)
def test_what_is_no_table_is_said_with_what_to_do(source, message):
    with pytest.raises(UserError, match=message):
        read(source, action="treat")
    with pytest.raises(UserError, match=message):
        sbil.fit("bc", source, columns={"action": "treat"})


def test_tables_of_other_packages_are_read():
    frame = pl.DataFrame({"x": [1.5, 2.5], "treat": ["a", "b"]})
    plain = read(frame, action="treat")
    for table in (frame.to_arrow(), duckdb.sql("select * from frame")):
        assert_same(read(table, action="treat"), plain)
    with pytest.raises(UserError, match="Got Demonstrations; they are read already; use them as they are"):
        read(plain)


def test_arguments_that_are_mixed_up():
    frame = pl.DataFrame({"x": [1.5, 2.5], "treat": ["a", "b"]})
    with pytest.raises(UserError, match=r"unknown algorithm; it comes first and is a name, .* Got DataFrame"):
        sbil.fit(frame, "bc")
    with pytest.raises(UserError, match=r"keywords of their own here, as in read\(table, action='treatment'\)"):
        read(frame, columns={"action": "treat"})
