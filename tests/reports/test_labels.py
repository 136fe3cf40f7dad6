"""Cells of another seed, or with every state, beside ordinary cells: no cell is mistaken for another."""

import csv
import io
import re

import numpy as np
import pytest

from handmade import BASE, made, result
from sbil.errors import UserError
from sbil.experiments import store
from sbil.reports import commands, exports, figures, labels, page, paper_numbers, sentences, tables
from sbil.reports.cells import setting_of, strata, two_lines
from sbil.reports.differences import differences, few_draws
from sbil.reports.rows import aggregates, cell_rows, run_rows

PLAIN = "CartPole-v1, ppo demonstrator (sampled), every 20th step"
SEEDED = f"{PLAIN}, seed 1"


@pytest.fixture
def seeds():
    """EDM is 0.1 above BC with seed 0 and 0.2 below it with seed 1."""
    return [
        *(made("bc", size, 0.5) for size in (1, 3)),
        *(made("edm", size, 0.6) for size in (1, 3)),
        *(made("bc", size, 0.9, seed=1) for size in (1, 3)),
        *(made("edm", size, 0.7, seed=1) for size in (1, 3)),
    ]


@pytest.fixture
def states():
    """EDM 0.1 above BC, and 0.3 above it where it is shown every state."""
    return [made("bc", 1, 0.5), made("edm", 1, 0.6), made("edm", 1, 0.8, every_state=True)]


def test_another_seed_belongs_to_the_setting(seeds):
    assert list(dict.fromkeys(map(setting_of, seeds))) == [PLAIN, SEEDED]
    assert two_lines(SEEDED) == ["CartPole-v1", "ppo demonstrator (sampled), every 20th step, seed 1"]
    assert page.summary(seeds) == "8 cells, 2 methods, 2 settings, 96 runs"


def test_differences_are_from_bc_of_the_same_seed(seeds):
    found = {(row["setting"], row["size"]): row["mean"] for row in differences(seeds)}
    expected = {(PLAIN, 1): 0.1, (PLAIN, 3): 0.1, (SEEDED, 1): -0.2, (SEEDED, 3): -0.2}
    assert found == pytest.approx(expected, abs=1e-6)
    rows = [row for row in cell_rows(seeds) if row["method"] == "edm"]
    assert [row["verdict"] for row in rows] == ["above", "above", "below", "below"]
    assert differences([*seeds[:2], *seeds[6:]]) == []  # no BC of that seed


def test_every_seed_has_its_own_tables(seeds):
    text = tables.markdown(seeds)
    assert [text.count(f"**{name}**") for name in (PLAIN, SEEDED)] == [1, 1]
    assert "| bc | 0.500 ± 0.009 | 0.500 ± 0.009 |" in text
    assert "| bc | 0.900 ± 0.009 | 0.900 ± 0.009 |" in text
    assert tables.aggregate_markdown(seeds).count("| BC | 2 |") == 2
    labels = re.findall(r"\\label\{(.*?)\}", tables.latex(seeds))
    assert labels == ["tab:CartPole-v1-ppo-sampled-thin20", "tab:CartPole-v1-ppo-sampled-thin20-seed1"]
    with pytest.raises(UserError, match="one seed"):
        tables.terminal(seeds, "both")


def test_seeds_are_resampled_apart(seeds):
    assert [part.shape for part in strata(seeds[:2] + seeds[4:6])] == [(2, 6, 2), (2, 6, 2)]
    together = aggregates(seeds, by=lambda result: result.cell.task.environment)
    assert [(row["method"], row["cells"], row["compared"]) for row in together] == [("bc", 4, 0), ("edm", 4, 4)]
    assert together[1]["difference"] == pytest.approx(-0.05, abs=1e-6)


def test_the_verdict_counts_both_seeds(seeds):
    said = sentences.sentences(seeds)
    assert said[0] == "EDM (our default): against BC clearly above in 2 of 4 cells, below in 2 (by -0.200 to +0.100)."
    assert len(sentences.comparisons(seeds)) == 4


def test_each_seed_keeps_the_names_of_its_own_protocol(seeds):
    """All cells of the other seed have fewer episodes: that is their protocol, not a variant of a method."""
    other = [made("bc", size, 0.5, seed=2, episodes=1) for size in (1, 3)]
    names = {str(result.cell.method) for result in labels.told_apart([*seeds, *other])}
    assert names == {"bc", "edm"}


def test_every_state_is_left_out_of_tables_and_compared_with_the_same_bc(states):
    plain = states[:2]
    assert tables.markdown(states) == tables.markdown(plain)
    assert tables.latex(states) == tables.latex(plain)
    assert aggregates(states) == aggregates(plain)
    assert differences(states) == differences(plain)
    assert sentences.comparisons(states) == sentences.comparisons(plain)
    row = cell_rows(states)[2]
    assert (row["every_state"], row["verdict"], row["printed_mean"]) == (True, "above", None)
    assert row["difference"] == pytest.approx(0.3, abs=1e-6)
    assert paper_numbers.counterpart(states[1]) is not None
    assert not paper_numbers.differs(states[2])
    with_seed = [*states, made("bc", 1, 0.9, seed=1), made("edm", 1, 0.8, seed=1, every_state=True)]
    assert cell_rows(with_seed)[-1]["difference"] == pytest.approx(-0.1, abs=1e-6)


def test_columns_for_what_is_rare_are_there_only_with_it(seeds, states):
    ordinary = seeds[:4]
    assert not {"seed", "every_state"} & {*cell_rows(ordinary)[0], *run_rows(ordinary)[0]}
    rows = list(csv.DictReader(io.StringIO(tables.csv_text(run_rows([*states, *seeds[4:]])))))
    assert {(row["seed"], row["every_state"]) for row in rows} == {("0", "False"), ("0", "True"), ("1", "False")}


def test_the_figure_of_states_shows_every_state_as_a_level(states):
    figure = figures.semi_supervised(states)
    (panel,) = figure.axes
    levels = {line.get_label(): line.get_ydata()[0] for line in panel.get_lines() if line.get_linestyle() == "--"}
    expected = {"BC": 0.5, "EDM (our default)": 0.6, "EDM (our default), every state": 0.8}
    assert levels == pytest.approx(expected, abs=1e-6)
    more = figures.semi_supervised([*states, made("edm", 1, 0.7, unlabelled=2)]).axes[0]
    (curve,) = more.containers
    np.testing.assert_allclose(np.array(curve.lines[0].get_ydata(), float), [0.6, 0.7], atol=1e-6)


def test_files_of_such_results(seeds, states, tmp_path):
    every = labels.told_apart([*states, *seeds[4:]])
    exports.write(every, cell_rows(every), tmp_path)
    assert (tmp_path / "semi_supervised.png").exists()
    assert (tmp_path / "tables.md").read_text().count(SEEDED) == 2
    alone = states[2:]
    written = exports.write(alone, cell_rows(alone), tmp_path / "alone")
    assert {path.name for path in written} == {"cells.csv", "runs.csv", "semi_supervised.png"}


def test_commands_and_the_script_run_the_same_cells(seeds, states):
    """`sbil reproduce` has no option for another seed or for every state; such cells are run from Python."""
    odd = made("edm", 3, seed=1, updates=500, unlabelled=2, every_state=True)
    cells = [result.cell for result in (*states, *seeds[4:], odd)]
    here = [cell for cell in cells if not cell.task.seed]
    assert len(commands.commands(here)) == 1
    assert "every" not in commands.commands(here)[0]
    assert commands.commands(cells[3:]) == []
    assert commands.from_python([cell for cell in here if not cell.task.every_state]) == ""
    found = []
    for some in (here, cells[3:]):
        script, last = commands.from_python(some).rsplit("\n", 1)
        assert last.startswith("list(run_grid(cells,")
        names: dict[str, list] = {}
        exec(script, names)
        found += names["cells"]
    assert len(found) == len(set(found))
    assert set(found) == {cell for cell in cells if cell.task.seed or cell.task.every_state}


def test_the_page_says_how_such_cells_are_run(seeds, states):
    text = page.build([*states, *seeds[4:]])
    assert text.count(page.FROM_PYTHON) == 2
    assert "seed=1" in text
    assert page.FROM_PYTHON not in page.build(states[:2])


def test_the_page_puts_every_state_apart(states):
    text = page.build(states)
    assert page.EVERY in text
    assert page.EVERY not in page.build(states[:2])
    rows = [re.sub(r"<[^>]+>", "|", row) for row in re.findall(r"<tr>.*?</tr>", text) if 'class="link"' in row]
    (row,) = [row for row in rows if "0, all" in row]
    assert "|+0.300 [+0.300, +0.300]|" in row


def test_such_results_survive_a_file(seeds, states, tmp_path):
    every = [*states, *seeds[4:]]
    store.write(tmp_path / "a.parquet", every)
    assert page.build(list(store.read(tmp_path / "a.parquet"))) == page.build(every)


# Too few draws

NOTE = "Fewer than 6 draws"


def test_few_draws_are_said_where_there_are_intervals():
    few, enough = [result(method, 1, BASE[:2]) for method in ("bc", "edm")], [result("bc", 3, BASE)]
    said = "Fewer than 6 draws: there an interval is about the range seen, not a 95 % interval."
    assert few_draws(few) == said
    assert few_draws(enough) == ""
    assert few_draws([*few, *enough]).startswith(f"{NOTE} in 2 of 3 cells: ")
    assert few_draws([result("bc", 1, BASE[:1, :1])]) == ""  # one run has no interval
    assert tables.terminal(few, "few").caption == said
    assert tables.terminal(enough, "enough").caption is None
    assert tables.markdown(few, tables.with_interval).endswith(f"|\n\n{said}\n")
    assert tables.aggregate_markdown(few).endswith(f"|\n\n{said}\n")
    assert NOTE not in tables.markdown(few)  # standard errors are what the paper prints
    for text in (tables.markdown(enough, tables.with_interval), tables.aggregate_markdown(enough)):
        assert NOTE not in text


def test_five_draws_are_too_few_and_six_are_not():
    assert few_draws([made("bc", draws=5)])
    assert not few_draws([made("bc", draws=6)])


def test_few_draws_are_said_on_the_page():
    few, enough = page.build([made("bc", draws=2), made("edm", draws=2)]), page.build([made("bc"), made("edm")])
    assert few.count(NOTE) == 5
    assert "(2 draws)</td>" in few
    assert NOTE not in enough
    assert "draws)</td>" not in enough


def test_few_draws_are_said_in_the_figures_of_a_folder(tmp_path):
    for name, draws in (("few", 2), ("enough", 6)):
        some = [made("bc", draws=draws), made("edm", draws=draws, unlabelled=1)]
        exports.write(some, cell_rows(some), tmp_path / name)
        for drawn in ("return_against_size", "semi_supervised"):
            assert (NOTE in (tmp_path / name / f"{drawn}.svg").read_text()) == (name == "few")
