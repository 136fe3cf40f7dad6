"""The live table of a grid: what is done, running and left, and how long the rest may take."""

import io

import numpy as np
import pytest
from rich.console import Console

from cells import cell_of
from sbil.cli import progress
from sbil.cli.progress import Board, duration, say
from sbil.cli.tables import WIDE, roomy
from sbil.experiments import Cell, Result
from sbil.training import Report


def cell(method: str, size: int, unlabelled: int = 0) -> Cell:
    return cell_of(method, size, draws=2, initialisations=1, unlabelled=unlabelled)


def result(of: Cell, score: float, seconds: float) -> Result:
    return Result(of, np.full((2, 3), score), (0.0, 1.0), np.array([-1, -1]), seconds={"training": seconds})


def report(loss: float = 0.25) -> Report:
    return Report(500, 1000, {"policy_loss": np.array([loss, loss])}, np.array([False, True]))


def drawn(board: Board, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(board)
    return console.file.getvalue()


CELLS = [cell(method, size) for method in ("bc", "edm") for size in (1, 3)]


def test_counts_and_marks_follow_the_work():
    board = Board(CELLS)
    assert board.line() == "0 of 4 cells done, 0 running, 4 left"
    board.advance(CELLS[:2], 0.5, report())
    assert board.line().startswith("0 of 4 cells done, 2 running, 2 left, about ")
    board.finish(result(CELLS[0], 0.75, 8.0), fresh=True)
    assert board.line().startswith("1 of 4 cells done, 1 running, 2 left")
    text = drawn(board)
    assert "0.750" in text
    assert "50%" in text
    assert text.count("·") == 2
    assert "loss 0.250, 1 diverged" in text


@pytest.fixture
def serial(monkeypatch):
    """A clock that is slower than the work: nothing runs side by side."""
    monkeypatch.setattr(progress.time, "monotonic", lambda: 1e6)


def test_work_side_by_side_is_done_faster_than_the_clock(monkeypatch):
    board = Board(CELLS, started=100.0)
    monkeypatch.setattr(progress.time, "monotonic", lambda: 104.0)
    board.finish(result(CELLS[0], 1.0, 8.0), fresh=True)  # 8 s of work in 4 s
    assert board.left() == pytest.approx(3 * 8 / 2)


def test_groups_that_run_side_by_side_are_all_running():
    board = Board(CELLS)
    board.advance(CELLS[:1], 0.0, report())
    board.advance(CELLS[1:2], 0.0, report())
    assert "2 running, 2 left" in board.line()


def test_time_to_go_is_what_runs_of_the_same_method_took(serial):
    board = Board(CELLS, started=0.0)
    assert board.left() is None
    board.finish(result(CELLS[0], 1.0, 8.0), fresh=True)  # 4 s a run
    assert board.left() == pytest.approx(3 * 8)  # edm is not known yet and counts the same
    board.finish(result(CELLS[2], 1.0, 80.0), fresh=True)  # 40 s a run
    assert board.left() == pytest.approx(8 + 80)
    board.advance([CELLS[3]], 0.75, report())
    assert board.left() == pytest.approx(8 + 20)


def test_cells_kept_from_before_say_nothing_about_this_machine():
    board = Board(CELLS)
    board.finish(result(CELLS[0], 1.0, 1e6), fresh=False)
    assert board.left() is None
    assert board.line() == "1 of 4 cells done, 0 running, 3 left"


def test_the_first_cells_are_timed_as_they_run(monkeypatch):
    board = Board(CELLS, started=100.0)
    monkeypatch.setattr(progress.time, "monotonic", lambda: 110.0)
    board.advance(CELLS[:1], 0.5, report())  # one run's worth of eight in 10 s
    assert board.left() == pytest.approx(70)


def test_where_not_all_rows_fit_those_that_move_are_shown(monkeypatch):
    monkeypatch.setattr(progress, "console", Console(file=io.StringIO(), height=12))
    many = [cell(f"bc+weight_decay={n}", 1) for n in range(40)]
    board = Board(many)
    board.finish(result(many[0], 1.0, 1.0), fresh=True)
    board.advance([many[30]], 0.1, report())
    text = drawn(board)
    assert "weight_decay=30" in text
    assert "weight_decay=0 " not in text
    assert "36 more rows" in text


def test_unlabelled_trajectories_have_columns_of_their_own():
    assert "n=1+3" in drawn(Board([cell("edm", 1), cell("edm", 1, 3)]))


@pytest.mark.parametrize(("seconds", "words"), [(4.4, "4 s"), (300, "5 min"), (7200, "2.0 h")])
def test_durations(seconds, words):
    assert duration(seconds) == words


def test_a_line_is_neither_wrapped_nor_read_as_markup(monkeypatch):
    """Python's readline sets COLUMNS=80 for the processes that it starts; a line in a file stays whole all the same."""
    narrow = Console(file=io.StringIO(), width=20)
    monkeypatch.setattr(progress, "console", narrow)
    say("12/80 CartPole-v1-ppo-sampled-thin20 edm n=1: [kept] from before")
    assert narrow.file.getvalue() == "12/80 CartPole-v1-ppo-sampled-thin20 edm n=1: [kept] from before\n"


def test_nothing_is_cut_where_nobody_looks_on(monkeypatch):
    """Output to a file is wide whatever COLUMNS says; on a terminal it is as wide as the terminal."""
    monkeypatch.setenv("COLUMNS", "60")
    assert roomy(Console(file=io.StringIO())).width == WIDE
    assert roomy(Console(file=io.StringIO(), force_terminal=True)).width < WIDE
