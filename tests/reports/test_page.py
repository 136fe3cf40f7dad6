"""The page as a file: what it holds, what it cannot do, and the command that writes it."""

import base64
import hashlib
import json
import re
import shlex
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from handmade import made
from sbil.cli import main, parse
from sbil.experiments import store
from sbil.reports import commands, labels, page, page_data
from sbil.reports.cells import setting_of
from sbil.reports.names import MAIN
from sbil.reports.rows import cell_rows

CHOSEN = "bc+weight_decay=0/1"


@pytest.fixture(scope="module")
def results():
    return [
        made("bc", 1, 0.5, points=4),
        made("bc", 3, 0.6, points=4),
        made("edm", 1, 0.6, points=4, diverged=3),
        made("edm", 3, 0.4, points=1),
        made(CHOSEN, 1, 0.5, chosen=("weight_decay=0", "weight_decay=1", "weight_decay=1")),
        made("edm", 1, 0.7, unlabelled=3),
        made("bc", 1, 0.9, environment="Acrobot-v1", thin=1),
    ]


@pytest.fixture(scope="module")
def text(results):
    return page.build(results)


class Elements(HTMLParser):
    """Every element with its attributes, and the text inside scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.raw: dict[str, str] = {}
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data):
        if self.cdata_elem:  # inside a script or a style
            tag, attributes = self.found[-1]
            self.raw[attributes.get("type") or tag] = self.raw.get(attributes.get("type") or tag, "") + data


def embedded(text: str) -> dict:
    return json.loads(Elements(text).raw["application/json"])


def test_equal_results_give_equal_bytes_whatever_their_order(results, text):
    assert page.build(results) == text
    assert page.build(results[::-1]) == text
    assert page.build(results[:-1]) != text


def test_the_policy_names_the_style_and_the_script_that_are_there(text):
    elements = Elements(text)
    (policy,) = [a["content"] for _, a in elements.found if a.get("http-equiv") == "Content-Security-Policy"]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    for rule, kind in (("style-src", "style"), ("script-src", "script")):
        digest = base64.b64encode(hashlib.sha256(elements.raw[kind].encode()).digest()).decode()
        assert rules[rule] == f"'sha256-{digest}'"
    assert rules["default-src"] == "'none'"
    assert "unsafe" not in policy


def test_nothing_is_asked_for_from_elsewhere(text):
    for tag, attributes in Elements(text).found:
        assert tag not in ("img", "iframe", "object", "embed", "base", "form")
        assert not {name for name in attributes if name.startswith("on")} | ({"src", "style"} & set(attributes))
        assert (attributes.get("href") or "#").startswith(("#", "data:"))
    addresses = set(re.findall(r"https?://[^\s\"']+", text))
    assert addresses == {"http://www.w3.org/2000/svg"}  # a name, never fetched
    assert not re.search(r"@import|url\(|\beval\(|innerHTML|insertAdjacent|document\.write", text)


@pytest.mark.parametrize(
    "payload",
    [
        "</script><script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        '"><svg onload=alert(1)>',
        "<!--<script>",
        "$policy ${data} {{7*7}}",
        "'';!--\"<XSS>=&{()}",
        "\u2028\u2029</style>",
    ],
)
def test_names_stay_text(payload):
    named = made(f"bc+x={payload}", chosen=(payload,), environment=payload, demonstrator=payload)
    named.made_by["commit"] = payload
    clean, elements = Elements(page.build([made("bc+x=1", chosen=("a",))])), Elements(page.build([named]))
    assert [tag for tag, _ in elements.found] == [tag for tag, _ in clean.found]
    assert not set("<>&") & set(elements.raw["application/json"])
    assert embedded(page.build([named]))["methods"][0]["id"] == f"bc+x={payload}"


def test_the_data_are_those_of_the_cells(results, text):
    data = embedded(text)
    assert len(data["cells"]) == len(results)
    names = [method["id"] for method in data["methods"]]
    assert names == ["bc", "edm", CHOSEN]
    (cell,) = [c for c in data["cells"] if (names[c["method"]], c["size"], c["unlabelled"]) == ("edm", 1, 0)]
    np.testing.assert_allclose(cell["scores"], results[2].scores.ravel(), atol=5e-5)
    np.testing.assert_allclose(cell["mean"][0], 0.6, atol=5e-5)
    np.testing.assert_allclose(cell["difference"], [0.1, 0.1, 0.1], atol=5e-5)
    assert cell["verdict"] == "above"
    assert cell["diverged"] == [500] * 3 + [-1] * 9
    assert cell["printed"] == [0.428, 0.019]  # of EDM from one trajectory of CartPole
    assert cell["differs"] == "above"
    assert cell["points"] == [500, 3666, 6833, 10000]
    lower, median, upper = cell["curves"]["policy_loss"]
    np.testing.assert_allclose(median, np.linspace(1, 2, 4) + 0.5, atol=1e-3)
    np.testing.assert_allclose([lower[0], upper[0]], [1.25, 1.75], atol=1e-3)


def test_numbers_are_rounded_once():
    """0.14348 is 0.143; rounding twice, through 0.1435, would give 0.144."""
    cell = embedded(page.build([made("edm", scores=np.full((6, 2), 0.14348))]))["cells"][0]
    shown = [*cell["mean"], *cell["iqm"], *cell["scores"]]
    np.testing.assert_allclose(shown, 0.14348, atol=1e-6)
    assert {round(value, 3) for value in shown} == {0.143}
    small = page_data.plain({"mean": [0.005499964, 0.0004996]})
    assert small == {"mean": [0.00549996, 0.0004996]}


def test_the_folder_of_the_commands_is_said_to_be_ones_own(text):
    assert "Replace <code>runs/</code> by the folder that <code>sbil reproduce</code> filled to\nkeep the cells" in text


def test_runs_choose_and_the_page_counts(text):
    (cell,) = [cell for cell in embedded(text)["cells"] if "chosen" in cell]
    assert cell["chosen"] == [["weight_decay=1", 8], ["weight_decay=0", 4]]


def test_numbers_that_are_not_there_are_null():
    alone = made("edm", draws=1, initialisations=1, points=2)
    alone.curves["energy"][:, 1] = [np.inf]
    cell = embedded(page.build([alone]))["cells"][0]
    assert cell["mean"][1:] == [None, None]
    assert cell["error"] is None
    assert cell["curves"]["energy"] == [[1, None]] * 3


def test_a_cell_takes_less_than_ten_kilobytes():
    """With 50 runs and 20 points of two diagnostics, so that 575 cells stay below 6 MB."""
    grid = [made(m, n, 0.5 + n / 97, draws=10, initialisations=5, points=20) for m in ("bc", "edm") for n in (1, 3, 7)]
    one, all_six = (len(page.build(some).encode()) for some in (grid[:1], grid))
    assert (all_six - one) / 5 < 10_000


def test_the_table_says_what_the_cell_says(text):
    rows = [re.sub(r"<[^>]+>", "|", row) for row in re.findall(r"<tr>.*?</tr>", text) if 'class="link"' in row]
    (edm,) = [row for row in rows if "EDM (our default)" in row and "−0.200" in row]
    for part in ("0.400 ± 0.009", "−0.200 [−0.200, −0.200]", "below", "0.900 ± 0.029", "† below"):
        assert f"|{part}|" in edm


def test_one_method_run_in_two_ways_is_told_apart():
    results = [made("bc", 1), made("bc", 3), made("bc", 1, updates=1000), made("bc", 1, draws=5)]
    names = {str(result.cell.method) for result in labels.told_apart(results)}
    assert names == {"bc", "bc+updates=1000", "bc+draws=5"}
    assert cell_rows(labels.told_apart(results))
    again = labels.told_apart(labels.told_apart(results))
    assert {str(result.cell.method) for result in again} == names


def test_fewer_episodes_with_further_states_are_the_same_method():
    """The method that is compared with BC keeps its name, however many cells have further states."""
    few = [made("edm", 1, unlabelled=more, episodes=1) for more in range(1, 8)]
    results = [made("bc", 1), *(made("edm", size) for size in (1, 3)), *few]
    assert {str(one.cell.method) for one in labels.told_apart(results)} == {"bc", "edm"}
    shorter = [made("edm", 1, unlabelled=more, episodes=1, updates=9) for more in range(1, 8)]
    assert {str(one.cell.method) for one in labels.told_apart([*results[:3], *shorter])} > {"bc", "edm"}
    again = [made("edm", 1, unlabelled=1, episodes=2)]
    assert "edm+episodes=2" in {str(one.cell.method) for one in labels.told_apart([*results, *again])}


def test_the_same_cell_of_two_versions_is_told_apart():
    twice = [replace(made("bc"), fingerprint=name) for name in ("b", "a")]
    assert [str(result.cell.method) for result in labels.told_apart(twice)] == ["bc", "bc+copy=2"]
    assert [result.fingerprint for result in labels.told_apart(twice)] == ["a", "b"]


def test_colours_and_marks_of_methods_differ():
    methods = [*MAIN, *(f"bc+batch={number}" for number in range(30))]
    found = embedded(page.build([made(method, draws=1, initialisations=1) for method in methods]))["methods"]
    styles = [(method["colour"], method["marker"]) for method in found]
    first = [style for style, method in zip(styles, found, strict=True) if method["shown"]]
    assert len(set(styles)) == len(styles)
    assert len({colour for colour, _ in first}) == len({marker for _, marker in first}) == len(MAIN)
    assert {method["id"] for method in found if method["shown"]} == set(MAIN)


def test_the_commands_run_the_same_cells():
    from sbil.cli import reproduce
    from sbil.experiments.experiment import cells_of

    cells = [
        *(made(method, size).cell for method in ("bc", CHOSEN, "edm:paper") for size in (1, 3, 7)),
        made("rcal", 3).cell,
        made("bc", 1, updates=1000).cell,
        *(made("edm", 1, unlabelled=level).cell for level in (0, 2, 5)),
    ]
    found = []
    for line in commands.commands(cells):
        program, name, *words = shlex.split(line)
        assert (program, name) == ("sbil", "reproduce")
        command = parse(reproduce.Command, "sbil reproduce", words, reproduce.EXAMPLES)
        found += cells_of(reproduce.experiments(command))
    assert len(found) == len(set(found))
    assert set(found) == set(cells)


def test_names_in_commands_are_quoted():
    (line,) = commands.commands([made("bc+x=a b;rm -rf $HOME").cell])
    assert "bc+x=a b;rm -rf $HOME" in shlex.split(line)


# The command


@pytest.fixture
def folder(results, tmp_path):
    store.write(tmp_path / "in" / "a.parquet", results[:4])
    store.write(tmp_path / "in" / "b.parquet", results[4:])
    return tmp_path


def test_the_command_writes_the_page_and_says_the_verdict(folder, results, text, capsys):
    main(["report", str(folder / "in"), "--out", str(folder / "new" / "report.html")])
    output = capsys.readouterr().out
    assert (folder / "new" / "report.html").read_text() == text
    assert output.startswith("7 cells, 3 methods, 2 settings, 84 runs\n")
    assert "EDM (our default): against BC clearly above in 1 of 2 cells, below in 1" in output
    assert f"wrote {folder / 'new' / 'report.html'}" in output


def test_files_and_folders_may_be_mixed_and_repeated(folder, text):
    one, other = (str(folder / "in" / name) for name in ("a.parquet", "b.parquet"))
    main(["report", other, one, str(folder / "in"), "--out", str(folder / "report.html")])
    assert (folder / "report.html").read_text() == text


def test_json(folder, results, capsys):
    main(["report", str(folder / "in"), "--out", str(folder / "report.html"), "--json"])
    found = json.loads(capsys.readouterr().out)
    assert len(found["cells"]) == len(results)
    assert found["written"] == [str(folder / "report.html")]
    assert set(found["verdict"]) == {"all settings", *map(setting_of, results)}
    assert all(sentence.endswith(".") for said in found["verdict"].values() for sentence in said)


def test_figures_and_tables(folder, capsys):
    main(["report", str(folder / "in"), "--out", str(folder / "report.html"), "--figures", str(folder / "figures")])
    names = {path.name for path in (folder / "figures").iterdir()}
    drawn = {"return_against_size", "profile", "semi_supervised", "diagnostics"}
    assert {f"{name}.{kind}" for name in drawn for kind in ("png", "svg")} <= names
    assert {"tables.md", "tables.tex", "cells.csv", "runs.csv"} <= names
    assert (folder / "figures" / "runs.csv").read_text().count("\n") == 1 + 84
    assert f"wrote {folder / 'report.html'}, {folder / 'figures'}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "No such file"),
        (b"", "leave it out"),
        (b"PAR1 not parquet PAR1", "leave it out"),
        ("folder", "no results here"),
    ],
)
def test_what_cannot_be_read_is_refused_in_a_line(tmp_path, capsys, content, says):
    path = tmp_path / "given.parquet"
    if content == "folder":
        path.mkdir()
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(SystemExit) as leaving:
        main(["report", str(path), "--out", str(tmp_path / "report.html")])
    error = capsys.readouterr().err
    assert leaving.value.code == 2
    assert says in error
    assert error.count("\n") == 1
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize("words", [[], ["--out", "."], ["--figures", "in/a.parquet"]])
def test_wrong_places_are_refused(folder, capsys, monkeypatch, words):
    monkeypatch.chdir(folder)
    with pytest.raises(SystemExit) as leaving:
        main(["report", *(["in"] if words else []), *words])
    assert leaving.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not (folder / "report.html").exists()
