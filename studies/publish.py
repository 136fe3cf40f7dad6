"""Writes every published table and figure from the runs in results/.

python -m studies.publish            write the figures, and the tables into README.md and the pages in docs/
python -m studies.publish --check    fail if the tables are not what the runs say
"""

import sys
from pathlib import Path

import tyro
from matplotlib.figure import Figure

from sbil.reports import exports, figures
from sbil.reports.names import MAIN
from studies import imagined, rounding, tables
from studies.choosing import figures as choosing_figures
from studies.choosing import tables as choosing_tables
from studies.pages import FIGURES, ROOT, inserted
from studies.peers import figures as peers_figures
from studies.peers import tables as peers_tables
from studies.remedies import figures as remedies_figures
from studies.remedies import tables as remedies_tables


def pages() -> dict[Path, str]:
    """Return what the pages should say."""
    docs = ROOT / "docs"
    parts = {
        ROOT / "README.md": {"headline": tables.headline()},
        docs / "results.md": tables.for_results_page(),
        docs / "clinical.md": tables.for_clinical_page(),
        docs / "environments.md": {"returns": tables.returns()},
        docs / "reproduction.md": {**tables.for_reproduction_page(), "cpu": rounding.runs()},
        docs / "understanding_edm.md": remedies_tables.for_page(),
        docs / "choosing.md": {**choosing_tables.for_page(), **imagined.for_page()},
        docs / "peers.md": peers_tables.for_page(),
    }
    return {page: inserted(page, content) for page, content in parts.items()}


def drawings() -> dict[str, Figure]:
    """Return the figures of the pages by name."""
    parts = remedies_figures, choosing_figures, peers_figures
    return _figures_of_runs() | {name: figure for part in parts for name, figure in part.drawings().items()}


def _figures_of_runs() -> dict[str, Figure]:
    everything = [result for name in tables.SHOWN for result in tables.runs()[name]]
    main = [result for result in everything if str(result.cell.method) in MAIN]
    plain = [result for result in main if not result.cell.task.unlabelled]
    followed = [result for result in plain if result.cell.size == 1 and len(result.points) > 1]
    return {
        "return_against_size": figures.against_size(plain, printed=True),
        "profile": figures.profile(plain),
        "semi_supervised": figures.semi_supervised(main),
        "diagnostics": figures.diagnostics(followed, exports.DIAGNOSED),
    }


def main(check: bool = False) -> None:
    """Write the published tables and figures, or check the tables."""
    wanted = pages()
    if check:
        stale = [str(page.relative_to(ROOT)) for page, text in wanted.items() if page.read_text() != text]
        sys.exit(f"not what the runs say: {', '.join(stale)}; run python -m studies.publish" if stale else 0)
    for page, text in wanted.items():
        page.write_text(text)
    for name, figure in drawings().items():
        figures.write(figure, FIGURES / f"{name}.png")


if __name__ == "__main__":
    tyro.cli(main, prog="python -m studies.publish")
