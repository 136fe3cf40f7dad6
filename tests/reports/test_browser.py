"""The page in a browser: it draws, sorts, switches, fits and stays quiet, with the network off."""

import re
from itertools import pairwise

import numpy as np
import pytest
from browsing import CONTRAST, FOCUS, NAMELESS, expand

from handmade import made
from sbil.evaluation.matching import METRICS as MEASURED
from sbil.experiments import Cell, Method, Result, TableTask
from sbil.reports import clinical, page, tables
from sbil.reports.names import MAIN
from sbil.statistics import estimate

PAYLOADS = (
    "bc+x=<img src=x onerror=alert(1)>",
    "bc+x=</script><script>alert(1)</script>",
    "bc+x=\"><svg onload=alert(1)>'",
)
METHODS = ("bc", "bc:decay", "edm", "edm:paper", "majority", *PAYLOADS)
SIZES = (1, 3, 7)


def results():
    acrobot = {"environment": "Acrobot-v1", "thin": 1}
    cells = [
        made(method, size, 0.1 + 0.1 * place + 0.01 * size, points=6, diverged=4 * (method == "edm:paper"))
        for place, method in enumerate(METHODS)
        for size in SIZES
    ]
    cells += [made(method, 1, 0.9, chosen=("<b>a</b>", "b"), **acrobot) for method in ("bc", "edm", PAYLOADS[0])]
    return cells + [made("edm", 1, 0.3 + 0.1 * more, unlabelled=more) for more in (2, 4)]


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    path = tmp_path_factory.mktemp("browser") / "report.html"
    path.write_text(page.build(results()), encoding="utf-8")
    return path.as_uri()


def points(tab, panel="#return-panels"):
    return tab.locator(f"{panel} .point").count()


def hover(mark):
    """Point at a mark, once the page has come to rest."""
    mark.scroll_into_view_if_needed()
    mark.page.wait_for_timeout(200)
    mark.hover(force=True)


def test_every_cell_that_is_shown_has_a_mark(opened):
    tab = opened()
    shown = [r for r in results() if str(r.cell.method) in MAIN and not r.cell.task.unlabelled]
    assert points(tab) == len(shown) == 4 * 3 + 2
    assert tab.locator("#return-panels svg").count() == tab.locator("#profile-panels svg").count() == 2
    assert tab.locator("#return-panels .hollow").count() == 3  # those of edm:paper, where runs diverged
    tab.get_by_role("button", name="All", exact=True).click()
    assert points(tab) == len(METHODS) * len(SIZES) + 3
    tab.get_by_role("button", name="None", exact=True).click()
    assert points(tab) == 0
    tab.get_by_role("button", name="Reset").click()
    assert points(tab) == len(shown)


def test_a_mark_stands_where_its_mean_is(opened):
    """Marks of BC at 0.11, 0.13 and 0.17 lie on one line against the axis."""
    tab = opened()
    places = (
        tab.locator("#return-panels .panel")
        .nth(1)
        .locator("[data-method=bc] .point")
        .evaluate_all("(marks) => marks.map((mark) => mark.transform.baseVal[0].matrix.f)")
    )
    assert (places[0] - places[1]) * 2 == pytest.approx(places[1] - places[2], abs=0.3)
    assert places[0] > places[1] > places[2]


def test_switching_a_method_hides_its_marks(opened):
    tab = opened()
    before = points(tab)
    tab.locator("input[data-method='edm:paper']").uncheck()
    assert points(tab) == before - 3
    assert tab.locator(".panels [data-method='edm:paper']").count() == 0
    tab.get_by_text("more method").click()
    tab.locator("input[data-method=majority]").check()
    assert points(tab) == before


def test_the_print_and_the_other_statistic_can_be_switched_on(opened):
    tab = opened()
    assert tab.locator(".print").count() == 0
    tab.get_by_label("Printed in the paper").check()
    assert tab.locator(".print").count() == 4  # BC and EDM in both settings
    label = tab.locator("#return-panels summary").first
    label.click()
    mean = tab.locator("#return-panels .behind table").first.inner_text()
    tab.get_by_label("Interquartile mean").check()
    tab.locator("#return-panels summary").first.click()
    assert "0.900" in mean
    assert points(tab) == 14
    tab.get_by_label("Own scale").check()
    assert points(tab) == 14


def test_a_mark_tells_of_its_runs_by_mouse_and_by_keyboard(opened):
    tab = opened()
    tip = tab.locator("#tip")
    assert tip.is_hidden()
    hover(tab.locator("#return-panels [data-method='edm:paper'] .point").first)
    assert tip.is_visible()
    assert "EDM, as printed, 1 trajectory" in tip.inner_text()
    assert "4 of 12" in tip.inner_text()
    assert tip.locator("circle").count() == 8
    assert tip.locator(".lost").count() == 4
    tab.keyboard.press("Escape")
    assert tip.is_hidden()
    tab.locator("#return-panels .panel").nth(1).locator(".point[tabindex='0']").focus()
    tab.keyboard.press("ArrowRight")
    assert "BC, 3 trajectories" in tip.inner_text()
    tab.keyboard.press("ArrowDown")
    assert "BC, weight decay 1, 3 trajectories" in tip.inner_text()
    tab.keyboard.press("Enter")
    assert "BC, weight decay 1, 3 trajectories" in tab.locator("#cell-body h3").first.inner_text()


def test_profiles_are_read_by_mouse_and_by_keyboard(opened):
    tab = opened()
    chart = tab.locator("#profile-panels svg").nth(1)
    hover(chart)
    tip = tab.locator("#tip")
    (before,) = re.findall(r"Runs that score above ([\d.]+)", tip.inner_text())
    assert "EDM, as printed" in tip.inner_text()
    chart.focus()
    tab.keyboard.press("ArrowRight")
    (after,) = re.findall(r"Runs that score above ([\d.]+)", tip.inner_text())
    assert float(after) == pytest.approx(float(before) + 0.05)


def column(tab, number):
    """What a column of the first table holds, top to bottom: numbers where it has them."""
    return (
        tab.locator(".cells")
        .nth(1)
        .locator(f"tbody tr > :nth-child({number})")
        .evaluate_all(
            "(cells) => cells.map((cell) => 'sort' in cell.dataset ? Number(cell.dataset.sort) : cell.textContent)"
        )
    )


def test_every_column_sorts_both_ways(opened):
    tab = opened()
    expand(tab)
    heads = tab.locator(".cells").nth(1).locator("thead th")
    assert heads.count() == 12
    for number in range(1, heads.count() + 1):
        head = heads.nth(number - 1)
        for kind, reverse in (("ascending", False), ("descending", True)):
            head.get_by_role("button").click()
            assert head.get_attribute("aria-sort") == kind
            assert tab.locator(".cells").nth(1).locator("[aria-sort]").count() == 1
            found = [value for value in column(tab, number) if value != ""]
            if all(isinstance(value, (int, float)) for value in found):
                assert found == sorted(found, reverse=reverse)
            else:
                order = tab.evaluate("(texts) => texts.sort((a, b) => a.localeCompare(b, 'en'))", found)
                assert found == (order[::-1] if reverse else order)
            assert len(column(tab, number)) == len(METHODS) * len(SIZES) + 2


def test_empty_entries_come_last_however_a_column_is_sorted(opened):
    tab = opened()
    expand(tab)
    head = tab.locator(".cells").nth(1).locator("thead th", has_text="Printed")
    for _ in range(2):
        head.get_by_role("button").click()
        found = column(tab, 11)
        assert found[-1] == ""
        assert found[0] != ""


def test_tables_are_sorted_by_keyboard(opened):
    tab = opened()
    expand(tab)
    head = tab.locator(".cells").nth(1).locator("thead th", has_text="IQM")
    head.get_by_role("button").focus()
    tab.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "ascending"
    tab.keyboard.press("Space")
    assert head.get_attribute("aria-sort") == "descending"
    assert column(tab, 8) == sorted(column(tab, 8), reverse=True)


def test_rows_are_filtered_by_words(opened):
    tab = opened()
    expand(tab)
    assert tab.locator(".cells tbody tr:visible").count() == len(results())
    tab.get_by_label("Show rows with").fill("acrobot EDM")
    assert tab.locator(".cells tbody tr:visible").count() == 1
    assert tab.locator("#filtered").inner_text() == f"1 of {len(results())} rows"
    tab.get_by_label("Show rows with").fill("nothing of the kind")
    assert tab.locator(".cells tbody tr:visible").count() == 0


def test_one_cell_shows_its_runs_curves_and_choices(opened):
    tab = opened()
    tab.select_option("#cell-setting", index=1)
    tab.select_option("#cell-method", label="EDM, as printed")
    body = tab.locator("#cell-body")
    assert body.locator(".curve").count() == 2
    assert body.locator(".runs li").all_inner_texts()[:2] == [
        "draw 0, seed 0: update 500",
        "draw 0, seed 1: update 500",
    ]
    assert body.locator(".runs li").count() == 4
    assert body.locator("circle.run").count() + body.locator("path.lost").count() == 12
    tab.select_option("#cell-setting", index=0)
    assert "<b>a</b>" in body.inner_text()  # as text
    expand(tab)
    tab.locator(".cells tbody button", has_text="majority action").nth(2).click()
    assert "majority action, 7 trajectories" in body.locator("h3").first.inner_text()


def test_unlabelled_trajectories_have_their_own_chart(opened):
    tab = opened()
    assert tab.locator("#states").is_visible()
    assert tab.locator("#state-panels [data-method=edm] .point").count() == 3  # with none, two and four more
    assert tab.locator("#state-panels .level").count() == 3  # the other methods that are shown


def test_charts_have_their_numbers_as_tables(opened):
    tab = opened()
    expand(tab)
    panels = tab.locator(".panel").count()
    assert tab.locator(".panel .behind table").count() == panels
    row = tab.locator("#return-panels .panel").nth(1).locator("tbody tr").first
    shown = [result for result in results() if str(result.cell.method) == "bc" and result.cell.task.thin == 20]
    assert row.inner_text().split("\t") == ["BC", *(tables.bracketed(estimate(result.scores)) for result in shown)]


def test_dark_and_light(opened):
    backs = {}
    for scheme in ("light", "dark"):
        tab = opened(color_scheme=scheme)
        button = tab.get_by_role("button", name="Dark")
        back = "getComputedStyle(document.body).backgroundColor"
        backs[scheme] = tab.evaluate(back)
        assert button.get_attribute("aria-pressed") == str(scheme == "dark").lower()
        button.click()
        backs[f"{scheme} switched"] = tab.evaluate(back)
        assert button.get_attribute("aria-pressed") == str(scheme == "light").lower()
    assert backs["light"] == backs["dark switched"] != backs["dark"] == backs["light switched"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_read(opened, scheme):
    tab = opened(color_scheme=scheme)
    expand(tab)
    tab.locator("#cell-setting").select_option(index=1)
    tab.locator("#cell-method").select_option(label="EDM, as printed")
    hover(tab.locator("#return-panels .point").first)
    found = tab.evaluate(CONTRAST)
    assert found["count"] > 400
    assert found["low"] == []


@pytest.mark.parametrize("width", [320, 360, 768, 1280])
def test_the_page_never_scrolls_sideways(opened, width):
    tab = opened(viewport={"width": width, "height": 740})
    expand(tab)
    assert tab.evaluate("document.documentElement.scrollWidth") == width
    inside = "[...document.querySelectorAll('.tall')].some((box) => box.scrollWidth > box.clientWidth)"
    assert tab.evaluate(inside) or width > 1000  # wide tables scroll in their own boxes
    hover(tab.locator("#return-panels .point").first)
    box = tab.locator("#tip").bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= width


def test_every_control_has_a_name_and_the_page_its_landmarks(opened):
    tab = opened()
    expand(tab)
    tab.locator("#cell-setting").select_option(index=1)
    assert tab.evaluate(NAMELESS) == []
    for role in ("banner", "navigation", "main", "contentinfo"):
        assert tab.get_by_role(role).count() == 1
    levels = tab.evaluate("[...document.querySelectorAll('h1, h2, h3')].map((head) => Number(head.tagName[1]))")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert tab.evaluate("document.documentElement.lang") == "en"


def test_all_can_be_reached_and_the_focus_is_seen(opened):
    tab = opened()
    reached = set()
    while "cell-size" not in reached:
        tab.keyboard.press("Tab")
        name, seen = tab.evaluate(FOCUS)
        assert seen, name
        assert name != "BODY", reached
        reached.add(name)
    assert {"skip", "theme", "point", "filter", "link", "cell-method"} <= reached


def test_names_from_files_stay_text(opened):
    tab = opened()
    tab.get_by_role("button", name="All", exact=True).click()
    expand(tab)
    for place in range(3):
        hover(tab.locator("#return-panels .panel").nth(1).locator(".point").nth(-1 - 3 * place))
    assert tab.locator("img, [onerror], [onload], b").count() == 0
    assert tab.locator("script").count() == 2
    for payload in PAYLOADS:
        assert tab.get_by_text(payload).count() > 3


def open_page(opened, tmp_path, text, **options):
    (tmp_path / "page.html").write_text(text, encoding="utf-8")
    return opened((tmp_path / "page.html").as_uri(), **options)


def test_one_number_is_the_same_wherever_it_is_shown(opened, tmp_path):
    """0.14348 rounds to 0.143 in the table, in the panel and beside a mark."""
    cells = [made("bc", scores=np.full((6, 2), 0.1)), made("edm", scores=np.full((6, 2), 0.14348))]
    tab = open_page(opened, tmp_path, page.build(cells))
    expand(tab)
    assert "0.143 [0.143, 0.143]" in tab.locator("#cell-body .facts").first.inner_text()
    assert "+0.043 [+0.043, +0.043]" in tab.locator("#cell-body .facts").first.inner_text()
    assert "0.143 ± 0.000" in tab.locator(".cells").inner_text()
    assert "0.144" not in tab.locator("main").inner_text()


def seen(tab, place):
    """How many elements are wholly visible without scrolling sideways, and not covered by the fixed column."""
    inside = """(marks) => marks.filter((mark) => {
      const box = mark.getBoundingClientRect(), around = mark.closest(".scroll").getBoundingClientRect();
      const middle = document.elementFromPoint((box.left + box.right) / 2, (box.top + box.bottom) / 2);
      return box.left >= around.left && box.right <= around.right && middle && mark.contains(middle);
    }).length"""
    tab.locator(f".scroll:has({place.split()[0]})").evaluate("(box) => box.scrollIntoView({ block: 'center' })")
    tab.wait_for_timeout(100)
    return tab.locator(place).evaluate_all(inside)


@pytest.mark.parametrize("sizes", [(1,), (1, 3), (1, 3, 7, 10, 15)])
def test_signs_are_seen_at_a_glance_on_a_narrow_screen(opened, tmp_path, sizes):
    methods = ("bc", "bc:decay", "edm", "edm:released", "edm:paper")
    cells = [made(method, size, 0.1 * place) for place, method in enumerate(methods) for size in sizes]
    tab = open_page(opened, tmp_path, page.build(cells), viewport={"width": 360, "height": 740})
    assert tab.locator(".glance tbody td").count() == 4 * len(sizes)  # three forms against BC, one against its decay
    assert seen(tab, ".glance tbody td") >= min(len(sizes), 3)
    tab.locator(".scroll:has(.glance)").evaluate("(box) => { box.scrollLeft = box.scrollWidth; }")
    assert seen(tab, ".glance tbody td") >= 1
    label = tab.locator(".glance tbody th").bounding_box()
    assert label["x"] >= 0  # the setting stays in sight
    assert label["width"] < 180


@pytest.mark.parametrize("width", [360, 1280])
def test_a_long_name_hides_no_number(opened, tmp_path, width):
    long = "dsfn+rounds=2+warm_updates=2000+feature_updates=2000+value_updates=2000"
    task = TableTask("ward", "MIMIC-III-2a", "0")  # the paper prints numbers of this dataset
    results = []
    for name in ("majority", long):
        cell = Cell(task, Method.parse(name), 0, 2, 1, 10_000)
        metrics = dict.fromkeys(MEASURED, np.array([0.4, 0.6]))
        results.append(Result(cell, np.zeros((2, 0)), task.scale, np.full(2, -1), metrics=metrics))
    text = clinical.build(clinical.tables(results))
    tab = open_page(opened, tmp_path, text, viewport={"width": width, "height": 740})
    assert tab.evaluate("document.documentElement.scrollWidth") == width
    assert seen(tab, ".plain tbody tr:nth-child(2) td") >= (1 if width == 360 else 5)


def test_every_state_and_another_seed_have_marks_of_their_own(opened, tmp_path):
    cells = [made("bc", 1, 0.5), made("edm", 1, 0.6), made("edm", 1, 0.8, every_state=True)]
    cells += [made("edm", 1, 0.7, unlabelled=2), made("bc", 1, 0.3, seed=1), made("edm", 1, 0.4, seed=1)]
    tab = open_page(opened, tmp_path, page.build(cells))
    assert tab.locator("#return-panels .panel").count() == 2
    assert points(tab) == 4
    assert points(tab, "#state-panels") == 4  # BC, and EDM with none, all of its own and two more
    expand(tab)
    row = tab.locator("#state-panels .behind tr", has_text="EDM").inner_text()
    assert [text[:5] for text in row.split("\t")[1:]] == ["0.600", "0.800", "0.700"]
    assert tab.locator("#state-panels .behind thead").inner_text().split() == ["method", "0", "0,", "all", "2"]
    tab.locator("#cell-setting").select_option(index=0)
    tab.locator("#cell-method").select_option(label="EDM (our default)")
    tab.locator("#cell-size").select_option(label="1 trajectory, every state")
    assert "0.800" in tab.locator("#cell-body .facts").first.inner_text()


def test_intervals_of_few_draws_are_marked(opened, tmp_path):
    tab = open_page(opened, tmp_path, page.build([made("bc", draws=2), made("edm", draws=2)]))
    hover(tab.locator("#return-panels .point").first)
    assert "(2 draws: no 95 % interval)" in tab.locator("#tip").inner_text()
    assert "Fewer than 6 draws" in tab.locator("#returns").inner_text()


def test_a_single_cell_makes_a_page(opened, tmp_path):
    (tmp_path / "one.html").write_text(page.build([made("tril", draws=1, initialisations=1)]), encoding="utf-8")
    tab = opened((tmp_path / "one.html").as_uri())
    assert points(tab) == 1
    hover(tab.locator(".point"))
    assert "TRIL" in tab.locator("#tip").inner_text()


def test_it_says_something_without_scripts(browser, address):
    context = browser.new_context(java_script_enabled=False)
    tab = context.new_page()
    tab.goto(address)
    assert "clearly above" in tab.locator("#verdict").inner_text()
    assert tab.locator(".cells tbody tr").count() == len(results())
    assert tab.locator("noscript").count() == 1
    context.close()
