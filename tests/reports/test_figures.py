"""What figures of hand-made results hold: lines, labels and values."""

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from handmade import BASE, result
from sbil.errors import UserError
from sbil.experiments import Result
from sbil.reports import figures, paper_numbers


def with_curves(made: Result, **curves: np.ndarray) -> Result:
    """A result with diagnostics [runs, points] along its training."""
    points = len(next(iter(curves.values()))[0])
    return replace(made, curves=curves, points=500 * np.arange(1, points + 1))


def labels(figure: figures.Figure) -> list[str]:
    """The words of a figure's legend."""
    return [text.get_text() for text in figure.legends[0].get_texts()]


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
@pytest.mark.parametrize("draw", [figures.against_size, figures.profile])
def test_figures_are_whole_and_byte_stable(results, tmp_path, kind, draw):
    starts = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}
    for name in ("a", "b"):
        figures.write(draw(results), tmp_path / f"{name}.{kind}")
    content = (tmp_path / f"a.{kind}").read_bytes()
    assert content.startswith(starts[kind])
    assert content == (tmp_path / f"b.{kind}").read_bytes()


def test_other_endings_are_refused(results, tmp_path):
    with pytest.raises(UserError, match=r"\.png, \.svg or \.pdf"):
        figures.write(figures.against_size(results), tmp_path / "figure.jpeg")


def test_the_figure_draws_every_method_and_size(results):
    more = result("edm", 1, BASE + 0.3, unlabelled=1)  # has no place here
    figure = figures.against_size([*results, more])
    (panel,) = figure.axes
    assert [label.get_text() for label in panel.get_xticklabels()] == ["1", "3"]
    assert labels(figure) == ["BC", "EDM (our default)"]
    means = [container.lines[0].get_ydata() for container in panel.containers]
    np.testing.assert_allclose(np.array(means, float), [[0.5, 0.6], [0.6, 0.3]], atol=1e-6)
    places = [container.lines[0].get_xdata() for container in panel.containers]
    np.testing.assert_allclose(
        np.mean(np.array(places, float), axis=0), [0, 1], atol=1e-12
    )  # shifted a little to either side


def test_intervals_are_those_of_the_tables(results):
    (panel,) = figures.against_size(results[:1]).axes
    (bars,) = panel.containers[0].lines[2]
    value = figures.estimate(results[0].scores)
    np.testing.assert_allclose(bars.get_segments()[0][:, 1], [value.low, value.high])


def test_runs_that_all_score_alike_can_be_drawn():
    """Rounding may put the ends of their interval on the wrong side of the mean."""
    alike = [result("random", size, np.full((6, 2), score)) for size, score in ((1, -0.1 / 3), (3, 0.7), (7, 1 / 3))]
    assert figures.against_size(alike).axes


def test_the_print_is_drawn_for_the_papers_methods_alone(results):
    ours = [result("bc:decay", 1, BASE), result("edm:paper", 1, BASE), result("bc", 2, BASE)]
    figure = figures.against_size([*results, *ours], printed=True)
    (panel,) = figure.axes
    dashed = [line for line in panel.get_lines() if line.get_linestyle() == "--"]
    assert len(dashed) == 2
    for line, method, sizes in zip(dashed, ("bc", "edm"), ((1, 3), (1, 3)), strict=True):
        expected = [
            paper_numbers.printed("CartPole-v1", size, method).mean for size in sizes
        ]  # and none for 2 trajectories
        np.testing.assert_allclose(line.get_ydata(), expected)
        assert (line.get_markerfacecolor(), line.get_alpha()) == ("white", 0.45)
    assert labels(figure)[-3:] == ["BC, weight decay 1", "EDM, as printed", "printed in the paper"]
    assert dashed[0].get_color() == panel.containers[0].lines[0].get_color()


@pytest.mark.parametrize(("count", "rows", "columns"), [(1, 1, 1), (4, 1, 4), (5, 2, 3), (8, 2, 4), (9, 3, 3)])
def test_panels_wrap_beyond_four(count, rows, columns):
    made = [result("bc", 1, BASE, thin=thin) for thin in range(1, count + 1)]
    figure = figures.against_size(made)
    assert len(figure.axes) == count
    grid = figure.axes[0].get_subplotspec().get_gridspec()
    assert (grid.nrows, grid.ncols) == (rows, columns)


def test_eight_methods_look_different_and_a_method_looks_the_same_in_every_panel():
    methods = ["bc", "rcal", "dsfn", "tril", "value_dice", "edm", "edm:paper", "random", "majority"]
    made = [result(method, 1, BASE, mode=mode) for mode in ("sampled", "greedy") for method in methods]
    panels = figures.against_size(made[1:]).axes  # BC is not in the first
    looks = [[(c.lines[0].get_color(), c.lines[0].get_marker()) for c in panel.containers] for panel in panels]
    assert len(set(looks[0])) == len({colour for colour, _ in looks[0]}) == 8
    assert looks[0] == looks[1][1:]
    assert labels(figures.against_size(made[1:]))[-1] == "BC"
    assert min(np.ptp(to_rgb(colour)) + 1 - sum(to_rgb(colour)) / 3 for colour in figures.COLOURS) > 0.4  # none is pale


def test_profiles_hold_the_share_of_runs_above(results):
    figure = figures.profile(results)
    (panel,) = figure.axes
    assert labels(figure) == ["BC", "EDM (our default)"]
    line = panel.get_lines()[0]
    pooled = np.concatenate([BASE, BASE + 0.1])
    at, scores = [0, 45, 75, 105], [-0.1, 0.35, 0.65, 0.95]
    np.testing.assert_allclose(line.get_xdata()[at], scores)
    expected = [np.mean(pooled > score) for score in scores]
    np.testing.assert_allclose(line.get_ydata()[at], expected)
    assert len(panel.collections) == 2  # a band each


def test_unlabelled_trajectories_are_counted_for_each_labelled_one():
    scores = {0: 0.0, 3: 0.1, 6: 0.15}
    made = [result("edm", 3, BASE + shift, unlabelled=count) for count, shift in reversed(scores.items())]
    made += [result("bc", 3, BASE - 0.1), result("edm", 1, BASE)]  # nothing is unlabelled at one trajectory
    figure = figures.semi_supervised(made)
    (panel,) = figure.axes
    (curve,) = panel.containers
    np.testing.assert_allclose(np.array(curve.lines[0].get_xdata(), float), [0, 1, 2])
    np.testing.assert_allclose(np.array(curve.lines[0].get_ydata(), float), [0.5, 0.6, 0.65], atol=1e-6)
    (level,) = [line for line in panel.get_lines() if line.get_linestyle() == "--"]
    assert level.get_ydata() == pytest.approx([0.4, 0.4])
    assert labels(figure) == ["EDM (our default)", "BC"]
    assert panel.get_title().endswith("3 labelled")


def test_a_semi_supervised_figure_needs_unlabelled_trajectories(results):
    with pytest.raises(UserError, match="unlabelled"):
        figures.semi_supervised(results)


def test_diagnostics_are_medians_with_the_middle_half():
    loss = np.arange(12)[:, None] + np.array([0.0, 10.0, 20.0])
    made = [
        with_curves(result("bc", 1, BASE), policy_loss=loss),
        with_curves(result("edm", 1, BASE), policy_loss=loss + 1, energy=-loss),
        with_curves(result("edm", 3, BASE), policy_loss=loss + 2),
    ]
    figure = figures.diagnostics(made, ["policy_loss", "energy"])
    assert len(figure.axes) == 4  # two metrics, two sizes
    assert labels(figure) == ["BC", "EDM (our default)"]
    first, other, energy, empty = figure.axes
    np.testing.assert_allclose(first.get_lines()[0].get_xdata(), [500, 1000, 1500])
    np.testing.assert_allclose(first.get_lines()[0].get_ydata(), [5.5, 15.5, 25.5])
    band = first.collections[0].get_paths()[0].vertices
    assert (band[:, 1].min(), band[:, 1].max()) == pytest.approx((2.75, 28.25))
    assert [len(panel.get_lines()) for panel in (first, other, energy, empty)] == [2, 1, 1, 0]
    assert [first.get_ylabel(), energy.get_ylabel()] == ["policy loss", "energy"]
    assert first.get_yscale() == "linear"


def test_diverged_runs_do_not_ruin_the_axes():
    sound = np.linspace(1, 2, 12)[:, None] * np.array([1.0, 0.9, 0.8])
    lost = sound * np.array([1.0, 1e6, 1e9])
    few, all_lost = sound.copy(), lost.copy()
    few[:2] = lost[:2]
    all_lost[:, 2] = np.inf
    made = [
        with_curves(result("edm", 1, BASE, diverged=2), energy=few),
        with_curves(result("edm:paper", 1, BASE, diverged=12), energy=all_lost),
    ]
    (panel,) = figures.diagnostics(made, ["energy"]).axes
    low, high = panel.get_ylim()
    assert 1 < low < 1.2 < 1.7 < high < 2  # the middle halves of the sound runs
    assert panel.get_yscale() == "linear"
    assert "EDM (our default): 2 of 12 diverged\nEDM, as printed: 12 of 12 diverged" in panel.get_title()
    (alone,) = figures.diagnostics(made[1:], ["energy"]).axes  # no run is sound, so all finite values count
    assert alone.get_yscale() == "symlog"
    assert alone.get_ylim()[1] > 1e6


def test_values_far_apart_get_a_logarithmic_axis():
    loss = np.ones((12, 1)) * np.array([1.0, 1e-2, 1e-4])
    (panel,) = figures.diagnostics([with_curves(result("bc", 1, BASE), policy_loss=loss)], ["policy_loss"]).axes
    assert panel.get_yscale() == "symlog"
    low, high = panel.get_ylim()
    assert low < 1e-4
    assert 1 < high < 10


def test_diagnostics_that_cannot_be_drawn_well_are_drawn_all_the_same(tmp_path):
    nothing = with_curves(result("edm", 1, BASE, diverged=12), energy=np.full((12, 2), np.nan))
    zero = with_curves(result("bc", 1, BASE), energy=np.zeros((12, 1)))
    for made in ([nothing], [zero], [nothing, zero]):
        figures.write(figures.diagnostics(made, ["energy"]), tmp_path / "figure.png")
    with pytest.raises(UserError, match="no cell has a diagnostic named margin"):
        figures.diagnostics([zero], ["margin"])


def test_every_figure_is_byte_stable(tmp_path):
    made = [with_curves(result("edm", 1, BASE, unlabelled=k), energy=BASE.reshape(12, 1) * [1, 9]) for k in (0, 1)]
    for number in range(2):
        figures.write(figures.semi_supervised(made), tmp_path / f"semi{number}.svg")
        figures.write(figures.diagnostics(made, ["energy"]), tmp_path / f"diagnostics{number}.svg")
    for name in ("semi", "diagnostics"):
        assert (tmp_path / f"{name}0.svg").read_bytes() == (tmp_path / f"{name}1.svg").read_bytes()
