"""Where a policy would go, as a figure and on the page of episodes."""

import re

import numpy as np
import pytest
from browsing import CONTRAST
from test_episodes import demonstrations, policy_for

from sbil.errors import UserError
from sbil.evaluation.imagined import Fan, Imagined
from sbil.reports import figures
from sbil.reports.episodes import episodes_page
from sbil.reports.fans import section
from sbil.statistics import Interval

SPREAD = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])[:, None]


def going(left: float = 0.5, column: str = "heart rate [bpm]", steps: int = 20) -> Imagined:
    """A heart rate that rises by 1 per step, with every imagined episode over 2 steps before the last."""
    recorded = 80 + SPREAD + np.zeros(steps + 1)
    rises = recorded + np.arange(steps + 1)
    rises[:, -2:] = np.nan
    share = Interval(left, left - 0.01, left + 0.01)
    facts = {"r2_of_next_state": 0.9, "r2_of_step": {}, "horizon": 8, "r2_after": []}
    fans = (Fan(column, 3.0, recorded, rises), Fan("flat", 0.0, recorded * 0, recorded * 0))
    return Imagined(8, share, share, 0.3, 1.0, share, 4, None, None, 0.1, facts, fans)


def test_the_figure_draws_both_and_marks_the_last_step_that_is_trusted(tmp_path):
    figure = figures.fans(going())
    panel, flat = figure.axes
    recorded, rises, trusted = panel.get_lines()
    assert recorded.get_ydata().tolist() == [80.0] * 21
    assert rises.get_ydata()[:19].tolist() == list(range(80, 99))
    assert trusted.get_xdata() == [8, 8]
    assert (panel.get_title(), flat.get_title()) == ("heart rate [bpm]", "flat")
    for name in "ab":
        figures.write(figures.fans(going()), tmp_path / f"{name}.png")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    with pytest.raises(UserError, match="nothing to draw"):
        figures.fans(Imagined(**{**vars(going()), "fans": ()}))


def test_the_section_draws_every_column():
    made = section(going())
    assert "The policy leaves the recorded states: after 8 steps, 50% of" in made
    assert made.count("<svg") == 2
    assert made.count('class="trust"') == 2
    line = re.search(r'd="M([^"]*)" class="imagined c1 middle"', made)[1]
    heights = [float(point.split(",")[1]) for point in line.split("L")]
    assert len(heights) == 19
    np.testing.assert_allclose(np.diff(heights), (heights[-1] - heights[0]) / 18, atol=0.11)
    assert heights[0] > heights[-1]  # upwards
    assert "nan" not in made
    assert 'class="private"' not in section(going(0.02))


def test_the_page_has_the_section_if_it_is_asked_for():
    data = demonstrations()
    given = {"title": "x", "policy": policy_for(data)}
    assert 'id="imagined"' not in episodes_page(data, **given)
    page = episodes_page(data, **given, going=going(column="<b>bold</b>"))
    assert page.count('href="#imagined"') == page.count('id="imagined"') == 1
    assert "<figcaption>&lt;b&gt;bold" in page
    assert "<b>" not in page
    why = episodes_page(data, **given, going="where the policy would go cannot be imagined: too bad.")
    assert "Where the policy would go cannot be imagined: too bad." in why


@pytest.fixture
def address(tmp_path):
    data = demonstrations()
    page = episodes_page(data, title="x", policy=policy_for(data), going=going())
    (tmp_path / "view.html").write_text(page, "utf-8")
    return (tmp_path / "view.html").as_uri()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_read(opened, scheme):
    tab = opened(color_scheme=scheme, viewport={"width": 360, "height": 900})
    found = tab.evaluate(CONTRAST)
    assert found["count"] > 20
    assert found["low"] == []
    assert tab.evaluate("document.documentElement.scrollWidth") <= 360
